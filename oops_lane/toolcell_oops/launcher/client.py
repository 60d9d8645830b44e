"""The running launcher: started once, spoken to by every call, missed at once when it dies.

Owns the process, the socket and the thread that reads it. Each cell has a mailbox of its own, so
calls do not wait for each other. Must never hold a lock while it waits for the launcher.
"""

import array
import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolcell.errors import InternalError, LaneUnavailable
from toolcell_oops.launcher.wire import (
    MAX_PACKET_BYTES,
    PROTOCOL,
    Event,
    Hello,
    decode_event,
    encode,
)

__all__ = ["CellHandle", "Launcher", "LauncherGone", "Waker"]

BUFFER_BYTES = 1024 * 1024
HELLO_TIMEOUT_S = 10.0
SEND_TIMEOUT_S = 10
"""A launcher that takes no plan for so long hangs: it counts as gone."""
EXIT_TIMEOUT_S = 10.0
"""How long a launcher may take to clean up once its socket is closed, before it is killed."""


class LauncherGone(Exception):
    """The launcher ended, or was ended, with cells under way. None of them lives any more."""


class Waker:
    """Wakes one waiting thread, from any other. `fd` is readable until `clear`."""

    __slots__ = ("_lock", "fd")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def wake(self) -> None:
        """Makes `fd` readable. Nothing happens once it is closed."""
        # The lock keeps a late call from writing to whatever has the number by then.
        with self._lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        """Makes `fd` unreadable again."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1


class CellHandle:
    """One cell: its mailbox, and what can be asked of it. `waker` is woken when something comes."""

    __slots__ = ("_events", "_launcher", "_waker", "gone", "id", "pidfd")

    def __init__(self, launcher: "Launcher", number: int, waker: Waker) -> None:
        self._launcher = launcher
        self._events: deque[Event] = deque()
        self._waker = waker
        self.id = number
        self.pidfd = -1
        self.gone = False

    def next_event(self) -> Event | None:
        """The next thing that the launcher said of this cell, or None. Never waits.

        Raises :class:`LauncherGone` where nothing will ever come.
        """
        if self._events:
            return self._events.popleft()
        if self.gone:
            raise LauncherGone("the launcher ended in the middle of the call")
        return None

    def kill(self, reason: str) -> None:
        """Ends the whole tree. The exit event follows. Not an error where it is over already."""
        with contextlib.suppress(LauncherGone):
            self._launcher.send({"op": "kill", "id": self.id, "reason": reason[:64]})
        if self.pidfd >= 0:
            # At once, without waiting for the launcher to get to it.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def put(self, event: Event) -> None:
        """Called by the reader."""
        self._events.append(event)
        self._waker.wake()

    def lose(self) -> None:
        """Called by the reader when the launcher is gone."""
        self.gone = True
        self._waker.wake()


class Launcher:
    """A launcher process. Thread-safe. `hello` is what it said of this machine."""

    def __init__(self, program: Path, arguments: Sequence[str] = (), **hello: Any) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        timeout = struct.pack("@ll", SEND_TIMEOUT_S, 0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        self._socket = ours
        self._cells: dict[int, CellHandle] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._alive = True
        try:
            self._process = _start(program, arguments, theirs)
        except OSError as error:
            ours.close()
            raise _unavailable(f"it could not be started: {error.strerror}") from None
        finally:
            theirs.close()
        try:
            self.hello = self._greet(hello)
        except BaseException:
            self._socket.close()
            self._reap()
            raise
        self._reader = threading.Thread(target=self._read, name="oops-launcher", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """Whether a plan can still be sent."""
        return self._alive

    @property
    def pid(self) -> int:
        """The launcher's process id."""
        return self._process.pid

    def spawn(
        self, plan: Mapping[str, Any], descriptors: Sequence[int], waker: Waker
    ) -> CellHandle:
        """Sends `plan`. What became of it comes to the handle's mailbox."""
        with self._lock:
            if not self._alive:
                raise LauncherGone("the launcher has ended")
            cell = CellHandle(self, next(self._numbers), waker)
            self._cells[cell.id] = cell
        try:
            self.send({"op": "spawn", "id": cell.id, **plan}, descriptors)
        except BaseException:
            self.forget(cell)
            raise
        return cell

    def forget(self, cell: CellHandle) -> None:
        """Takes the mailbox away. The cell must be over."""
        with self._lock:
            self._cells.pop(cell.id, None)
        if cell.pidfd >= 0:
            os.close(cell.pidfd)
            cell.pidfd = -1

    def send(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends one packet. Raises :class:`LauncherGone`."""
        packet = encode(request)
        if len(packet) > MAX_PACKET_BYTES:
            raise InternalError(f"a plan of {len(packet)} bytes; the limit is {MAX_PACKET_BYTES}")
        ancillary = []
        if descriptors:
            rights = array.array("i", descriptors)
            ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, rights))
        try:
            self._socket.sendmsg([packet], ancillary)
        except OSError:
            raise LauncherGone("the launcher has ended") from None

    def close(self) -> None:
        """Closes the socket: the launcher kills every cell, cleans up and leaves. Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(EXIT_TIMEOUT_S)
        self._socket.close()
        self._reap()

    def _reap(self) -> None:
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _greet(self, fields: Mapping[str, Any]) -> Hello:
        self._socket.settimeout(HELLO_TIMEOUT_S)
        try:
            self.send({"op": "hello", "protocol": PROTOCOL, **fields})
            event = self._receive()[0]
        except (OSError, LauncherGone, msgspec.MsgspecError) as error:
            raise _unavailable(f"it does not answer: {error}") from None
        finally:
            self._socket.settimeout(None)
        if not isinstance(event, Hello):
            raise _unavailable(f"it refused to start: {getattr(event, 'reason', event)}")
        return event

    def _receive(self) -> tuple[Event, int]:
        """The next event and its descriptor, or -1. Raises :class:`LauncherGone` at the end."""
        data, descriptors, flags, _ = socket.recv_fds(self._socket, MAX_PACKET_BYTES, 1)
        pidfd = descriptors[0] if descriptors else -1
        if not data or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            if pidfd >= 0:
                os.close(pidfd)
            raise LauncherGone("the launcher closed its socket")
        try:
            return decode_event(data), pidfd
        except msgspec.MsgspecError:
            if pidfd >= 0:
                os.close(pidfd)
            raise

    def _read(self) -> None:
        try:
            while True:
                self._deliver(*self._receive())
        except (OSError, LauncherGone, msgspec.MsgspecError):
            with self._lock:
                self._alive = False
                cells = list(self._cells.values())
            # A launcher that can't be understood is ended: it takes its cells with it.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            for cell in cells:
                cell.lose()

    def _deliver(self, event: Event, pidfd: int) -> None:
        # Under the lock, so that a cell can't be forgotten between the look and the hand-over.
        with self._lock:
            cell = self._cells.get(getattr(event, "id", None) or 0)
            if cell is not None:
                if pidfd >= 0:
                    cell.pidfd, pidfd = pidfd, -1
                cell.put(event)
        if pidfd >= 0:
            os.close(pidfd)


def _start(
    program: Path, arguments: Sequence[str], theirs: socket.socket
) -> "subprocess.Popen[bytes]":
    """Starts the launcher with `theirs`, no other descriptor and no environment."""
    number = theirs.fileno()
    return subprocess.Popen(  # noqa: S603 - our own program, arguments of our own making
        [str(program), "serve", "--fd", str(number), *arguments],
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(number,),
        # Its own group: a Ctrl-C at the terminal is the host's to handle.
        start_new_session=True,
    )


def _unavailable(why: str) -> LaneUnavailable:
    return LaneUnavailable(
        f"the launcher of the oops lane does not work: {why}",
        remedy="see `toolcell doctor`; build it again with cargo build --release in native/",
        details={"feature": "launcher"},
    )
