"""The ticker: one thread that advances an engine's epoch while anything runs.

Owns the thread and its rest. A tick makes each running guest call back (`Cell.on_tick`), where
deadline, cancellation and CPU time are looked at; without running guests there are no ticks and
the thread sleeps until the next one comes.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

IDLE_TICKS = 20
"""Ticks without a running guest before the thread rests: waking it costs more than a few ticks."""


class Ticker:
    """Calls `tick` every `period_ms` while inside at least one `running()`. Thread-safe."""

    def __init__(self, tick: Callable[[], None], period_ms: float) -> None:
        self._tick = tick
        self._period_s = period_ms / 1000
        self._lock = threading.Condition()
        self._running = 0
        self._resting = False
        self._closed = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keeps the ticks coming."""
        with self._lock:
            self._running += 1
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name="toolcell-wasi-ticker", daemon=True
                )
                self._thread.start()
            elif self._resting:
                self._lock.notify()
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def _run(self) -> None:
        idle = 0
        while True:
            with self._lock:
                idle = 0 if self._running else idle + 1
                if idle > IDLE_TICKS:
                    self._resting = True
                    self._lock.wait_for(lambda: self._running or self._closed)
                    self._resting, idle = False, 0
                if self._closed:
                    return
            time.sleep(self._period_s)
            self._tick()

    def close(self) -> None:
        """Ends the thread. Call it when nothing runs any more, before the engine is closed."""
        with self._lock:
            self._closed = True
            self._lock.notify()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
