"""wasi:random: secure, insecure and seed, all from the cell's one source."""

from toolcell_wasi.cell import Cell
from toolcell_wasi.cell.violations import GuestViolation
from toolcell_wasi.engine import HostFunction
from toolcell_wasi.engine.wit import BYTES, U64, TupleOf

MAX_RANDOM_BYTES = 64 * 1024
"""In one call. A `list<u8>` costs wasmtime 32 bytes a byte, and the guest names the length."""


def _bytes(cell: Cell, length: int) -> bytes:
    if length > MAX_RANDOM_BYTES:
        raise GuestViolation(f"{length} random bytes in one call; the limit is {MAX_RANDOM_BYTES}")
    return cell.entropy.read(length)


def _u64(cell: Cell) -> int:
    return int.from_bytes(cell.entropy.read(8), "little")


def _seed(cell: Cell) -> tuple[int, int]:
    return _u64(cell), _u64(cell)


_BYTES = HostFunction(_bytes, (U64,), BYTES)
_U64 = HostFunction(_u64, (), U64)

INTERFACES = {
    "wasi:random/random": {"get-random-bytes": _BYTES, "get-random-u64": _U64},
    "wasi:random/insecure": {
        "get-insecure-random-bytes": _BYTES,
        "get-insecure-random-u64": _U64,
    },
    "wasi:random/insecure-seed": {
        "insecure-seed": HostFunction(_seed, (), TupleOf((U64, U64))),
        "get-insecure-seed": HostFunction(_seed, (), TupleOf((U64, U64))),
    },
}
