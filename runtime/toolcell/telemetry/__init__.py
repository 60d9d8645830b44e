"""Telemetry: where the events of every run go.

Owns the hand-over of an event to the sinks, and the rule that a call fails whose events must
persist and can't. Every event is redacted here, once, before any sink sees it. Must never let a
sink that fails, hangs on to an exception or is somebody else's code break another sink.

Made by the runtime, handed to each run as the `Emitter` of its session.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Protocol, Self

from toolcell.errors import InternalError
from toolcell.events import Event
from toolcell.telemetry.redact import Redactor

__all__ = ["Sink", "Telemetry"]

_LOGGER = logging.getLogger("toolcell.telemetry")


class Sink(Protocol):
    """Somewhere that events go. Called from many threads at once.

    `durable`: once `write` has returned, the event outlives this process. Whatever a method
    raises is counted against the sink and goes no further.
    """

    @property
    def name(self) -> str:
        """A short word for messages and counters."""

    @property
    def durable(self) -> bool:
        """Whether an event that `write` took outlives this process."""

    def write(self, event: Event) -> None:
        """Takes one event, already redacted. It may be shared: never change it."""

    def flush(self) -> None:
        """Makes what was written as safe as this sink can."""

    def close(self) -> None:
        """Frees what the sink holds. Idempotent; a later `write` raises."""


class Telemetry:
    """Hands each event to every sink. Thread-safe; a context manager that closes its sinks.

    An event type with `must_persist` that no durable sink could take is an :class:`InternalError`,
    which fails the call. That rule needs a durable sink: without one (tests, embedding with a
    memory sink only) nothing persists and nothing is refused for it. Any other event that a sink
    could not take is counted in :attr:`dropped`.

    `redactor` None: one that knows the usual patterns, but no secrets and no paths.
    """

    def __init__(self, sinks: Sequence[Sink], *, redactor: Redactor | None = None) -> None:
        self.sinks = tuple(sinks)
        self.redactor = redactor or Redactor()
        self._durable = tuple(sink for sink in self.sinks if sink.durable)
        self._lock = threading.Lock()
        self._dropped: dict[str, int] = {}
        self._failing: set[str] = set()

    @property
    def dropped(self) -> dict[str, int]:
        """How many events each sink could not take, by the sink's name. Empty when all is well."""
        with self._lock:
            return dict(self._dropped)

    def emit(self, event: Event) -> None:
        """Hands `event` to every sink. Raises where one that must persist was not made durable."""
        event = self.redactor.redact_event(event)
        persisted = False
        failure: Exception | None = None
        for sink in self.sinks:
            try:
                sink.write(event)
            except Exception as error:  # noqa: BLE001 - a sink may be anybody's code
                self._count(sink, error)
                if sink.durable:
                    failure = error
            else:
                persisted = persisted or sink.durable
                if self._failing:
                    self._recovered(sink)
        if event.must_persist and self._durable and not persisted:
            raise self._not_persisted(event, failure) from failure

    def flush(self) -> None:
        """Asks every sink to make safe what it took. A sink that can't is counted as failing."""
        for sink in self.sinks:
            try:
                sink.flush()
            except Exception as error:  # noqa: BLE001 - as above
                self._count(sink, error)

    def close(self) -> None:
        """Closes every sink. Idempotent. Events that come later are handled as failed writes."""
        for sink in self.sinks:
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001 - as above
                self._count(sink, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count(self, sink: Sink, error: Exception) -> None:
        """Counts a failure, and says so once for each time that a sink begins to fail."""
        with self._lock:
            self._dropped[sink.name] = self._dropped.get(sink.name, 0) + 1
            first = sink.name not in self._failing
            self._failing.add(sink.name)
        if first:
            _LOGGER.warning(
                "sink %s fails: %s", sink.name, self.redactor.redact(f"{error!r}", limit=300)
            )

    def _recovered(self, sink: Sink) -> None:
        with self._lock:
            if sink.name not in self._failing:
                return
            self._failing.discard(sink.name)
        _LOGGER.warning("sink %s works again", sink.name)

    def _not_persisted(self, event: Event, failure: Exception | None) -> InternalError:
        why = getattr(failure, "strerror", None) or type(failure).__name__
        return InternalError(
            f"the event {event.__struct_config__.tag} must persist and no durable sink could "
            f"take it ({', '.join(sink.name for sink in self._durable)}: {why})",
            remedy="make room where the audit log is, or point it to a disk that can be written; "
            "`toolcell audit verify` says whether the log itself is whole",
            details={
                "event": str(event.__struct_config__.tag),
                "correlation_id": event.correlation_id,
                "errno": getattr(failure, "errno", None),
            },
        )
