"""Every error that toolcell raises, split by whose fault it was.

Owns the hierarchy and the status codes of a fault. Holds no behaviour but rendering. Foreign
exceptions (wasmtime, SQLite, urllib3) are mapped to one of these at one place per room, so that
whoever calls toolcell needs to know this module only.
"""

from enum import IntEnum
from typing import Any, ClassVar

__all__ = [
    "ArtifactRejected",
    "CallCancelled",
    "CapabilityFault",
    "ConfigError",
    "InternalError",
    "InvalidInput",
    "LaneUnavailable",
    "LimitExceeded",
    "PolicyDenied",
    "QueueFull",
    "SandboxSetupError",
    "Status",
    "ToolFault",
    "ToolNotFound",
    "ToolcellError",
]


class Status(IntEnum):
    """Status of a call or of a capability call. The numbers follow HTTP where one fits."""

    OK = 200
    MALFORMED = 400
    NOT_GRANTED = 403
    NOT_FOUND = 404
    DEADLINE = 408
    TOO_LARGE = 413
    SCHEMA = 422
    QUOTA = 429
    CANCELLED = 499
    TOOL_FAULT = 500
    UPSTREAM = 502
    LANE_UNAVAILABLE = 503


class ToolcellError(Exception):
    """Base of all. `str()` is one line for a person; the fields are for machines.

    `status` is a code of :class:`Status`. `remedy` says what to do, where anything can be done.
    `tool` and `lane` are filled in by the runtime where they are known. `details` holds
    JSON-ready figures (limit, use, capability, …) and never a secret or a path of the host.
    """

    code: ClassVar[str] = "error"
    default_status: ClassVar[Status] = Status.TOOL_FAULT

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        status: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.status: int = int(self.default_status if status is None else status)
        self.details: dict[str, Any] = details or {}
        self.tool = ""
        self.lane = ""

    def to_dict(self) -> dict[str, Any]:
        """The `error` object of `--json`: `code`, `message`, `remedy` and, where any, `details`."""
        out: dict[str, Any] = {"code": self.code, "message": self.message, "remedy": self.remedy}
        if self.details:
            out["details"] = self.details
        return out


# --- the caller's fault ---------------------------------------------------------------------


class ConfigError(ToolcellError):
    """A policy file, trust store, project file or setting that is wrong. Found before any call."""

    code = "config"
    default_status = Status.MALFORMED


class InvalidInput(ToolcellError):
    """Input that is not JSON (400), too large (413), or against the method's schema (422)."""

    code = "invalid_input"
    default_status = Status.SCHEMA


class PolicyDenied(ToolcellError):
    """The policy does not grant what the call needs. Names the missing grant."""

    code = "policy_denied"
    default_status = Status.NOT_GRANTED


class ToolNotFound(ToolcellError):
    """No such tool, version, method or scope membership."""

    code = "not_found"
    default_status = Status.NOT_FOUND


class QueueFull(ToolcellError):
    """No place became free before the deadline. `details`: `limit`, `waited_ms`."""

    code = "queue_full"
    default_status = Status.QUOTA


class CallCancelled(ToolcellError):
    """The caller cancelled the call, or killed it with a reason."""

    code = "cancelled"
    default_status = Status.CANCELLED


# --- the publisher's fault ------------------------------------------------------------------


class ArtifactRejected(ToolcellError):
    """An artifact that is malformed, unsigned, altered, revoked or expired. Nothing of it ran."""

    code = "artifact_rejected"
    default_status = Status.NOT_GRANTED


# --- the guest's fault ----------------------------------------------------------------------


class ToolFault(ToolcellError):
    """The tool failed: it raised, trapped, exited, or returned nonsense.

    `guest_detail` is the tool's own text (a traceback, the end of its stderr). It is untrusted:
    bounded in size and stripped of control characters by the lane before it gets here.
    """

    code = "tool_fault"
    default_status = Status.TOOL_FAULT

    def __init__(
        self,
        message: str,
        *,
        guest_detail: str = "",
        remedy: str = "",
        status: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy, status=status, details=details)
        self.guest_detail = guest_detail

    def to_dict(self) -> dict[str, Any]:
        out = super().to_dict()
        if self.guest_detail:
            out["guest_detail"] = self.guest_detail
        return out


class LimitExceeded(ToolFault):
    """The tool went over a ceiling and was ended.

    `limit` is the envelope's field (`wall_time_ms`, `memory_mb`, …), `allowed` and `used` are in
    that field's unit. Status: 408 for the times and fuel, 413 for sizes, 429 for counts, 500 for
    memory and stack.
    """

    code = "limit_exceeded"

    _STATUS: ClassVar[dict[str, Status]] = {
        "wall_time_ms": Status.DEADLINE,
        "timeout_ms": Status.DEADLINE,
        "cpu_time_ms": Status.DEADLINE,
        "fuel": Status.DEADLINE,
        "max_output_bytes": Status.TOO_LARGE,
        "max_message_bytes": Status.TOO_LARGE,
        "max_log_bytes": Status.TOO_LARGE,
        "scratch_mb": Status.TOO_LARGE,
    }
    _QUOTA_PREFIX: ClassVar[str] = "max_"
    _REMEDY: ClassVar[str] = "raise `{}` in the policy and the manifest, or do less per call"
    _REMEDIES: ClassVar[dict[str, str]] = {
        "timeout_ms": "give the call a longer `{}`; the policy's wall_time_ms still bounds it",
        "stack": "recurse less deeply; the limit of the `{}` is the lane's",
    }

    def __init__(
        self,
        limit: str,
        *,
        allowed: float,
        used: float | None = None,
        message: str = "",
        remedy: str = "",
        guest_detail: str = "",
    ) -> None:
        over = "" if used is None else f", used {used:g}"
        quota = Status.QUOTA if limit.startswith(self._QUOTA_PREFIX) else Status.TOOL_FAULT
        super().__init__(
            message or f"limit exceeded: {limit} is {allowed:g}{over}",
            guest_detail=guest_detail,
            remedy=remedy or self._REMEDIES.get(limit, self._REMEDY).format(limit),
            status=self._STATUS.get(limit, quota),
            details={"limit": limit, "allowed": allowed, "used": used},
        )
        self.limit = limit
        self.allowed = allowed
        self.used = used


class CapabilityFault(ToolcellError):
    """A capability call that was refused or failed. It goes to the guest as a `fault` record.

    `capability` is the dotted name (`http.fetch`). The guest may handle it; one that it lets
    through becomes the call's :class:`ToolFault` with the same status.
    """

    code = "capability_fault"
    default_status = Status.NOT_GRANTED

    def __init__(
        self,
        capability: str,
        message: str,
        *,
        status: int = Status.NOT_GRANTED,
        remedy: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            f"{capability}: {message}",
            remedy=remedy,
            status=status,
            details={"capability": capability, **(details or {})},
        )
        self.capability = capability


# --- this machine's fault -------------------------------------------------------------------


class LaneUnavailable(ToolcellError):
    """This machine can't enforce what the policy or the manifest demands.

    `details["feature"]` names the missing feature. The call is refused, never downgraded.
    """

    code = "lane_unavailable"
    default_status = Status.LANE_UNAVAILABLE


class SandboxSetupError(ToolcellError):
    """A stage of setting up the cell failed. `details`: `stage`, `errno`. Nothing ran."""

    code = "sandbox_setup"
    default_status = Status.LANE_UNAVAILABLE


class InternalError(ToolcellError):
    """Our fault. Carries the correlation id to look for in the audit log."""

    code = "internal"
    default_status = Status.TOOL_FAULT
