"""What a guest says, on its way to the host: captured stdout and stderr, and text made printable.

Owns the caps: bytes kept, lines per second kept, bytes taken in at all. Nothing of it goes to the
host's own streams. What was dropped is counted and marked; the end of stderr is always kept,
because there a guest that aborts says why. Used by every lane.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, Protocol

from toolcell.errors import LimitExceeded
from toolcell.policy.envelope import PolicyEnvelope

__all__ = ["TAIL_BYTES", "Capture", "StreamName", "clean_text"]

NANOSECONDS = 1_000_000_000
TAIL_BYTES = 4096
"""The last bytes of a stream that are remembered for the message of a fault."""

StreamName = Literal["stdout", "stderr"]

# C0 and C1 controls but tab and newline, further line breaks, and the marks that reorder what a
# terminal shows: the set of `toolcell.broker.log`.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def clean_text(text: str, max_chars: int) -> str:
    """The end of `text`, at most `max_chars` (2 or more), without control characters but tab and
    newline.
    """
    cut = text if len(text) <= max_chars else "…" + text[1 - max_chars :]
    return _UNPRINTABLE.sub("", cut)


class Clock(Protocol):
    """Monotonic time of a cell."""

    def now_ns(self) -> int:
        """Nanoseconds since the cell's own start."""


@dataclass(slots=True)
class _Stream:
    kept: bytearray = field(default_factory=bytearray)
    tail: bytes = b""
    dropped: int = 0
    at_line_start: bool = True
    cutting: bool = False


class Capture:
    """Both streams of one cell, under one budget.

    `max_log_bytes` bounds what is kept of both together, `log_rate` the lines per second of both
    (a bucket that starts with one second's worth). Over `max_output_bytes` written, kept or not,
    the guest is ended: :class:`LimitExceeded`. A limit of 0 keeps nothing.
    """

    def __init__(self, envelope: PolicyEnvelope, clock: Clock) -> None:
        self._max_written = envelope.max_output_bytes
        self._bytes_left = envelope.max_log_bytes
        self._rate = float(envelope.log_rate)
        self._tokens = self._rate
        self._refilled_ns = 0
        self._clock = clock
        self._streams: dict[StreamName, _Stream] = {"stdout": _Stream(), "stderr": _Stream()}
        self.written = 0

    @property
    def dropped(self) -> int:
        """Bytes of both streams that were written and not kept."""
        return sum(stream.dropped for stream in self._streams.values())

    def write(self, name: StreamName, data: bytes) -> None:
        """Takes in `data`. Raises :class:`LimitExceeded` over `max_output_bytes`."""
        self.written += len(data)
        if self.written > self._max_written:
            raise LimitExceeded(
                "max_output_bytes",
                allowed=self._max_written,
                used=self.written,
                message=f"the tool wrote {self.written} bytes to stdout and stderr; "
                f"max_output_bytes is {self._max_written}",
            )
        stream = self._streams[name]
        stream.tail = (stream.tail + data)[-TAIL_BYTES:]
        if not self._bytes_left:
            stream.dropped += len(data)
            return
        for line in data.splitlines(keepends=True):
            self._keep(stream, line)

    def _keep(self, stream: _Stream, piece: bytes) -> None:
        """Keeps a line, or the piece of one that was written so far."""
        if stream.at_line_start:
            # A line that found no token is dropped whole, in however many pieces it comes.
            stream.cutting = not self._take_token()
        stream.at_line_start = piece.endswith(b"\n")
        room = 0 if stream.cutting else min(len(piece), self._bytes_left)
        stream.kept += piece[:room]
        self._bytes_left -= room
        stream.dropped += len(piece) - room

    def _take_token(self) -> bool:
        if self._tokens < 1:
            now_ns = self._clock.now_ns()
            gained = (now_ns - self._refilled_ns) / NANOSECONDS * self._rate
            self._tokens = min(self._rate, self._tokens + gained)
            self._refilled_ns = now_ns
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def text(self, name: StreamName) -> str:
        """What was kept, with a marker at the end where something was dropped."""
        stream = self._streams[name]
        text = stream.kept.decode("utf-8", "replace")
        if stream.dropped:
            text += f"\n[{stream.dropped} bytes dropped: over max_log_bytes or log_rate]\n"
        return text

    def tail(self, name: StreamName) -> str:
        """The last bytes that were written, kept or not."""
        return self._streams[name].tail.decode("utf-8", "replace")
