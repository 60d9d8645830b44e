"""The JSONL sink: the audit log on disk.

Owns the appending: one line per event, sealed into the chain (`chain`), under a lock that threads
and processes share. `write` returns once the kernel has the line, so that an event outlives a
crash of this process; `fsync` says what a power cut may take. Must never change or remove a line,
and must never go on in silence after a log that was tampered with (`recovery`).

Made by whoever configures telemetry; called by `Telemetry`.
"""

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from toolcell.errors import ConfigError
from toolcell.events import AuditClosed, AuditOpened, AuditRecovered, Event, EventContext
from toolcell.telemetry.chain import (
    FORMAT,
    HEAD_BYTES,
    LINE_OVERHEAD_BYTES,
    MAX_LINE_BYTES,
    ChainKey,
    Head,
    seal_line,
)
from toolcell.telemetry.durability import IntervalSync
from toolcell.telemetry.files import LogFiles, lock, open_private, same_file
from toolcell.telemetry.recovery import Finding, examine, rebuild

__all__ = ["Fsync", "JsonlSink"]

Fsync = Literal["none", "interval", "always"]

_ENCODER = msgspec.json.Encoder()
_OUTSIDE = EventContext()
_MAX_EVENT_BYTES = MAX_LINE_BYTES - LINE_OVERHEAD_BYTES
_MIN_FILE_BYTES = 4_096
_LOOK_AGAIN_S = 1.0


class JsonlSink:
    """Appends events to the log at `path`, sealed with `key` (`toolcell.home.owner_only_key`).

    `max_bytes`: a file that would grow beyond it is closed and a new one begun; default 64 MiB,
    at least 4 KiB, 0: never. Full files stay; removing them is the operator's business.
    `fsync`: `always` syncs before `write` returns (100 µs and more); `interval` (default) does it
    in the background every `fsync_interval_ms`, default 1,000; `none` leaves it to the kernel.
    `lock_timeout_ms`: how long to wait for other threads, and then for another process; default
    5,000; then TimeoutError, which is an OSError.

    Raises :class:`ConfigError` where the log can't be opened. Later, `write` raises OSError.
    """

    name = "jsonl"
    durable = True

    def __init__(
        self,
        path: Path,
        key: bytes,
        *,
        max_bytes: int = 64 << 20,
        fsync: Fsync = "interval",
        fsync_interval_ms: int = 1_000,
        lock_timeout_ms: int = 5_000,
    ) -> None:
        if max_bytes and max_bytes < _MIN_FILE_BYTES:
            raise ConfigError(
                f"max_bytes of the audit log is {max_bytes}, the least is {_MIN_FILE_BYTES}",
                remedy="raise it, or set 0 for a single file",
            )
        self._files = LogFiles(path)
        self._key = ChainKey(key)
        self._max_bytes = max_bytes
        self._fsync = fsync
        self._fsync_interval_ms = fsync_interval_ms
        self._lock_timeout_s = lock_timeout_ms / 1000
        self._closed = False
        self._head = Head()
        self._start()
        try:
            with self._lock:
                self._locked_append(None)
        except OSError as error:
            self.close()
            raise ConfigError(
                f"the audit log {path.name} can't be opened: {error.strerror or error}",
                remedy="name a folder that exists and that you may write to",
            ) from error
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._head_fd = -1
        self._log_fd = -1
        self._record: bytes | None = None
        self._look_at = 0.0
        self._sync = IntervalSync(self._fsync_interval_ms, self._duplicates)

    def write(self, event: Event) -> None:
        """Appends `event`. Raises OSError where it is not in the log, whole, afterwards."""
        body = _ENCODER.encode(event)
        if len(body) > _MAX_EVENT_BYTES:
            raise ValueError(f"the event has {len(body)} bytes, the limit is {_MAX_EVENT_BYTES}")
        if self._pid != os.getpid():
            self._forget_parent()
        if not self._lock.acquire(timeout=self._lock_timeout_s):
            raise TimeoutError(errno.ETIMEDOUT, "the threads before this one are stuck")
        try:
            self._sync.raise_failure()
            self._locked_append(body)
            if self._fsync == "interval":
                self._sync.mark()
        finally:
            self._lock.release()

    def flush(self) -> None:
        """Syncs the log, unless the policy is `none`."""
        if self._fsync != "none" and not self._closed:
            self._sync.sync()

    def close(self) -> None:
        """Syncs as :meth:`flush` does and closes the files. Idempotent."""
        if self._closed:
            return
        if self._pid != os.getpid():
            self._forget_parent()
        try:
            self._sync.close()
            self.flush()
        finally:
            self._closed = True
            with self._lock:
                self._close_files()

    # --- everything below runs under the lock ---------------------------------------------------

    def _locked_append(self, body: bytes | None) -> None:
        """Takes the lock between processes, sees to the log's state, and appends `body`."""
        try:
            self._hold()
            self._settle()
            if body is not None:
                if self._max_bytes:
                    self._make_room(len(body) + LINE_OVERHEAD_BYTES)
                self._append((body,), self._head)
        except BaseException:
            # Whatever it was, a Ctrl-C between two system calls included: look before going on.
            self._record = None
            raise
        finally:
            if self._head_fd >= 0:
                fcntl.flock(self._head_fd, fcntl.LOCK_UN)

    def _hold(self) -> None:
        """Locks the head record, after opening it where it is not open or not the one any more.

        The names are looked at once a second: a log that was moved away is begun anew.
        """
        if self._closed:
            raise ValueError("the audit log is closed")
        now = time.monotonic()
        if now >= self._look_at:
            if not self._files_are_ours():
                self._close_files()
            self._look_at = now + _LOOK_AGAIN_S
        if self._head_fd < 0:
            self._head_fd = open_private(self._files.head, os.O_RDWR | os.O_CREAT)
        lock(self._head_fd, fcntl.LOCK_EX, timeout_s=self._lock_timeout_s)

    def _settle(self) -> None:
        """Makes sure that the next line goes to where the chain ends. Usually two system calls."""
        record = os.pread(self._head_fd, HEAD_BYTES + 1, 0)
        if record == self._record and os.lseek(self._log_fd, 0, os.SEEK_END) == self._head.size:
            return
        head, doubtful = self._where_it_ended(record)
        while True:
            if head.closed:
                head = self._next_file(head)
            self._open_log()
            finding = examine(self._log_fd, head, self._key, doubtful=doubtful)
            head = finding.head
            if finding.needs_newline and not finding.kind:
                head = self._put(b"\n", head, head._replace(size=head.size + 1))
            if not head.closed:
                break
        if len(record) > HEAD_BYTES:
            os.ftruncate(self._head_fd, HEAD_BYTES)
        if not finding.kind:
            head = self._seal(head)
        # One write, so that no crash can leave an opening that keeps the recovery to itself.
        own = [_ENCODER.encode(self._opening(head))] if head.size == 0 else []
        if finding.kind:
            own.append(_ENCODER.encode(_recovered(finding)))
        if own:
            self._append(own, head, lead=b"\n" if finding.needs_newline else b"")

    def _where_it_ended(self, record: bytes) -> tuple[Head, bool]:
        """The end of the chain as far as it is known, and whether that can't be proved.

        What this process has sealed itself it does not forget: a head record that is older than
        that was put back by somebody.
        """
        found = Head.parse(record, self._key)
        known = self._head
        if found is not None and found.seq >= known.seq:
            return found, False
        if known.seq and not self._files.full(known.generation).exists():
            return known, True
        head, is_new = rebuild(self._files, self._key)
        return head, not is_new

    def _append(
        self, bodies: Sequence[bytes], head: Head, *, lead: bytes = b"", closed: bool = False
    ) -> Head:
        """Writes events as the lines after `head`, behind `lead`, which is no line."""
        data, seq, last = lead, head.seq, head.hash
        for body in bodies:
            seq += 1
            line, last = seal_line(seq, last, body, self._key)
            data += line
        return self._put(
            data, head, Head(head.generation, seq, head.size + len(data), closed, last)
        )

    def _put(self, data: bytes, head: Head, after: Head) -> Head:
        """Writes `data` at the end and then the record of `after`; both or, on OSError, neither."""
        try:
            written = os.write(self._log_fd, data)
            while written < len(data):  # the rest does not fit: this says why
                written += os.write(self._log_fd, data[written:])
            if self._fsync == "always":
                os.fdatasync(self._log_fd)
            return self._seal(after)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._log_fd, head.size)
            raise

    def _seal(self, head: Head) -> Head:
        record = head.seal(self._key)
        if record != self._record:
            os.pwrite(self._head_fd, record, 0)
        self._head, self._record = head, record
        return head

    def _make_room(self, wanted: int) -> None:
        """Closes a file that is full and begins the next one.

        Never where a file of that number is there already: then this one grows.
        """
        head = self._head
        if head.size + wanted <= self._max_bytes or head.size < _MIN_FILE_BYTES // 2:
            return
        if self._files.full(head.generation).exists():
            return
        closing = AuditClosed.of(_OUTSIDE, next=self._files.active.name)
        head = self._next_file(self._append((_ENCODER.encode(closing),), head, closed=True))
        self._open_log()
        self._append((_ENCODER.encode(self._opening(head)),), head)

    def _next_file(self, head: Head) -> Head:
        """Puts the closed file where full ones go. A writer that is killed here can be followed."""
        full = self._files.full(head.generation)
        if self._fsync != "none" and self._log_fd >= 0:
            os.fdatasync(self._log_fd)
        if not full.exists():
            with contextlib.suppress(FileNotFoundError):
                self._files.active.rename(full)
        return self._seal(Head(head.generation + 1, head.seq, 0, False, head.hash))

    def _opening(self, head: Head) -> AuditOpened:
        previous = self._files.full(head.generation - 1)
        return AuditOpened.of(
            _OUTSIDE,
            format=FORMAT,
            key_id=self._key.id,
            previous=previous.name if previous.exists() else "",
        )

    # --- files --------------------------------------------------------------------------------

    def _forget_parent(self) -> None:
        """After a fork: own descriptors, since a lock belongs to what both sides have open.

        Closing the inherited ones leaves the parent's lock alone; unlocking them would not.
        """
        self._close_files()
        self._start()

    def _open_log(self) -> None:
        """Opens the active file, unless what is open is what has that name now."""
        if self._log_fd >= 0 and not same_file(self._files.active, self._log_fd):
            os.close(self._log_fd)
            self._log_fd = -1
        if self._log_fd < 0:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            self._log_fd = open_private(self._files.active, flags)

    def _files_are_ours(self) -> bool:
        return (self._head_fd < 0 or same_file(self._files.head, self._head_fd)) and (
            self._log_fd < 0 or same_file(self._files.active, self._log_fd)
        )

    def _close_files(self) -> None:
        for descriptor in (self._log_fd, self._head_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._log_fd = self._head_fd = -1
        self._record = None

    def _duplicates(self) -> list[int]:
        """Descriptors for the syncing thread, which must not hold the lock while it syncs."""
        with self._lock:
            return [os.dup(fd) for fd in (self._log_fd, self._head_fd) if fd >= 0]


def _recovered(finding: Finding) -> AuditRecovered:
    if not finding.kind:
        raise ValueError("nothing to recover from")
    return AuditRecovered.of(
        _OUTSIDE,
        kind=finding.kind,
        bytes=finding.gap_bytes,
        sha256=finding.gap_sha256,
        first_seq=finding.first_lost,
        last_seq=finding.last_lost,
    )
