"""wasi:io: poll, streams, error.

A cell has three streams, an empty input and two captured outputs, and one kind of thing to wait
for, a timer. All else is ready at once. Nothing here allocates by a size that a guest names.
"""

from dataclasses import dataclass
from typing import Any

from toolcell.guest_output import StreamName
from toolcell_wasi.cell import Cell
from toolcell_wasi.cell.handles import KINDS
from toolcell_wasi.cell.violations import GuestViolation
from toolcell_wasi.engine import Err, HostFunction
from toolcell_wasi.engine.wit import (
    BOOL,
    BORROW,
    BYTES,
    STRING,
    U32,
    U64,
    ListOf,
    Own,
    Result,
    Variant,
)

WRITE_PERMIT_BYTES = 4096
"""What one write may have: the limit that `blocking-write-and-flush` has in the WIT itself. A
`list<u8>` costs wasmtime 32 bytes a byte, so a permit is kept small."""

OWN_POLLABLE = Own(KINDS["pollable"])
STREAM_ERROR = Variant({"last-operation-failed": Own(KINDS["error"]), "closed": None})
CLOSED = Err(("closed", None))


@dataclass(frozen=True, slots=True)
class Pollable:
    """Ready at `instant_ns` of the cell's clock; None is ready always."""

    instant_ns: int | None = None

    def ready(self, cell: Cell) -> bool:
        """Whether waiting for it would return at once."""
        return self.instant_ns is None or self.instant_ns <= cell.clock.now_ns()


class InputStream:
    """Standard input: at its end from the start."""


@dataclass(frozen=True, slots=True)
class OutputStream:
    """One of the two captured streams."""

    name: StreamName


def add_pollable(cell: Cell, pollable: Pollable) -> int:
    """Puts `pollable` in the cell's handle table."""
    return cell.handles.add(pollable)


def _pollable_ready(cell: Cell, handle: int) -> bool:
    return cell.handles.get(handle, Pollable).ready(cell)


def _pollable_block(cell: Cell, handle: int) -> None:
    _poll(cell, [handle])


def _poll(cell: Cell, handles: list[int]) -> list[int]:
    """Indexes of those that are ready, after waiting for the first one."""
    if not handles:
        raise GuestViolation("wasi:io/poll was called with nothing to wait for")
    pollables = [cell.handles.get(handle, Pollable) for handle in handles]
    instants = [pollable.instant_ns for pollable in pollables]
    if None not in instants:
        cell.clock.sleep_until(min(instant for instant in instants if instant is not None))
    now_ns = cell.clock.now_ns()
    ready = [at for at, instant in enumerate(instants) if instant is None or instant <= now_ns]
    return ready or [instants.index(min(i for i in instants if i is not None))]


def _read(cell: Cell, handle: int, _length: int) -> Any:
    cell.handles.get(handle, InputStream)
    return CLOSED


def _subscribe_input(cell: Cell, handle: int) -> int:
    cell.handles.get(handle, InputStream)
    return add_pollable(cell, Pollable())


def _subscribe_output(cell: Cell, handle: int) -> int:
    cell.handles.get(handle, OutputStream)
    return add_pollable(cell, Pollable())


def _check_write(cell: Cell, handle: int) -> int:
    cell.handles.get(handle, OutputStream)
    return WRITE_PERMIT_BYTES


def _write(cell: Cell, handle: int, contents: bytes) -> None:
    cell.stdio.write(cell.handles.get(handle, OutputStream).name, bytes(contents))


def _write_zeroes(cell: Cell, handle: int, length: int) -> None:
    if length > WRITE_PERMIT_BYTES:
        raise GuestViolation(f"{length} zeroes are over the permit of {WRITE_PERMIT_BYTES}")
    _write(cell, handle, bytes(length))


def _flush(cell: Cell, handle: int) -> None:
    cell.handles.get(handle, OutputStream)


def _splice(cell: Cell, handle: int, source: int, _length: int) -> Any:
    cell.handles.get(handle, OutputStream)
    cell.handles.get(source, InputStream)
    return CLOSED


def _debug_string(_cell: Cell, _handle: int) -> str:
    return "no stream of this cell fails"


_WRITTEN = Result(None, STREAM_ERROR)
_COUNTED = Result(U64, STREAM_ERROR)
_READ = HostFunction(_read, (BORROW, U64), Result(BYTES, STREAM_ERROR))
_SKIP = HostFunction(_read, (BORROW, U64), _COUNTED)
_WRITE = HostFunction(_write, (BORROW, BYTES), _WRITTEN, max_bytes=WRITE_PERMIT_BYTES)
_WRITE_ZEROES = HostFunction(_write_zeroes, (BORROW, U64), _WRITTEN)
_FLUSH = HostFunction(_flush, (BORROW,), _WRITTEN)
_SPLICE = HostFunction(_splice, (BORROW, BORROW, U64), _COUNTED)

INTERFACES = {
    "wasi:io/error": {
        "[method]error.to-debug-string": HostFunction(_debug_string, (BORROW,), STRING),
    },
    "wasi:io/poll": {
        "[method]pollable.ready": HostFunction(_pollable_ready, (BORROW,), BOOL),
        "[method]pollable.block": HostFunction(_pollable_block, (BORROW,)),
        "poll": HostFunction(_poll, (ListOf(BORROW),), ListOf(U32)),
    },
    "wasi:io/streams": {
        "[method]input-stream.read": _READ,
        "[method]input-stream.blocking-read": _READ,
        "[method]input-stream.skip": _SKIP,
        "[method]input-stream.blocking-skip": _SKIP,
        "[method]input-stream.subscribe": HostFunction(_subscribe_input, (BORROW,), OWN_POLLABLE),
        "[method]output-stream.check-write": HostFunction(_check_write, (BORROW,), _COUNTED),
        "[method]output-stream.write": _WRITE,
        "[method]output-stream.blocking-write-and-flush": _WRITE,
        "[method]output-stream.flush": _FLUSH,
        "[method]output-stream.blocking-flush": _FLUSH,
        "[method]output-stream.subscribe": HostFunction(_subscribe_output, (BORROW,), OWN_POLLABLE),
        "[method]output-stream.write-zeroes": _WRITE_ZEROES,
        "[method]output-stream.blocking-write-zeroes-and-flush": _WRITE_ZEROES,
        "[method]output-stream.splice": _SPLICE,
        "[method]output-stream.blocking-splice": _SPLICE,
    },
}
