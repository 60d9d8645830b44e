"""The memory sink: the last events, in this process, for tests and for whoever embeds toolcell.

Owns a bounded ring. Never durable: with this sink alone nothing persists.
"""

import threading
from collections import deque
from typing import TypeVar, overload

from toolcell.events import Event

__all__ = ["MemorySink"]

_EventT = TypeVar("_EventT", bound=Event)


class MemorySink:
    """Keeps the last `capacity` events, default 10,000. Older ones go, counted in `overwritten`."""

    name = "memory"
    durable = False

    def __init__(self, capacity: int = 10_000) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}, it has to be at least 1")
        self._events: deque[Event] = deque(maxlen=capacity)
        self._changed = threading.Condition()
        self._closed = False
        self.overwritten = 0

    def write(self, event: Event) -> None:
        """Keeps `event`, at the price of the oldest one where the ring is full."""
        with self._changed:
            if self._closed:
                raise ValueError("the memory sink is closed")
            if len(self._events) == self._events.maxlen:
                self.overwritten += 1
            self._events.append(event)
            self._changed.notify_all()

    @overload
    def events(self, kind: type[_EventT], *, correlation_id: str | None = ...) -> list[_EventT]: ...
    @overload
    def events(self, kind: None = ..., *, correlation_id: str | None = ...) -> list[Event]: ...

    def events(
        self, kind: type[Event] | None = None, *, correlation_id: str | None = None
    ) -> list[Event] | list[_EventT]:
        """The events that are kept, oldest first: of one type, of one call, or all."""
        with self._changed:
            return self._matching(kind or Event, correlation_id)

    def wait(
        self,
        kind: type[Event] | None = None,
        *,
        correlation_id: str | None = None,
        count: int = 1,
        timeout_s: float = 5.0,
    ) -> list[Event]:
        """Waits until `count` such events are kept. Raises TimeoutError after `timeout_s`."""
        with self._changed:
            found: list[Event] = []

            def enough() -> bool:
                found[:] = self._matching(kind or Event, correlation_id)
                return len(found) >= count

            if not self._changed.wait_for(enough, timeout_s):
                name = (kind or Event).__name__
                raise TimeoutError(f"{len(found)} of {count} {name} after {timeout_s} s")
            return found

    def clear(self) -> None:
        """Forgets every event that is kept."""
        with self._changed:
            self._events.clear()

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Takes no more events. What is kept can still be read."""
        with self._changed:
            self._closed = True

    def _matching(self, kind: type[_EventT], correlation_id: str | None) -> list[_EventT]:
        return [
            event
            for event in self._events
            if isinstance(event, kind)
            and (correlation_id is None or event.correlation_id == correlation_id)
        ]
