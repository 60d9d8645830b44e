"""The WASI 0.2 host: one module per WASI package, each function checked against the cell.

Owns what a guest may get from WASI. The modules mirror the WIT tree; each lists what it serves in
`INTERFACES`. What is not listed is a trap that names itself (`toolcell_wasi.imports`).
Source: the WIT of WASI 0.2.9 (github.com/WebAssembly/WASI, `wasip2/`).
"""

from collections.abc import Mapping

from toolcell_wasi.engine import HostFunction
from toolcell_wasi.host import cli, clocks, filesystem, io, random

SERVED: Mapping[str, Mapping[str, HostFunction]] = {
    **cli.INTERFACES,
    **clocks.INTERFACES,
    **filesystem.INTERFACES,
    **io.INTERFACES,
    **random.INTERFACES,
}
"""Interface without version -> function -> what serves it."""

__all__ = ["SERVED"]
