"""What a writer does about a log that is not as the head record says.

Owns the decision: which lines are good, where the chain goes on, and what the log has to say about
the rest. Reads only; the sink writes the line that comes of it. Nothing is ever taken out of the
log here: what is not a sealed line stays where it is, and the recovery line seals it by its hash.

Called by the sink, with the lock held, when the head record or the file is not as it left them.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from toolcell.errors import ConfigError
from toolcell.events import AuditClosed, AuditOpened, AuditRecovered
from toolcell.telemetry.chain import (
    GENESIS,
    MAX_LINE_BYTES,
    ChainKey,
    Head,
    Line,
    line_start,
    parse_line,
)
from toolcell.telemetry.files import LogFiles, open_private

__all__ = ["MAX_TORN_BYTES", "Finding", "LogEvent", "examine", "is_torn", "log_event", "rebuild"]

Kind = Literal["", "torn", "lost", "unproved", "foreign"]
LogEvent = AuditOpened | AuditClosed | AuditRecovered

_DECODER: msgspec.json.Decoder[LogEvent] = msgspec.json.Decoder(LogEvent)
_ANY = msgspec.json.Decoder(float_hook=float)  # msgspec's own takes 15 us for a `1e300`
_CHUNK_BYTES = 1 << 16
MAX_TORN_BYTES = 4 * MAX_LINE_BYTES
"""More than this is not what a killed writer, or a few in a row, leave behind."""


class Finding(NamedTuple):
    """Where the chain goes on, and what was found after its last good line.

    `head.size` takes in everything that is in the file. `gap_bytes` and `gap_sha256` are those of
    what is no line, with the newline that has to be written first where `needs_newline`.
    """

    head: Head
    kind: Kind = ""
    needs_newline: bool = False
    gap_bytes: int = 0
    gap_sha256: str = ""
    first_lost: int = 0
    last_lost: int = 0


def log_event(line: Line) -> LogEvent | None:
    """The log's own event in `line`, None where it holds somebody else's."""
    if not line.event.startswith(b'{"event":"audit.log.'):
        return None
    try:
        return _DECODER.decode(line.event)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # only ever without the key
        return None


def is_torn(gap: bytes, seq: int, prev: str, key: ChainKey | None) -> bool:
    """Whether `gap` is what a writer leaves that is killed while it writes line `seq`.

    That is one unfinished line. Where the writer that was to recover from it was killed in turn,
    there are several, each after a newline. Anything else was written by somebody else, and so
    was a line that is complete and not genuine.
    """
    if len(gap) > MAX_TORN_BYTES:
        return False
    start = line_start(seq, prev)
    for piece in gap.removesuffix(b"\n").split(b"\n"):
        if not piece or not (piece.startswith(start) or start.startswith(piece)):
            return False
        line = parse_line(piece)
        if line.fault(key) if line is not None else _is_json(piece):
            return False
    return True


def examine(descriptor: int, head: Head, key: ChainKey, *, doubtful: bool) -> Finding:
    """Looks at what the file holds after `head`, the last line that is known to be sealed.

    Lines that carry the chain on are taken over: their writer was killed before it could write
    the head record. `doubtful`: the head record could not be relied on.
    """
    size = os.fstat(descriptor).st_size
    if size < head.size:
        return _lost(descriptor, size, head, key)
    for line in _lines(descriptor, head.size):
        after = _after(line, head, key)
        if after is None:
            break
        head = after
    kind: Kind = "unproved" if doubtful else ""
    if head.size == size:
        return Finding(head, kind)
    if size - head.size <= MAX_LINE_BYTES:
        after = _after(os.pread(descriptor, size - head.size, head.size), head, key)
        if after is not None:  # killed when nothing but the newline was left to write
            return Finding(after._replace(size=size), kind, needs_newline=True)
    return _with_gap(descriptor, head, size, key, kind)


def rebuild(files: LogFiles, key: ChainKey) -> tuple[Head, bool]:
    """Where to start when there is no head record to rely on, and whether the log is a new one.

    Just before the first line of the active file or, where that is not there yet, after the last
    line of the newest full one. Raises :class:`ConfigError` for a log made with another key.
    """
    full = files.all_full()
    if files.active.exists() and files.active.stat().st_size:
        generation = full[-1][0] + 1 if full else 1
        return _first_line(files.active, key)._replace(generation=generation), False
    if not full:
        return Head(), True
    generation, path = full[-1]
    descriptor = open_private(path, os.O_RDONLY)
    try:
        start = _first_line(path, key)._replace(generation=generation)
        head = examine(descriptor, start, key, doubtful=True).head
    finally:
        os.close(descriptor)
    return head._replace(closed=True), False


def _is_json(piece: bytes) -> bool:
    """Whether `piece` is complete. The beginning of a line never is: its last brace is missing."""
    try:
        _ANY.decode(piece)
    except RecursionError:
        return True  # nested deeper than any event is
    except (msgspec.MsgspecError, ValueError):  # the latter for what is not UTF-8
        return False
    return True


def _after(text: bytes, head: Head, key: ChainKey) -> Head | None:
    """The chain after `text`, None where that is not the line that comes next."""
    line = parse_line(text)
    if line is None or line.seq != head.seq + 1 or line.prev != head.hash or line.fault(key):
        return None
    return head._replace(
        seq=line.seq,
        size=head.size + len(text) + 1,
        hash=line.hash,
        closed=isinstance(log_event(line), AuditClosed),
    )


def _with_gap(descriptor: int, head: Head, size: int, key: ChainKey, kind: Kind) -> Finding:
    """A finding for a file with something after `head` that is no line of the chain."""
    digest = hashlib.sha256()
    kept = b""
    offset = head.size
    last = b""
    while chunk := os.pread(descriptor, _CHUNK_BYTES, offset):
        digest.update(chunk)
        kept += chunk[: max(0, MAX_TORN_BYTES + 1 - len(kept))]
        offset += len(chunk)
        last = chunk[-1:]
    needs_newline = last != b"\n"
    if needs_newline:
        digest.update(b"\n")
    if not is_torn(kept, head.seq + 1, head.hash, key):
        kind = "foreign"
    return Finding(
        head._replace(size=size),
        kind or "torn",
        needs_newline=needs_newline,
        gap_bytes=size - head.size + needs_newline,
        gap_sha256=digest.hexdigest(),
    )


def _lost(descriptor: int, size: int, head: Head, key: ChainKey) -> Finding:
    """A finding for a file that is shorter than its head record says."""
    tail = os.pread(descriptor, MAX_LINE_BYTES + 1, max(0, size - MAX_LINE_BYTES - 1))
    first_lost = 0
    for piece in reversed(tail.split(b"\n")):
        line = parse_line(piece)
        if line is not None and not line.fault(key):
            first_lost = line.seq + 1
            break
    return Finding(
        head._replace(size=size, closed=False),
        "lost",
        needs_newline=bool(size) and not tail.endswith(b"\n"),
        first_lost=first_lost,
        last_lost=head.seq,
    )


def _first_line(path: Path, key: ChainKey) -> Head:
    """The chain just before the first line of the file at `path`."""
    with path.open("rb") as file:
        line = parse_line(file.readline(MAX_LINE_BYTES + 1).removesuffix(b"\n"))
    if line is None or line.fault(None):
        return Head()
    if line.fault(key):
        opened = log_event(line)
        if isinstance(opened, AuditOpened) and opened.key_id != key.id:
            raise ConfigError(
                f"the audit log was made with key {opened.key_id}, this one is {key.id}",
                remedy="put the old key back, or move the log away to begin a new one",
            )
        return Head()
    return Head(seq=line.seq - 1, hash=line.prev if line.seq > 1 else GENESIS)


def _lines(descriptor: int, offset: int) -> Iterator[bytes]:
    """Complete lines from `offset` on, without their newline.

    Ends at the first one that is longer than a line may be.
    """
    rest = b""
    while True:
        while (end := rest.find(b"\n")) >= 0:
            yield rest[:end]
            offset += end + 1
            rest = rest[end + 1 :]
        if len(rest) > MAX_LINE_BYTES:
            return
        chunk = os.pread(descriptor, _CHUNK_BYTES, offset + len(rest))
        if not chunk:
            return
        rest += chunk
