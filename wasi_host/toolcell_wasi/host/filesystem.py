"""wasi:filesystem: no preopened folder, hence no descriptor and nothing to open.

Only what a C library asks for at its start is served. Every function of a descriptor is a trap
that names itself: without a preopen no honest guest gets that far.
"""

from typing import Any

from toolcell_wasi.cell import Cell
from toolcell_wasi.cell.handles import KINDS
from toolcell_wasi.engine import HostFunction
from toolcell_wasi.engine.wit import STRING, ListOf, Own, TupleOf


def _no_directories(_cell: Cell) -> list[Any]:
    return []


INTERFACES = {
    "wasi:filesystem/preopens": {
        "get-directories": HostFunction(
            _no_directories, (), ListOf(TupleOf((Own(KINDS["descriptor"]), STRING)))
        ),
    },
}
