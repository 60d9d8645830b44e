"""Why a run ended, as an error of toolcell: the one place where engine failures are mapped.

Owns the sentence that the caller reads. Text that a guest wrote goes through `clean_text` and into
`guest_detail` or, one line of it, into the message; it never chooses the type of an error beyond
the status codes that a `fault` record may carry.
"""

import re
from typing import Any

from toolcell.errors import (
    InternalError,
    LaneUnavailable,
    LimitExceeded,
    Status,
    ToolcellError,
    ToolFault,
)
from toolcell.guest_output import clean_text
from toolcell_wasi.cell import Cell
from toolcell_wasi.cell.violations import ForbiddenImport, GuestExit, GuestViolation
from toolcell_wasi.engine import (
    EngineFailure,
    ResultTooLarge,
    StackTooSmall,
    TrapCode,
    Trapped,
    ValueTooLarge,
)

MIB = 1024 * 1024
MAX_DETAIL_CHARS = 8192
MAX_MESSAGE_CHARS = 500
LAST_WORDS_CHARS = 800
"""How near the end of its text a guest must speak of memory to be believed."""

_OUT_OF_MEMORY = re.compile(
    r"\bMemoryError\b|memory allocation of \d+ bytes failed|out of memory|bad_alloc"
)
"""What CPython, Rust, Go and QuickJS, and C++ say when `memory.grow` was refused. The C API tells
nobody that its limiter refused, so the guest's own word has to do; it only picks a sentence."""

_PANIC_LINES = ("note: run with `RUST_BACKTRACE", "thread '", "Python function threw an unexpected")
"""What componentize-py's runtime adds to every uncaught exception."""

_GUEST_STATUSES = {int(status) for status in Status if status not in {Status.OK, Status.CANCELLED}}


def fault_of_record(record: dict[str, Any], cell: Cell) -> ToolFault:
    """The error for a `fault` that the guest returned."""
    message = clean_text(str(record["message"]), MAX_MESSAGE_CHARS).replace("\n", " ").strip()
    detail = clean_text(str(record["detail"]), MAX_DETAIL_CHARS)
    if _OUT_OF_MEMORY.search(f"{message}\n{detail[-LAST_WORDS_CHARS:]}"):
        return _out_of_memory(cell, detail)
    status = record["status"] if record["status"] in _GUEST_STATUSES else Status.TOOL_FAULT
    return ToolFault(message or "the tool returned a fault", status=status, guest_detail=detail)


def fault_of(error: Exception, cell: Cell, fuel_used: int) -> ToolcellError:
    """The error for what a run raised. Anything unforeseen is an :class:`InternalError`."""
    detail = clean_text(cell.stdio.tail("stderr"), MAX_DETAIL_CHARS)
    match error:
        case ToolcellError():
            return error
        case ForbiddenImport():
            return ToolFault(
                error.message,
                status=Status.NOT_GRANTED,
                remedy="use the capability interfaces of toolcell:tool",
                details={"import": error.name},
                guest_detail=detail,
            )
        case GuestViolation():
            return ToolFault(error.message, guest_detail=detail)
        case GuestExit():
            return ToolFault(
                f"the tool exited with code {error.code} and returned no result",
                details={"exit_code": error.code},
                guest_detail=detail,
            )
        case ValueTooLarge():
            return ToolFault(
                f"a host call handed over {error.used} {error.unit}; its limit is {error.allowed}",
                status=Status.TOO_LARGE,
                details={"allowed": error.allowed, "used": error.used},
                guest_detail=detail,
            )
        case Trapped():
            return _fault_of_trap(error, cell, fuel_used, detail)
        case StackTooSmall():
            return LaneUnavailable(
                error.message,
                remedy="call threading.stack_size(8 * 1024 * 1024) before starting the thread",
                details={"feature": "thread-stack"},
            )
        case EngineFailure():
            return InternalError(f"the engine failed: {error.message}")
    return InternalError(f"a host function failed ({type(error).__name__})")


def output_too_large(error: ResultTooLarge) -> LimitExceeded:
    """The error for a result that is over `max_output_bytes`."""
    return LimitExceeded(
        "max_output_bytes",
        allowed=error.allowed,
        used=error.used,
        message=f"the tool's result has {error.used} bytes; max_output_bytes is {error.allowed}",
    )


def _fault_of_trap(trap: Trapped, cell: Cell, fuel_used: int, detail: str) -> ToolcellError:
    envelope = cell.session.envelope
    match trap.code:
        case TrapCode.FUEL:
            return LimitExceeded("fuel", allowed=envelope.fuel, used=fuel_used, guest_detail=detail)
        case TrapCode.STACK:
            return LimitExceeded(
                "stack",
                allowed=cell.max_stack_bytes,
                message=f"the tool used up its stack of {cell.max_stack_bytes // 1024} KiB "
                "(recursion that is too deep)",
                guest_detail=detail,
            )
        case TrapCode.MEMORY_LIMIT:
            return LimitExceeded(
                "memory_mb",
                allowed=envelope.memory_mb,
                message=f"the tool needs more memory to start than memory_mb "
                f"({envelope.memory_mb}): {clean_text(trap.message, MAX_MESSAGE_CHARS)}",
            )
        case TrapCode.POOL_EXHAUSTED:
            return LaneUnavailable(
                f"every cell of this process is in use ({trap.message})",
                remedy="run fewer calls at once, or raise `cells` in the settings of the wasi lane",
                details={"feature": "free-cell"},
            )
    if _OUT_OF_MEMORY.search(detail[-LAST_WORDS_CHARS:]):
        return _out_of_memory(cell, detail)
    if trap.code is TrapCode.UNREACHABLE:
        message = f"the tool aborted: {_last_words(detail) or trap.message}"
    else:
        message = f"the tool trapped: {trap.message}"
    return ToolFault(
        clean_text(message, MAX_MESSAGE_CHARS),
        guest_detail=detail or clean_text(trap.backtrace, MAX_DETAIL_CHARS),
    )


def _last_words(stderr: str) -> str:
    """The last line that says something; for an uncaught exception that is the exception."""
    lines = (line.strip() for line in reversed(stderr.splitlines()))
    return next((line for line in lines if line and not line.startswith(_PANIC_LINES)), "")


def _out_of_memory(cell: Cell, detail: str) -> LimitExceeded:
    allowed = cell.session.envelope.memory_mb
    used = round(cell.measure().memory_peak_bytes / MIB, 1)
    return LimitExceeded(
        "memory_mb",
        allowed=allowed,
        used=used,
        message=f"the tool ran out of memory: memory_mb is {allowed}, it held {used:g} MiB "
        "and asked for more",
        guest_detail=detail,
    )
