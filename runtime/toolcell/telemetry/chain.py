"""The audit log's format: how a line is sealed, and the head record that says where the log ends.

Owns the bytes, for the writer (`jsonl`), the recovery and the verifier. Never opens a file.

A line, in this one spelling (anything else is not a line of the log):

    {"seq":N,"prev":"HASH",<the event's own fields>,"hash":"HASH","mac":"MAC"}\\n

`hash` is SHA-256 over every byte of the line before `,"hash"`. That takes in `prev`, the hash of
the line before, so one hash stands for the whole log up to it, and anybody can check it. `mac` is
keyed BLAKE2b (RFC 7693, 128 bits) over `hash`: who has no key can't make a line, or close the
chain again after changing one.

The head record stands beside the log, has a fixed size, and is written in place with every line.
It says how many bytes and lines the log has and is sealed by the same key under another name, so
that lines which are cut from the end are missed.
"""

import hashlib
import hmac
import re
from typing import NamedTuple

__all__ = [
    "FORMAT",
    "GENESIS",
    "HEAD_BYTES",
    "LINE_OVERHEAD_BYTES",
    "MAX_LINE_BYTES",
    "ChainKey",
    "Head",
    "Line",
    "line_start",
    "parse_line",
    "seal_line",
]

FORMAT = 1
GENESIS = "0" * 64
"""`prev` of the very first line."""

MAX_LINE_BYTES = 65_536
"""A longer line is never written, and the verifier reads no further into one."""

_MAC_BYTES = 16
_HASH_MARK = b',"hash":"'
_MAC_MARK = b'","mac":"'
_TRAILER_BYTES = len(_HASH_MARK) + 64 + len(_MAC_MARK) + 2 * _MAC_BYTES + len(b'"}')
LINE_OVERHEAD_BYTES = len(b'{"seq":9999999999999999999,"prev":"",\n') + 64 + _TRAILER_BYTES

_LINE = re.compile(
    rb'\{"seq":([1-9][0-9]{0,18}),"prev":"([0-9a-f]{64})",("event":".+)'
    rb',"hash":"([0-9a-f]{64})","mac":"([0-9a-f]{32})"\}'
)
_HEAD = re.compile(
    rb"toolcell-audit-head 1 ([0-9]{8}) ([0-9]{20}) ([0-9]{20}) ([oc]) ([0-9a-f]{64}) "
    rb"([0-9a-f]{32})\n"
)


class ChainKey:
    """The key of one audit log, split by purpose (BLAKE2b's `person`).

    `id` names the key to people; it is a MAC of nothing and gives nothing away.
    """

    __slots__ = ("_head", "_line", "id")

    def __init__(self, key: bytes) -> None:
        if len(key) < _MAC_BYTES:
            raise ValueError(f"an audit key has at least {_MAC_BYTES} bytes, this one {len(key)}")
        self._line = _mac(key, b"toolcell-line")
        self._head = _mac(key, b"toolcell-head")
        self.id = _mac(key, b"toolcell-id").hexdigest()[:16]

    def line_mac(self, digest: bytes) -> bytes:
        """The `mac` of a line whose `hash` is `digest` (hex)."""
        mac = self._line.copy()
        mac.update(digest)
        return mac.hexdigest().encode()

    def head_mac(self, record: bytes) -> bytes:
        """The MAC (hex) of a head record's other fields."""
        mac = self._head.copy()
        mac.update(record)
        return mac.hexdigest().encode()


def _mac(key: bytes, person: bytes) -> "hashlib.blake2b":
    return hashlib.blake2b(key=key[:64], digest_size=_MAC_BYTES, person=person)


class Head(NamedTuple):
    """Where the log ends: file number, last line, bytes in that file, last hash.

    `seq` 0: no line yet. `closed`: the file is full and the next line goes into a new one.
    """

    generation: int = 1
    seq: int = 0
    size: int = 0
    closed: bool = False
    hash: str = GENESIS

    def seal(self, key: ChainKey) -> bytes:
        """The record, :data:`HEAD_BYTES` long."""
        record = b"toolcell-audit-head 1 %08d %020d %020d %b %b " % (
            self.generation,
            self.seq,
            self.size,
            b"c" if self.closed else b"o",
            self.hash.encode(),
        )
        return record + key.head_mac(record) + b"\n"

    @classmethod
    def parse(cls, record: bytes, key: ChainKey | None) -> "Head | None":
        """The head in `record`; None where it is damaged or not by `key`. Key None: unproved."""
        match = _HEAD.fullmatch(record)
        if match is None:
            return None
        if key is not None:
            expected = key.head_mac(record[: match.start(6)])
            if not hmac.compare_digest(expected, match[6]):
                return None
        return cls(int(match[1]), int(match[2]), int(match[3]), match[4] == b"c", match[5].decode())


HEAD_BYTES = len(Head().seal(ChainKey(bytes(32))))


class Line(NamedTuple):
    """A line in the right form. Whether it is genuine is for :meth:`fault` to say."""

    seq: int
    prev: str
    event: bytes
    hash: str
    mac: bytes
    computed_hash: str

    def fault(self, key: ChainKey | None) -> str:
        """`altered`, `forged` or, where nothing is wrong with the line by itself, empty."""
        if self.computed_hash != self.hash:
            return "altered"
        if key is None or hmac.compare_digest(key.line_mac(self.hash.encode()), self.mac):
            return ""
        return "forged"


def line_start(seq: int, prev: str) -> bytes:
    """How line `seq` begins when the hash before it is `prev`."""
    return b'{"seq":%d,"prev":"%b",' % (seq, prev.encode())


def seal_line(seq: int, prev: str, event: bytes, key: ChainKey) -> tuple[bytes, str]:
    """Line `seq` with its newline, and its hash. `event` is one JSON object, not empty."""
    start = line_start(seq, prev) + event[1:-1]
    digest = hashlib.sha256(start).hexdigest()
    encoded = digest.encode()
    line = b'%b,"hash":"%b","mac":"%b"}\n' % (start, encoded, key.line_mac(encoded))
    return line, digest


def parse_line(line: bytes) -> Line | None:
    """`line`, given without its newline, or None where it has not the form of one."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    return Line(
        seq=int(match[1]),
        prev=match[2].decode(),
        event=b"{" + match[3] + b"}",
        hash=match[4].decode(),
        mac=match[5],
        computed_hash=hashlib.sha256(line[:-_TRAILER_BYTES]).hexdigest(),
    )
