"""The ticker: who is running, and one thread that advances the engine's epoch for them.

Owns the set of runs under way, the thread and its rest. A tick makes each running guest call back
(`Cell.on_tick`), where deadline, cancellation and CPU time are looked at; without running guests
there are no ticks and the thread rests until the next one comes.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from toolcell.errors import CallCancelled, InternalError
from toolcell.session import CancelToken

IDLE_TICKS = 20
"""Ticks without a running guest before the thread rests: waking it costs more than a few ticks."""

ENDING_S = 10.0
"""How long `close` waits for runs to end. Guests end at their next tick; a host function that
waits ends with its session."""


class Ticker:
    """Calls `tick` every `period_ms` while inside at least one `running()`. Thread-safe."""

    def __init__(self, tick: Callable[[], None], period_ms: float) -> None:
        self._tick = tick
        self._period_s = period_ms / 1000
        self._closed = False
        self._start_over()
        _tickers.add(self)

    def _start_over(self) -> None:
        """A fork copies neither the thread nor the runs of the others."""
        self._changed = threading.Condition()
        self._running: dict[object, CancelToken] = {}
        self._resting = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def running(self, cancel: CancelToken) -> Iterator[None]:
        """Keeps the ticks coming. `cancel` is how `close` would end this run."""
        with self._changed:
            if self._closed:
                raise InternalError("the wasi lane is closed", remedy="make a new Runtime")
            # A key of its own: a nested run may come with the token of the outer one.
            run = object()
            self._running[run] = cancel
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="toolcell-wasi-ticker", daemon=True
                )
                self._thread.start()
            elif self._resting:
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                del self._running[run]
                if self._closed:
                    self._changed.notify_all()

    def _run(self) -> None:
        idle = 0
        while True:
            with self._changed:
                idle = 0 if self._running else idle + 1
                if idle > IDLE_TICKS and not self._closed:
                    self._resting = True
                    self._changed.wait_for(lambda: self._running or self._closed)
                    self._resting, idle = False, 0
                if self._closed and not self._running:
                    return
            time.sleep(self._period_s)
            self._tick()

    def close(self) -> bool:
        """Cancels what runs, waits for it, ends the thread. False where a run did not end.

        Call it before the engine is closed, and leave the engine alone where this says False.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for cancel in list(self._running.values()):
                cancel.cancel(CallCancelled("the lane is being closed"))
            ended = self._changed.wait_for(lambda: not self._running, timeout=ENDING_S)
            thread, self._thread = self._thread, None
        if thread is not None and ended:
            thread.join()
        return ended


_tickers: "weakref.WeakSet[Ticker]" = weakref.WeakSet()


def _after_fork() -> None:
    for ticker in _tickers:
        ticker._start_over()  # noqa: SLF001 - the hook of this very class


os.register_at_fork(after_in_child=_after_fork)
