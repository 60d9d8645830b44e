"""wasi:cli: no environment, no arguments, no terminal, an empty input, captured outputs, exit."""

from typing import Any, NoReturn

from toolcell_wasi.cell import Cell
from toolcell_wasi.cell.handles import KINDS
from toolcell_wasi.cell.violations import GuestExit
from toolcell_wasi.engine import Err, HostFunction
from toolcell_wasi.engine.wit import STRING, U8, ListOf, Option, Own, Result, TupleOf
from toolcell_wasi.host.io import InputStream, OutputStream

OWN_INPUT = Own(KINDS["input-stream"])
OWN_OUTPUT = Own(KINDS["output-stream"])


def _nothing(_cell: Cell) -> list[Any]:
    return []


def _none(_cell: Cell) -> None:
    return None


def _stdin(cell: Cell) -> int:
    return cell.handles.add(InputStream())


def _stdout(cell: Cell) -> int:
    return cell.handles.add(OutputStream("stdout"))


def _stderr(cell: Cell) -> int:
    return cell.handles.add(OutputStream("stderr"))


def _exit(_cell: Cell, status: Any) -> NoReturn:
    raise GuestExit(1 if isinstance(status, Err) else 0)


def _exit_with_code(_cell: Cell, code: int) -> NoReturn:
    raise GuestExit(code)


_NO_INPUT_TERMINAL = HostFunction(_none, (), Option(Own(KINDS["terminal-input"])))
_NO_OUTPUT_TERMINAL = HostFunction(_none, (), Option(Own(KINDS["terminal-output"])))

INTERFACES = {
    "wasi:cli/environment": {
        "get-environment": HostFunction(_nothing, (), ListOf(TupleOf((STRING, STRING)))),
        "get-arguments": HostFunction(_nothing, (), ListOf(STRING)),
        "initial-cwd": HostFunction(_none, (), Option(STRING)),
    },
    "wasi:cli/exit": {
        "exit": HostFunction(_exit, (Result(),)),
        "exit-with-code": HostFunction(_exit_with_code, (U8,)),
    },
    "wasi:cli/stdin": {"get-stdin": HostFunction(_stdin, (), OWN_INPUT)},
    "wasi:cli/stdout": {"get-stdout": HostFunction(_stdout, (), OWN_OUTPUT)},
    "wasi:cli/stderr": {"get-stderr": HostFunction(_stderr, (), OWN_OUTPUT)},
    "wasi:cli/terminal-stdin": {"get-terminal-stdin": _NO_INPUT_TERMINAL},
    "wasi:cli/terminal-stdout": {"get-terminal-stdout": _NO_OUTPUT_TERMINAL},
    "wasi:cli/terminal-stderr": {"get-terminal-stderr": _NO_OUTPUT_TERMINAL},
}
