"""One connection, to one address that was checked, under one deadline and byte caps.

Owns the socket. It is dialled by number, so that nothing looks the name up a second time between
check and use. Every read and write gets what is left of the call's deadline, so a peer that sends
a byte now and then gains nothing; and a cancellation shuts the socket whatever it is doing.
"""

import contextlib
import io
import socket
import threading
from collections.abc import Sequence
from typing import Any

from toolcell.broker.call import Call, Refusal
from toolcell.errors import Status

__all__ = ["TimedSocket", "Wire"]

_READ_AHEAD = 8192
_WRITE_PIECE = 16 * 1024  # one TLS record: each piece gets a deadline of its own
_ENDED_EARLY = "the connection was shut while it was dialled"


class Wire:
    """Dials, and can be aborted from another thread. Used for one request; never kept."""

    def __init__(self, call: Call, max_head_bytes: int) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._guard: socket.socket | None = None
        self._aborted = False
        self._head_left: int | None = max_head_bytes + _READ_AHEAD
        self._max_head_bytes = max_head_bytes
        self.peer: str = ""

    def dial(self, addresses: Sequence[str], port: int) -> socket.socket:
        """A socket to the first of `addresses` that answers, each given its share of the time."""
        for left in range(len(addresses), 0, -1):
            address = addresses[-left]
            share_s = self._call.remaining_s() / left
            try:
                return self._connect(address, port, share_s)
            except OSError:
                self._call.remaining_s()
                if left == 1:
                    raise
        raise OSError("no address to dial")

    def _connect(self, address: str, port: int, timeout_s: float) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._watch(connection)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(timeout_s)
            connection.connect((address, port))
            # What follows in urllib3 (the TLS handshake) takes its timeout from the socket.
            connection.settimeout(self._call.remaining_s())
        except BaseException:
            connection.close()
            raise
        self.peer = address
        return connection

    def _watch(self, connection: socket.socket) -> None:
        """Keeps a second descriptor: TLS takes the first one over, and `abort` must reach both."""
        guard = connection.dup()
        with self._lock:
            previous, self._guard = self._guard, guard
            aborted = self._aborted
        if previous is not None:
            previous.close()
        if aborted:
            raise ConnectionAbortedError(_ENDED_EARLY)

    def abort(self) -> None:
        """Shuts the connection; whoever waits on it wakes up. Never blocks."""
        with self._lock:
            self._aborted = True
            if self._guard is not None:
                with contextlib.suppress(OSError):
                    self._guard.shutdown(socket.SHUT_RDWR)

    def head_is_read(self) -> None:
        """From now on bytes count as body."""
        self._head_left = None

    def close(self) -> None:
        """Gives the second descriptor back. The connection itself is the caller's to close."""
        with self._lock:
            guard, self._guard = self._guard, None
        if guard is not None:
            guard.close()

    # --- what a socket that this wire times asks and tells ---

    def remaining_s(self) -> float:
        """Seconds that a read or a write may take."""
        return self._call.remaining_s()

    def sending(self, size: int) -> None:
        """Counts `size` bytes against the quota."""
        self._call.charge(size)

    def received(self, size: int) -> None:
        """Counts `size` bytes; raises where the head is too long or the quota is used up."""
        if self._head_left is not None:
            self._head_left -= size
            if self._head_left < 0:
                raise Refusal(
                    "max_header_bytes",
                    f"the server's headers are over {self._max_head_bytes} bytes "
                    "(`max_header_bytes`)",
                    status=Status.TOO_LARGE,
                )
        self._call.charge(size)


class TimedSocket:
    """As much of a socket as `http.client` uses, with the wire's deadline on every operation."""

    def __init__(self, inner: Any, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    def sendall(self, data: Any) -> None:
        """Sends `data` piece by piece."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _WRITE_PIECE):
            piece = view[start : start + _WRITE_PIECE]
            self._wire.sending(len(piece))
            self._inner.settimeout(self._wire.remaining_s())
            self._inner.sendall(piece)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """A reader over the connection. The connection stays open when it is closed."""
        return _LineReader(_TimedReader(self._inner, self._wire), _READ_AHEAD)

    def settimeout(self, _timeout_s: float | None) -> None:
        """Not taken: the wire's deadline is the only one."""

    def close(self) -> None:
        """Not taken: a response is still read after its connection object lets go."""


class _LineReader(io.BufferedReader):
    """Refuses a line with a bare CR or a NUL: one reader ends a header there, another does not."""

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(-1 if size is None else size)
        if b"\r" in line.removesuffix(b"\r\n") or b"\0" in line:
            raise Refusal(
                "response", "the server's lines are not well formed", status=Status.UPSTREAM
            )
        return line


class _TimedReader(io.RawIOBase):
    """Reads from the connection, each time with what is left of the deadline."""

    def __init__(self, inner: Any, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._inner.settimeout(self._wire.remaining_s())
        size = int(self._inner.recv_into(buffer))
        self._wire.received(size)
        return size
