"""Why a run ended, as an error of toolcell: the one place where exits and faults are mapped.

Owns the sentence that the caller reads; statuses are those of the wasi lane. Text that a guest
wrote goes through `clean_text`, and it never chooses the type of an error beyond the status codes
that a fault may carry.
"""

import signal

from toolcell.errors import (
    InternalError,
    LimitExceeded,
    SandboxSetupError,
    Status,
    ToolcellError,
    ToolFault,
)
from toolcell.guest_output import clean_text
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import Session
from toolcell_oops.launcher.wire import Exited, Failed, LimitHit, Refused
from toolcell_oops.rpc.message import Refusal

__all__ = [
    "fault_of_exit",
    "fault_of_failure",
    "fault_of_limit",
    "fault_of_worker",
    "output_too_large",
]

MIB = 1024 * 1024
MAX_DETAIL_CHARS = 8192
MAX_MESSAGE_CHARS = 500

_GUEST_STATUSES = {int(status) for status in Status if status not in {Status.OK, Status.CANCELLED}}


def fault_of_worker(refusal: Refusal) -> ToolFault:
    """The error for a fault that a worker answered with."""
    message = clean_text(refusal.message, MAX_MESSAGE_CHARS).replace("\n", " ").strip()
    return ToolFault(
        message or "the tool returned a fault",
        status=refusal.code if refusal.code in _GUEST_STATUSES else Status.TOOL_FAULT,
        guest_detail=clean_text(refusal.data.detail, MAX_DETAIL_CHARS),
    )


def fault_of_limit(hit: LimitHit, session: Session, stderr: str) -> ToolcellError:
    """The error for the ceiling that ended the cell."""
    envelope = session.envelope
    detail = clean_text(stderr, MAX_DETAIL_CHARS)
    match hit.name:
        case "wall":
            return session.wall_time_exceeded()
        case "cpu":
            return LimitExceeded(
                "cpu_time_ms", allowed=envelope.cpu_time_ms, used=hit.used, guest_detail=detail
            )
        case "memory":
            used = round(hit.used / MIB, 1)
            return LimitExceeded(
                "memory_mb",
                allowed=envelope.memory_mb,
                used=used,
                message=f"the tool ran out of memory: memory_mb is {envelope.memory_mb}, it held "
                f"{used:g} MiB and asked for more",
                guest_detail=detail,
            )
        case "pids":
            return LimitExceeded(
                "max_processes", allowed=envelope.max_processes, used=hit.used, guest_detail=detail
            )


def fault_of_exit(exited: Exited, stderr: str, *, seccomp: str) -> ToolFault:
    """The error for a cell that ended by itself without a result."""
    detail = clean_text(stderr, MAX_DETAIL_CHARS)
    if exited.signal == signal.SIGSYS:
        return ToolFault(
            f"the tool made a system call that the seccomp profile `{seccomp}` does not allow",
            status=Status.NOT_GRANTED,
            remedy="use the capabilities, or a profile that allows it",
            details={"signal": "SIGSYS", "seccomp": seccomp},
            guest_detail=detail,
        )
    if exited.signal is not None:
        name = _signal_name(exited.signal)
        return ToolFault(
            f"the tool was ended by {name} and returned no result",
            details={"signal": name},
            guest_detail=detail,
        )
    words = _last_words(detail)
    return ToolFault(
        f"the tool exited with code {exited.exit} and returned no result"
        + (f": {words}" if words else ""),
        details={"exit_code": exited.exit},
        guest_detail=detail,
    )


def fault_of_failure(event: Failed | Refused) -> ToolcellError:
    """The error for a plan that did not become a cell. Nothing of the tool ran."""
    if isinstance(event, Refused):
        return InternalError(f"the launcher refused the plan: {event.reason[:300]}")
    return SandboxSetupError(
        f"the cell could not be set up: stage `{event.stage}` failed with "
        f"errno {event.errno}{f' ({event.detail[:200]})' if event.detail else ''}",
        remedy="see `toolcell doctor`; nothing of the tool ran",
        details={"stage": event.stage, "errno": event.errno},
    )


def output_too_large(envelope: PolicyEnvelope, used: int) -> LimitExceeded:
    """The error for a result that is over `max_output_bytes`."""
    allowed = envelope.max_output_bytes
    return LimitExceeded(
        "max_output_bytes",
        allowed=allowed,
        used=used,
        message=f"the tool's result has {used} bytes or more; max_output_bytes is {allowed}",
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_words(stderr: str) -> str:
    """The last line that says something; for an uncaught exception that is the exception."""
    lines = (line.strip() for line in reversed(stderr.splitlines()))
    return next((line for line in lines if line), "")[:MAX_MESSAGE_CHARS]
