"""Admission: how many calls run at once, and how long one waits for its turn.

Owns the gate. It knows nothing of tools or lanes; the runtime asks it before every run and gives
the place back after it.
"""

import threading
import time

from toolcell.errors import QueueFull
from toolcell.session import CancelToken

__all__ = ["Gate"]


class Gate:
    """A bounded number of places, given in the order of asking.

    `places` calls run at once; at most `queue_length` more wait. Beyond that, or after the wait
    that the caller allows, a call is refused with status 429: a host under load must say so
    quickly rather than pile up work.
    """

    def __init__(self, places: int, queue_length: int = 10_000) -> None:
        if places < 1:
            raise ValueError(f"places is {places}; at least 1 call must be able to run")
        self.places = places
        self.queue_length = queue_length
        self._free = places
        self._lock = threading.Lock()
        self._waiting: dict[threading.Event, None] = {}

    def enter(self, wait_ms: int, cancel: CancelToken) -> float:
        """Takes a place; returns the milliseconds that it took to get one.

        Raises :class:`QueueFull` where none became free within `wait_ms` or the queue is full,
        and the token's error where the call was cancelled while it waited.
        """
        with self._lock:
            if self._free > 0 and not self._waiting:
                self._free -= 1
                return 0.0
            if len(self._waiting) >= self.queue_length:
                raise QueueFull(
                    f"{self.places} calls are running and {len(self._waiting)} wait",
                    remedy="try again later, or raise max_concurrency of the Runtime",
                    details={"limit": self.places, "waiting": len(self._waiting), "waited_ms": 0},
                )
            turn = threading.Event()
            self._waiting[turn] = None
        return self._await_turn(turn, wait_ms, cancel)

    def _await_turn(self, turn: threading.Event, wait_ms: int, cancel: CancelToken) -> float:
        started = time.monotonic()
        forget = cancel.on_cancel(turn.set)
        try:
            turn.wait(wait_ms / 1000)
        except BaseException:  # Ctrl-C while waiting: a place that came meanwhile goes back
            if not self._withdraw(turn):
                self.leave()
            raise
        finally:
            forget()
        granted = not self._withdraw(turn)
        waited_ms = (time.monotonic() - started) * 1000
        if cancel.error is not None:
            if granted:
                self.leave()
            raise cancel.error
        if not granted:
            raise QueueFull(
                f"none of {self.places} places became free within {wait_ms} ms",
                remedy="try again later, or raise max_concurrency of the Runtime",
                details={"limit": self.places, "waited_ms": round(waited_ms, 1)},
            )
        return waited_ms

    def _withdraw(self, turn: threading.Event) -> bool:
        """Takes `turn` out of the queue. False where it had been given a place."""
        with self._lock:
            if turn in self._waiting:
                del self._waiting[turn]
                return True
            return False

    def leave(self) -> None:
        """Gives a place back: to whoever waits longest, else to the free ones."""
        with self._lock:
            if self._waiting:
                turn = next(iter(self._waiting))
                del self._waiting[turn]
                turn.set()
            else:
                self._free += 1
