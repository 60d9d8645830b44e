"""`log.emit`: a tool's log lines, under a rate and a cap.

Owns the lines of one invocation. A line over the rate or the cap is dropped, and a marker says so:
a fault would make what a tool does depend on how fast the machine is. Text is made harmless for a
terminal and for a line-based log before it is kept.
"""

import time

from toolcell.broker.call import BrokerUsage, Call
from toolcell.broker.interface import LogEmit, LogLine
from toolcell.session import Session

__all__ = ["LogCapability", "TokenBucket", "neutralised"]

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROLS |= {0x09: "\t", 0x0A: "\\n", 0x0D: "\\r"}
# Line separators and the bidirectional controls, which reorder what a reader sees
# (CVE-2021-42574), in the ranges of Unicode 15 section 23.2.
_CONTROLS |= {
    code: f"\\u{code:04x}"
    for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}


def neutralised(text: str) -> str:
    """`text` on one line, with control and direction-changing characters written out."""
    if text.isascii() and text.isprintable():
        return text
    return text.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)


class TokenBucket:
    """At most `rate` per second, and `rate` at once. A rate of 0 lets nothing through."""

    __slots__ = ("_filled_s", "_rate", "_tokens")

    def __init__(self, rate: int, now_s: float) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._filled_s = now_s

    def take(self, now_s: float) -> bool:
        """Takes one token, where there is one."""
        filled = self._tokens + (now_s - self._filled_s) * self._rate
        self._tokens = min(float(self._rate), filled)
        self._filled_s = now_s
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class LogCapability:
    """The log of one invocation. Markers are not counted against the cap; there are few of them."""

    def __init__(self, session: Session, usage: BrokerUsage) -> None:
        self._session = session
        self._usage = usage
        self._bucket = TokenBucket(session.envelope.log_rate, time.monotonic())
        self._bytes_left = session.envelope.max_log_bytes
        self._dropped_in_a_row = 0
        self._full = False
        self.lines: list[LogLine] = []

    def emit(self, _call: Call, params: LogEmit) -> None:
        """Keeps the line, cuts it at the cap, or drops it."""
        if self._full or not self._bucket.take(time.monotonic()):
            self._drop(params.message)
            return
        self._mark_gap()
        message = neutralised(params.message)
        raw = message.encode()
        if len(raw) > self._bytes_left:
            message = self._cut(raw)
        self._bytes_left = max(0, self._bytes_left - len(raw))
        self._keep(params.level, message)

    def close(self) -> None:
        """Says how many lines were dropped at the end, where any were."""
        self._mark_gap()

    def _cut(self, raw: bytes) -> str:
        cap = self._session.envelope.max_log_bytes
        kept = raw[: self._bytes_left].decode("utf-8", "ignore")
        cut = len(raw) - len(kept.encode())
        self._full = True
        self._usage.log_bytes_dropped += cut
        return f"{kept}… [truncated: {cut} bytes over max_log_bytes, which is {cap}]"

    def _drop(self, message: str) -> None:
        self._dropped_in_a_row += 1
        self._usage.log_lines_dropped += 1
        self._usage.log_bytes_dropped += len(message)

    def _mark_gap(self) -> None:
        count, self._dropped_in_a_row = self._dropped_in_a_row, 0
        if not count:
            return
        envelope = self._session.envelope
        limit = (
            f"max_log_bytes, which is {envelope.max_log_bytes}"
            if self._full
            else f"log_rate, which is {envelope.log_rate} lines/s"
        )
        self._keep("warning", f"[{count} lines dropped: over {limit}]")

    def _keep(self, level: str, message: str) -> None:
        at_ms = round(self._session.deadline.elapsed_ms(), 3)
        self.lines.append(LogLine(at_ms=at_ms, level=level, message=message))  # type: ignore[arg-type]
