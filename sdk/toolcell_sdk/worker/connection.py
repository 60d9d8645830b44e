"""Messages over the socket: one JSON text per line, UTF-8.

Owns the framing and its bounds, and nothing of what a message means. Used by `serve.py`.
"""

import json
import socket
from typing import Any

__all__ = ["Connection", "ConnectionLost", "MessageTooLarge"]

CHUNK_BYTES = 256 * 1024


class ConnectionLost(Exception):
    """The host is gone, or sent what is no message. There is nobody left to tell."""


class MessageTooLarge(Exception):
    """A message of our own that the host would not take. Nothing was sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a message of {size} bytes; max_message_bytes is {limit}")


class Connection:
    """Sends and receives whole messages. `max_bytes` bounds what is sent, the newline included;
    the host says it in its first message.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._rest = bytearray()
        self.max_bytes = 64 * 1024

    def send(self, message: dict[str, Any]) -> None:
        """Sends `message`. Raises :class:`MessageTooLarge` or :class:`ConnectionLost`."""
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        self.send_line(text.encode() + b"\n")

    def send_line(self, line: bytes) -> None:
        """Sends a message that is encoded already, its newline included."""
        if len(line) > self.max_bytes:
            raise MessageTooLarge(len(line), self.max_bytes)
        try:
            self._link.sendall(line)
        except OSError as error:
            raise ConnectionLost(str(error)) from None

    def receive(self) -> dict[str, Any]:
        """Waits for the next message. Raises :class:`ConnectionLost`."""
        seen = 0
        while (end := self._rest.find(b"\n", seen)) < 0:
            seen = len(self._rest)
            try:
                data = self._link.recv(CHUNK_BYTES)
            except OSError as error:
                raise ConnectionLost(str(error)) from None
            if not data:
                raise ConnectionLost("the host closed the connection")
            self._rest += data
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConnectionLost(str(error)) from None
        if not isinstance(message, dict):
            raise ConnectionLost("a message that is no object")
        return message
