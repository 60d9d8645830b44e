"""Checks an audit log: is every line that was written still there, as it was written, in order?

Owns the walk and the words for what is wrong. Reads only, in one pass, in bounded memory. Used by
`toolcell audit verify` and by whoever keeps copies of logs.

What it can't see: a log *and* its head record that were both put back to an earlier state, and a
log of which nothing is left. Keep the last number and hash somewhere else (`anchor`) for that.
"""

import fcntl
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec import Struct

from toolcell.errors import ConfigError
from toolcell.events import AuditClosed, AuditOpened, AuditRecovered
from toolcell.telemetry.chain import (
    GENESIS,
    HEAD_BYTES,
    MAX_LINE_BYTES,
    ChainKey,
    Head,
    Line,
    parse_line,
)
from toolcell.telemetry.files import LogFiles, lock
from toolcell.telemetry.recovery import MAX_TORN_BYTES, is_torn, log_event

__all__ = ["Anchor", "Problem", "Report", "verify", "verify_log"]

_MAX_PROBLEMS = 100
_MAX_NOTES = 100
_LOCK_TIMEOUT_S = 5.0

_MEANING = {
    "malformed": "not a line that toolcell writes: it was changed, or somebody else wrote it",
    "altered": "a byte of the line is not what was written",
    "forged": "the hash was made anew without the key: the line was written or changed by somebody "
    "who does not have it, or the log was made with another key",
    "missing": "lines were taken out",
    "reordered": "lines were moved",
    "repeated": "a line was copied",
    "replaced": "the line before it is not the one that it was written after",
    "no-start": "a file begins with a line of the log's own: what stood before was taken out",
    "cut": "lines were taken off the end",
    "no-head": "without a head record that the key proves, lines that are taken off the end are "
    "not missed",
    "lost": "lines were taken off the end before toolcell opened the log again, or a power cut "
    "took them",
    "unproved": "somebody removed or changed the head record; lines may have been taken off the "
    "end before this one",
    "foreign": "somebody else wrote to the log; what he wrote is no part of it",
    "after-end": "somebody else wrote to the file after it was full",
    "anchor": "the log is not the one that the anchor was taken from, or it was put back to an "
    "earlier state",
}


class Anchor(NamedTuple):
    """A line that was noted down elsewhere: the log must still hold it."""

    seq: int
    hash: str


class Problem(Struct, kw_only=True):
    """One thing that is wrong. `line` counts from 1 in `file`; 0: the file as a whole."""

    file: str
    line: int
    kind: str
    message: str
    meaning: str


class Report(Struct, kw_only=True):
    """What came of it. `whole`: nothing is wrong. `authenticated`: checked with the key.

    `first_seq` to `last_seq` is what was seen; `last_hash` with `last_seq` is an anchor to keep.
    """

    whole: bool = True
    authenticated: bool = False
    files: int = 0
    lines: int = 0
    first_seq: int = 0
    last_seq: int = 0
    last_hash: str = GENESIS
    problems: list[Problem] = []
    notes: list[str] = []


def verify(files: Iterable[Path], key: bytes | None, *, anchor: Anchor | None = None) -> Report:
    """Checks `files`, which are one log or a run of it.

    Full files (`.000001`, …) are taken in the order of their numbers, the active one after them,
    all others as given. The last file's end is checked against the head record beside it. `key`
    None checks the hashes alone: that finds damage, but nobody who made all hashes anew.

    Raises :class:`ConfigError` for a file that can't be read.
    """
    walk = _Walk(ChainKey(key) if key is not None else None, anchor)
    ordered = sorted(files, key=_generation)
    for path in ordered:
        with _snapshot(path) as seen:
            walk.file(path, seen.file, seen.size)
            if path is ordered[-1]:
                walk.end(path, seen.record)
    return walk.finish()


def verify_log(path: Path, key: bytes | None, *, anchor: Anchor | None = None) -> Report:
    """Checks the whole log at `path` with every full file that is there, as :func:`verify` does.

    An active file that is missing is a log whose end was cut off. Raises :class:`ConfigError`
    where there is nothing of a log at all.
    """
    walk = _Walk(ChainKey(key) if key is not None else None, anchor)
    with _snapshot(path, may_be_missing=True) as seen:
        if seen.file is None and seen.record is None and not seen.full:
            raise ConfigError("there is no audit log yet", remedy="run a tool, or name a file")
        for full in seen.full:
            with _snapshot(full) as each:
                walk.file(full, each.file, each.size)
        walk.file(path, seen.file, seen.size)
        walk.end(path, seen.record)
    return walk.finish()


def _generation(path: Path) -> int:
    match = re.search(r"\.([0-9]{6,8})$", path.name)
    return int(match[1]) if match is not None else sys.maxsize


class _Snapshot(NamedTuple):
    """A file at one moment, between the lines of writers that are at work."""

    file: BinaryIO | None
    size: int
    record: bytes | None
    full: list[Path]


@contextmanager
def _snapshot(path: Path, *, may_be_missing: bool = False) -> Iterator[_Snapshot]:
    files = LogFiles(path)
    try:
        with ExitStack() as stack:
            record = file = None
            with ExitStack() as locked:
                if files.head.exists():
                    head_file = locked.enter_context(files.head.open("rb"))
                    lock(head_file.fileno(), fcntl.LOCK_SH, timeout_s=_LOCK_TIMEOUT_S)
                    record = head_file.read(HEAD_BYTES + 1)
                full = [each for _, each in files.all_full()]
                if path.exists() or not may_be_missing:
                    file = stack.enter_context(path.open("rb"))
                size = os.fstat(file.fileno()).st_size if file is not None else 0
            yield _Snapshot(file, size, record, full)
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read: {error.strerror or error}",
            remedy="name an audit log that you may read",
        ) from error


def _lines(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first} to {last}"


class _Gap:
    """Bytes that are no good line, from `offset` on, until one comes that explains them."""

    def __init__(self, offset: int, line: int, problem: int) -> None:
        self.offset = offset
        self.line = line
        self.problem = problem
        self.kept = b""
        self.digest = hashlib.sha256()

    def add(self, data: bytes) -> None:
        self.digest.update(data)
        if len(self.kept) <= MAX_TORN_BYTES:
            self.kept += data


class _Walk:
    """The state of one check: what the next line has to be."""

    def __init__(self, key: ChainKey | None, anchor: Anchor | None) -> None:
        self.report = Report(authenticated=key is not None)
        self._key = key
        self._anchor = anchor
        self._anchor_seen = False
        self._run_start = 0
        self._closed = False
        self._at = ""
        self._line = 0
        self._offset = 0
        self._gap: _Gap | None = None
        self._missing: tuple[range, Problem] | None = None

    def file(self, path: Path, file: BinaryIO | None, size: int) -> None:
        """Walks through the first `size` bytes of one file. None: a file that is missing."""
        self._at, self._line, self._offset, self._closed = path.name, 0, 0, False
        self._gap = None
        if file is None:
            return
        self.report.files += 1
        while self._offset < size:
            data = file.readline(min(MAX_LINE_BYTES + 1, size - self._offset))
            if not data:
                break
            self._line += 1
            self._take(data)
            self._offset += len(data)

    def end(self, path: Path, record: bytes | None) -> None:
        """Checks the end of the last file against the head record."""
        report = self.report
        if record is None and self._closed:
            self._note("the log goes on after this full file, in another one")
            return
        if record is None:
            self._problem("no-head", f"there is no {LogFiles(path).head.name} beside it", line=0)
            return
        head = Head.parse(record, self._key)
        if head is None:
            self._problem("no-head", f"{LogFiles(path).head.name} is damaged", line=0)
            return
        unfinished = self._gap is not None and is_torn(
            self._gap.kept, report.last_seq + 1, report.last_hash, self._key
        )
        if self._gap is not None and unfinished:
            del report.problems[self._gap.problem :]
        if head.seq > report.last_seq:
            gone = _lines(report.last_seq + 1, head.seq)
            verb = (
                "was written and is" if head.seq == report.last_seq + 1 else "were written and are"
            )
            message = f"{gone} {verb} not there"
            self._problem("cut", message, line=self._line + (not unfinished))
        elif head.seq == report.last_seq and head.hash != report.last_hash:
            self._problem("replaced", "the last line is not the one that was written last")
        elif unfinished:
            self._note(
                "the file ends with an unfinished line: its writer was killed, and the call that "
                "it belonged to did not go on. The next writer seals it."
            )
        elif head.seq < report.last_seq:
            self._note(
                f"{_lines(head.seq + 1, report.last_seq)} came after the last head record, since "
                "its writer was killed; nothing is wrong with what it wrote"
            )

    def finish(self) -> Report:
        """The report, with the anchor looked at."""
        report = self.report
        if self._anchor is not None and not self._anchor_seen:
            self._problem("anchor", f"line {self._anchor.seq} is not there as it was noted", line=0)
        report.whole = not report.problems
        return report

    def _take(self, data: bytes) -> None:
        line = parse_line(data[:-1]) if data.endswith(b"\n") else None
        fault = "malformed" if line is None else line.fault(self._key)
        if line is None or fault:
            self._bad(data, line, fault)
            return
        event = log_event(line)
        if self._gap is None or self._explained(event):
            self._link(line, event)
        if isinstance(event, AuditRecovered):
            self._recovered(event)
        self._gap = None
        self._accept(line, event)

    def _bad(self, data: bytes, line: Line | None, fault: str) -> None:
        if self._gap is None:
            self._gap = _Gap(self._offset, self._line, len(self.report.problems))
            what = (
                "is not a line of an audit log" if line is None else f"(line {line.seq}) is {fault}"
            )
            self._problem(fault, what)
        self._gap.add(data)

    def _explained(self, event: object) -> bool:
        """Whether `event` is the recovery that accounts for the gap before it, to the byte."""
        gap = self._gap
        return (
            gap is not None
            and isinstance(event, AuditRecovered)
            and event.bytes == self._offset - gap.offset
            and event.sha256 == gap.digest.hexdigest()
        )

    def _link(self, line: Line, event: object) -> None:
        """Checks that `line` is the one that comes next."""
        report = self.report
        if self._line == 1 and not isinstance(event, AuditOpened):
            self._problem("no-start", f"begins with line {line.seq}, which does not open a file")
        if self._closed:
            self._problem("after-end", f"(line {line.seq}) comes after the line that closes a file")
        if not report.lines:
            self._first(line, event)
            return
        expected = report.last_seq + 1
        if line.seq > expected:
            gone = range(expected, line.seq)
            message = f"is line {line.seq}: {_lines(expected, gone[-1])} should come before it"
            problem = self._problem("missing", message)
            self._missing = (gone, problem) if problem else None
        elif line.seq < expected:
            self._backward(line)
        elif line.prev != report.last_hash:
            self._problem("replaced", f"(line {line.seq}) was not written after the line before it")

    def _first(self, line: Line, event: object) -> None:
        if line.seq > 1:
            before = event.previous if isinstance(event, AuditOpened) else ""
            self._note(f"begins with line {line.seq}; what came before is in {before or 'no file'}")
        elif line.prev != GENESIS:
            self._problem("replaced", "is line 1, and says that another one came before it")
        self._run_start = line.seq

    def _backward(self, line: Line) -> None:
        if self._missing is not None and line.seq in self._missing[0]:
            problem = self._missing[1]
            problem.kind, problem.meaning = "reordered", _MEANING["reordered"]
            problem.message += f"; line {line.seq} was found further down, at {self._line}"
            return
        kind = "repeated" if line.hash == self.report.last_hash else "reordered"
        self._problem(kind, f"is line {line.seq}, after line {self.report.last_seq}")

    def _accept(self, line: Line, event: object) -> None:
        report = self.report
        report.first_seq = report.first_seq or line.seq
        report.lines += 1
        report.last_seq, report.last_hash = line.seq, line.hash
        if self._anchor is not None and line.seq == self._anchor.seq:
            self._anchor_seen = line.hash == self._anchor.hash
        self._closed = isinstance(event, AuditClosed)

    def _recovered(self, event: AuditRecovered) -> None:
        """What a recovery line means: the log found something, and said so when it found it."""
        gap = self._gap
        explained = self._explained(event)
        if gap is None and event.bytes:
            self._problem("altered", f"tells of {event.bytes} bytes before it that are gone")
        if gap is not None and explained and event.kind != "foreign":
            del self.report.problems[gap.problem :]
        if event.kind == "torn":
            if explained:
                self._note(
                    f"before this line stand {event.bytes} bytes of a line whose writer was "
                    "killed; the call that it belonged to did not go on"
                )
        elif event.kind == "lost":
            if self._run_start <= event.last_seq <= self.report.last_seq:
                self._note("here the log went on after the file before it was moved away")
            else:
                self._problem("lost", f"says that the lines up to {event.last_seq} were gone")
        elif gap is None or event.kind == "unproved":
            self._problem(event.kind, "is where toolcell found that out")

    def _problem(self, kind: str, message: str, *, line: int | None = None) -> Problem | None:
        if len(self.report.problems) >= _MAX_PROBLEMS:
            return None
        problem = Problem(
            file=self._at,
            line=self._line if line is None else line,
            kind=kind,
            message=message,
            meaning=_MEANING[kind],
        )
        self.report.problems.append(problem)
        return problem

    def _note(self, text: str) -> None:
        if len(self.report.notes) < _MAX_NOTES:
            self.report.notes.append(f"{self._at}:{self._line}: {text}")
