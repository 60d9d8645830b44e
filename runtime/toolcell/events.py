"""The events: what toolcell tells about every run.

Owns the types. The wire name of each is its `event` tag; each carries the context of its call.
Values are JSON-ready and bounded; nothing here holds a secret, an input, an output or a path of
the host (`toolcell.telemetry.redact` is applied by the sinks all the same).
"""

import time
from typing import Any, ClassVar, Literal, Self

from msgspec import Struct

__all__ = [
    "BudgetPreemptFailed",
    "BudgetPreempted",
    "CapabilityCalled",
    "Event",
    "EventContext",
    "MonitorIncident",
    "SandboxSpawned",
    "SandboxTerminated",
    "SandboxViolation",
    "ToolInvocation",
]


class EventContext(Struct, frozen=True, kw_only=True):
    """What ties an event to its call. Empty strings outside a call."""

    correlation_id: str = ""
    scope: str = ""
    tool_id: str = ""
    tool: str = ""
    version: str = ""
    policy_digest: str = ""
    lane: str = ""


class Event(Struct, kw_only=True, tag_field="event", tag="tool.event"):
    """Base of all. `time_ns` is wall-clock time, nanoseconds since the epoch.

    A type with `must_persist` fails the call where no durable sink could take it.
    """

    must_persist: ClassVar[bool] = False

    time_ns: int
    correlation_id: str
    scope: str
    tool_id: str
    tool: str
    version: str
    policy_digest: str
    lane: str

    @classmethod
    def of(cls, context: EventContext, **fields: Any) -> Self:
        """An event of this type, now, with `context`."""
        return cls(
            time_ns=time.time_ns(),
            correlation_id=context.correlation_id,
            scope=context.scope,
            tool_id=context.tool_id,
            tool=context.tool,
            version=context.version,
            policy_digest=context.policy_digest,
            lane=context.lane,
            **fields,
        )


class SandboxSpawned(Event, kw_only=True, tag="tool.sandbox.spawned"):
    """A cell was made. `pid` is the host's own in the wasi lane; limits as the cell has them."""

    must_persist: ClassVar[bool] = True
    pid: int
    os: str
    cpu_quota_ms: int
    memory_max_bytes: int


class SandboxViolation(Event, kw_only=True, tag="tool.sandbox.violation"):
    """The tool went against a rule. `hard` ended it; `soft` was refused or cut, and it went on."""

    must_persist: ClassVar[bool] = True
    type: str
    detail: str
    severity: Literal["hard", "soft"]


class ToolInvocation(Event, kw_only=True, tag="tool.invocation"):
    """A call is over. Emitted for each call that got as far as a resolved tool."""

    must_persist: ClassVar[bool] = True
    method: str
    duration_ms: float
    cpu_ms: float
    queue_wait_ms: float
    memory_peak_bytes: int
    bytes_in: int
    bytes_out: int
    fuel: int
    status: int
    outcome: str
    artifact_digest: str


class SandboxTerminated(Event, kw_only=True, tag="tool.sandbox.terminated"):
    """The cell is gone. `reason`: `completed`, or the code of the error that ended it."""

    must_persist: ClassVar[bool] = True
    reason: str


class CapabilityCalled(Event, kw_only=True, tag="tool.capability"):
    """A capability call was served, refused or failed. `target`: a redacted word on what it was."""

    name: str
    status: int
    bytes: int
    duration_ms: float
    target: str = ""


class MonitorIncident(Event, kw_only=True, tag="tool.monitor.incident"):
    """Something that an operator should look at."""

    must_persist: ClassVar[bool] = True
    severity: Literal["info", "warning", "critical"]
    type: str
    message: str
    details: dict[str, Any] = {}


class BudgetPreempted(Event, kw_only=True, tag="tool.budget.preempted"):
    """A run was stopped because it was projected to overrun what is left of its budget."""

    must_persist: ClassVar[bool] = True
    budget: str
    projected: float
    left: float


class BudgetPreemptFailed(Event, kw_only=True, tag="tool.budget.preempt_failed"):
    """A run that was to be stopped did not end within its grace."""

    must_persist: ClassVar[bool] = True
    budget: str
    reason: str
