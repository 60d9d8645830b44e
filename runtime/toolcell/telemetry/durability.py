"""When what was written reaches the disk.

Owns the thread that syncs the audit log every so often. Must never hold up a writer: it syncs
duplicates of the descriptors, outside the log's lock. Used by the JSONL sink.
"""

import os
import threading
from collections.abc import Callable

__all__ = ["IntervalSync"]


class IntervalSync:
    """Calls `fdatasync` on what `duplicates` gives, at most every `interval_ms`, after a write.

    The thread starts with the first write and ends with :meth:`close`. A failure is kept for
    :meth:`raise_failure`: the kernel reports a lost write once and then forgets it, so whoever
    writes next has to hear of it.
    """

    def __init__(self, interval_ms: int, duplicates: Callable[[], list[int]]) -> None:
        self._interval_s = interval_ms / 1000
        self._duplicates = duplicates
        self._dirty = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def raise_failure(self) -> None:
        """Raises, once, what went wrong with an earlier sync."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def mark(self) -> None:
        """Says that something was written. Called by one thread at a time."""
        if not self._dirty.is_set():
            self._dirty.set()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="toolcell-audit-sync", daemon=True
                )
                self._thread.start()

    def sync(self) -> None:
        """Syncs now, in this thread."""
        self._dirty.clear()
        for descriptor in self._duplicates():
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Ends the thread. Syncs nothing."""
        self._stopped.set()
        self._dirty.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while True:
            self._dirty.wait()
            if self._stopped.wait(self._interval_s):
                return
            try:
                self.sync()
            except OSError as error:
                self._error = error
