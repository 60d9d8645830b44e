"""One run in one cell: the loop that moves its bytes and ends it in time.

Owns the descriptors of a run and the order: spawn, talk, end, reap. What is said is the
conversation's business, what is kept the capture's. When `run` returns, the whole process tree is
dead; it returns only after the launcher said so, whatever raised in between.
"""

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from toolcell.errors import InternalError, ToolcellError
from toolcell.session import Session
from toolcell_oops.faults import fault_of_failure
from toolcell_oops.launcher.client import CellHandle, Launcher, LauncherGone, Waker
from toolcell_oops.launcher.wire import Exited, Failed, Refused, Spawned
from toolcell_oops.rpc.message import LineBuffer

__all__ = ["Cell", "Streams", "Talk"]

CHUNK_BYTES = 64 * 1024
PIPE_BYTES = 1024 * 1024
GRACE_S = 0.1
"""For a worker to leave by itself after Shutdown."""
REAP_S = 20.0
"""For a kill to be confirmed. One of 200 processes takes some 10 ms."""
_IN = select.POLLIN | select.POLLHUP | select.POLLERR

Sink = Callable[[bytes], None]
"""Takes what the tool wrote. Raises what ends the run."""


class Talk:
    """What a cell's worker says: `take` gets each line and returns the answer. See `rpc`."""

    def __init__(
        self, first: bytes, take: Callable[[bytes], bytes], over: Callable[[], bool], limit: int
    ) -> None:
        self.first = first
        self.take = take
        self.over = over
        self.lines = LineBuffer(limit)


class Streams:
    """Where the standard streams of a cell lead. `stdin` is given whole, then closed."""

    def __init__(self, stdin: bytes | None, stdout: Sink, stderr: Sink) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr


class Cell:
    """One run. Used by one thread, once.

    After `run`: `spawned` and `exited` are what the launcher said, `error` is why the run was
    ended from this side, if it was. `on_spawned` is called as soon as the tool runs; what it raises
    ends the run.
    """

    def __init__(
        self, launcher: Launcher, session: Session, on_spawned: Callable[["Cell"], None]
    ) -> None:
        self._launcher = launcher
        self._on_spawned = on_spawned
        self._session = session
        self._waker = Waker()
        self._poll = select.poll()
        self._readers: dict[int, Callable[[bytes], None]] = {}
        self._pending: dict[int, bytearray] = {}
        self._closes: set[int] = set()
        self._handle: CellHandle | None = None
        self._talk: Talk | None = None
        self._talk_fd = -1
        self._leave_by: float | None = None
        self._killed_at: float | None = None
        self.spawned: Spawned | None = None
        self.exited: Exited | None = None
        self.error: ToolcellError | None = None

    # --- from start to end ---

    def run(self, plan: Mapping[str, Any], streams: Streams, talk: Talk | None = None) -> None:
        """Runs `plan` to its end. A failure of the tool, or of the set-up, is in `error`.

        Raises what is nobody's failure (`KeyboardInterrupt`), and :class:`LauncherGone`; the cell
        is gone then too.
        """
        try:
            self._start(plan, streams, talk)
            forget = self._session.cancel.on_cancel(self._waker.wake)
            try:
                while not self._is_over():
                    self._turn()
            finally:
                forget()
                self._end()
        finally:
            self._free()

    def _start(self, plan: Mapping[str, Any], streams: Streams, talk: Talk | None) -> None:
        with contextlib.ExitStack() as theirs:
            numbers = [
                self._input(streams.stdin, theirs),
                self._output(streams.stdout, theirs),
                self._output(streams.stderr, theirs),
            ]
            if talk is not None:
                numbers.append(self._connect(talk, theirs))
            self._poll.register(self._waker.fd, select.POLLIN)
            fds = list(range(len(numbers)))
            self._handle = self._launcher.spawn({**plan, "fds": fds}, numbers, self._waker)

    def _is_over(self) -> bool:
        return self.exited is not None or (self.spawned is None and self.error is not None)

    def _turn(self) -> None:
        """Waits for something to happen, and deals with it."""
        for fd, mask in self._poll.poll(self._patience_ms()):
            if fd == self._waker.fd:
                self._waker.clear()
            else:
                self._move(fd, mask)
        self._hear()
        if self.error is None and self.exited is None and self._leave_by is None:
            reason = self._session.stop_reason()
            if reason is not None:
                self._stop(reason)
        self._hurry()

    def _patience_ms(self) -> float:
        now = time.monotonic()
        until = [now + REAP_S if self.error is not None else self._session.deadline.at_s]
        if self._leave_by is not None:
            until.append(self._leave_by)
        # Up to the next millisecond, so that a deadline has passed when we look.
        return max(0.0, (min(until) - now) * 1000 + 1)

    def _hear(self) -> None:
        """Takes what the launcher has said."""
        while self._handle is not None and (event := self._handle.next_event()) is not None:
            match event:
                case Spawned():
                    self.spawned = event
                    try:
                        self._on_spawned(self)
                    except ToolcellError as error:
                        self._stop(error)
                case Exited():
                    self._drain()
                    self.exited = event
                case Failed() | Refused():
                    self.error = self.error or fault_of_failure(event)
                    # Also where it was to be stopped meanwhile: there is nothing to stop.
                    self.spawned = None
                    self._handle_over()

    def _handle_over(self) -> None:
        if self._handle is not None:
            self._launcher.forget(self._handle)
            self._handle = None

    def _stop(self, error: ToolcellError) -> None:
        """Ends the cell because of `error`, the first of which stays."""
        self.error = self.error or error
        self._kill(error.code)

    def _kill(self, reason: str) -> None:
        if self._killed_at is None and self._handle is not None:
            self._killed_at = time.monotonic()
            self._handle.kill(reason)

    def _hurry(self) -> None:
        """A worker that was told to leave and stays is ended; so is one that outlives its kill."""
        now = time.monotonic()
        if self._leave_by is not None and now >= self._leave_by and self.exited is None:
            self._leave_by = None
            self._kill("over")
        if self._killed_at is not None and now - self._killed_at > REAP_S:
            raise InternalError(f"a cell was killed and did not end within {REAP_S:g} s")

    def _end(self) -> None:
        """Waits until the tree is dead, where something else than its end brought us here."""
        if self._handle is None or self.exited is not None:
            return
        self._kill("abandoned")
        until = time.monotonic() + REAP_S
        while self.exited is None and self._handle is not None and time.monotonic() < until:
            select.select([self._waker.fd], [], [], 0.5)
            self._waker.clear()
            try:
                self._hear()
            except LauncherGone:
                return

    def _free(self) -> None:
        self._handle_over()
        for fd in {*self._readers, *self._pending}:
            os.close(fd)
        self._readers.clear()
        self._pending.clear()
        self._waker.close()

    # --- descriptors ---

    def _input(self, data: bytes | None, theirs: contextlib.ExitStack) -> int:
        """The cell's end of stdin."""
        if data is None:
            null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            theirs.callback(os.close, null)
            return null
        read, write = os.pipe2(os.O_CLOEXEC)
        theirs.callback(os.close, read)
        os.set_blocking(write, False)
        self._pending[write] = bytearray(data)
        self._closes.add(write)
        self._watch(write)
        return read

    def _output(self, sink: Sink, theirs: contextlib.ExitStack) -> int:
        """The cell's end of a stream that it writes."""
        read, write = os.pipe2(os.O_CLOEXEC)
        theirs.callback(os.close, write)
        os.set_blocking(read, False)
        self._readers[read] = sink
        self._watch(read)
        return write

    def _connect(self, talk: Talk, theirs: contextlib.ExitStack) -> int:
        """The cell's end of the socket."""
        ours, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        theirs.callback(others.close)
        ours.setblocking(False)
        self._talk = talk
        self._talk_fd = fd = ours.detach()
        self._readers[fd] = self._listen
        self._pending[fd] = bytearray(talk.first)
        self._watch(fd)
        return others.fileno()

    def _watch(self, fd: int) -> None:
        mask = select.POLLIN if fd in self._readers else 0
        if self._pending.get(fd) or fd in self._closes:
            mask |= select.POLLOUT
        self._poll.register(fd, mask)

    def _unwatch(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._readers.pop(fd, None)
        self._pending.pop(fd, None)
        self._closes.discard(fd)
        os.close(fd)
        if fd == self._talk_fd:
            self._talk_fd = -1
            self._let_leave()  # a worker that hung up has nothing more to say

    # --- bytes ---

    def _move(self, fd: int, mask: int) -> None:
        try:
            if mask & _IN and fd in self._readers:
                self._read(fd)
            if mask & (select.POLLOUT | select.POLLERR) and fd in self._pending:
                self._write(fd)
        except ToolcellError as error:
            if isinstance(error, InternalError):
                raise
            self._stop(error)

    def _read(self, fd: int) -> bool:
        """Reads once. False where there is nothing (more) to read."""
        try:
            data = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self._unwatch(fd)
            return False
        # Of a run that is being ended, nothing counts any more.
        if self.error is None:
            self._readers[fd](data)
        return True

    def _write(self, fd: int) -> None:
        pending = self._pending[fd]
        try:
            while pending:
                with memoryview(pending) as view:
                    sent = os.write(fd, view[:PIPE_BYTES])
                del pending[:sent]
        except BlockingIOError:
            self._watch(fd)  # the rest goes when there is room
            return
        except (BrokenPipeError, ConnectionResetError):
            # A tool need not read what it was given; one that talks to nobody will be seen to end.
            pending.clear()
        if fd in self._closes:
            self._unwatch(fd)
        else:
            self._watch(fd)

    def _listen(self, data: bytes) -> None:
        """Takes in what the worker sent, message by message."""
        talk = self._talk
        if talk is None or talk.over():
            return
        talk.lines.feed(data)
        while not talk.over() and (line := talk.lines.line()) is not None:
            answer = talk.take(line)
            if answer and self._talk_fd >= 0:
                self._pending[self._talk_fd] += answer
                self._write(self._talk_fd)
        if talk.over():
            self._let_leave()

    def _let_leave(self) -> None:
        if self._leave_by is None:
            self._leave_by = time.monotonic() + GRACE_S

    def _drain(self) -> None:
        """Reads what is left in the pipes of a cell that has ended."""
        for fd in list(self._readers):
            try:
                while fd in self._readers and self._read(fd):
                    pass
            except ToolcellError as error:
                if isinstance(error, InternalError):
                    raise
                self.error = self.error or error
