"""wasi:clocks: monotonic and wall time of the cell, and timers."""

from toolcell_wasi.cell import Cell
from toolcell_wasi.cell.clock import NANOSECONDS, RESOLUTION_NS
from toolcell_wasi.engine import HostFunction
from toolcell_wasi.engine.wit import U32, U64, Record
from toolcell_wasi.host.io import OWN_POLLABLE, Pollable, add_pollable

MAX_INSTANT_NS = 2**63
"""292 years: past any deadline, and still a number that a timeout can hold."""

DATETIME = Record({"seconds": U64, "nanoseconds": U32})


def _now(cell: Cell) -> int:
    return cell.clock.now_ns()


def _resolution(_cell: Cell) -> int:
    return RESOLUTION_NS


def _subscribe_instant(cell: Cell, instant_ns: int) -> int:
    return add_pollable(cell, Pollable(min(instant_ns, MAX_INSTANT_NS)))


def _subscribe_duration(cell: Cell, duration_ns: int) -> int:
    return _subscribe_instant(cell, cell.clock.now_ns() + duration_ns)


def _wall_now(cell: Cell) -> dict[str, int]:
    seconds, nanoseconds = divmod(cell.clock.wall_ns(), NANOSECONDS)
    return {"seconds": seconds, "nanoseconds": nanoseconds}


def _wall_resolution(_cell: Cell) -> dict[str, int]:
    return {"seconds": 0, "nanoseconds": RESOLUTION_NS}


INTERFACES = {
    "wasi:clocks/monotonic-clock": {
        "now": HostFunction(_now, (), U64),
        "resolution": HostFunction(_resolution, (), U64),
        "subscribe-instant": HostFunction(_subscribe_instant, (U64,), OWN_POLLABLE),
        "subscribe-duration": HostFunction(_subscribe_duration, (U64,), OWN_POLLABLE),
    },
    "wasi:clocks/wall-clock": {
        "now": HostFunction(_wall_now, (), DATETIME),
        "resolution": HostFunction(_wall_resolution, (), DATETIME),
    },
}
