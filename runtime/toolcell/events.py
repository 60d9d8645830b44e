"""The events: what toolcell tells about every run.

Owns the types. The wire name of each is its `event` tag; each carries the context of its call.
Values are JSON-ready and bounded; nothing here holds a secret, an input, an output or a path of
the host (`toolcell.telemetry` redacts every :data:`FreeText` all the same, before any sink).
`docs/telemetry.md` lists each type and field; a test holds the two together.
"""

import time
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta, Struct

__all__ = [
    "AuditClosed",
    "AuditOpened",
    "AuditRecovered",
    "BudgetPreemptFailed",
    "BudgetPreempted",
    "CapabilityCalled",
    "Event",
    "EventContext",
    "FreeText",
    "MonitorIncident",
    "SandboxSpawned",
    "SandboxTerminated",
    "SandboxViolation",
    "ToolInvocation",
]

FreeText = Annotated[str, Meta(extra={"free_text": True})]
"""Text that somebody else had a hand in (a tool, a caller, an error): redacted and cut on its way
to the sinks. A plain `str` field holds a name or a code and is only checked for length and
control characters, which keeps frequent events cheap."""


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
    detail: FreeText
    severity: Literal["hard", "soft"]


class ToolInvocation(Event, kw_only=True, tag="tool.invocation"):
    """A call is over. Emitted for each call that got as far as a resolved tool."""

    must_persist: ClassVar[bool] = True
    method: FreeText
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
    reason: FreeText


class CapabilityCalled(Event, kw_only=True, tag="tool.capability"):
    """A capability call was served, refused or failed. `target`: a redacted word on what it was.

    The first 200 calls of an invocation are an event each; those after it are told when it ends,
    one event for each capability and status, with their `count` and the sums of the rest.
    """

    name: str
    status: int
    bytes: int
    duration_ms: float
    count: int = 1
    target: FreeText = ""


class MonitorIncident(Event, kw_only=True, tag="tool.monitor.incident"):
    """Something that an operator should look at."""

    must_persist: ClassVar[bool] = True
    severity: Literal["info", "warning", "critical"]
    type: str
    message: FreeText
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
    reason: FreeText


class AuditOpened(Event, kw_only=True, tag="audit.log.opened"):
    """First line of an audit log's file, written by the log itself.

    `key_id` names the key without giving it away, `previous` the file that this one continues.
    """

    must_persist: ClassVar[bool] = True
    format: int
    key_id: str
    previous: str


class AuditClosed(Event, kw_only=True, tag="audit.log.closed"):
    """Last line of an audit log's file that was full: nothing can have followed it there."""

    must_persist: ClassVar[bool] = True
    next: str


class AuditRecovered(Event, kw_only=True, tag="audit.log.recovered"):
    """The audit log was not as its last writer had left it. Written by the log itself.

    `torn`: a writer was killed in the middle of a line, which its caller never saw succeed.
    `lost`: sealed lines, up to `last_seq`, were gone from the end. `unproved`: the head record
    was missing or damaged, so that lines may have been cut. `foreign`: somebody else wrote to it.
    `bytes` and `sha256` are those of what stands between the last sealed line and this one.
    """

    must_persist: ClassVar[bool] = True
    kind: Literal["torn", "lost", "unproved", "foreign"]
    bytes: int
    sha256: str
    first_seq: int
    last_seq: int
