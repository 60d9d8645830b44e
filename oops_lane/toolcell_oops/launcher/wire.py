"""What the launcher says, decoded strictly. Source: `native/PLAN.md`.

The launcher is ours, but what it reports was caused by a tool; a message that does not decode is
a defect and ends the launcher.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct, field

__all__ = [
    "MAX_PACKET_BYTES",
    "PROTOCOL",
    "CellUsage",
    "Event",
    "Exited",
    "Failed",
    "Hello",
    "LimitHit",
    "Refused",
    "Spawned",
    "decode_event",
    "encode",
]

PROTOCOL = 1
MAX_PACKET_BYTES = 262_144

LimitName = Literal["wall", "cpu", "memory", "pids"]


class _Event(Struct, frozen=True, kw_only=True, tag_field="event"):
    pass


class Hello(_Event, frozen=True, kw_only=True, tag="hello"):
    """The first answer. `missing` maps a feature to why this machine can't enforce it."""

    protocol: int
    version: str
    pid: int
    landlock_abi: int
    cgroup: dict[str, str]
    missing: dict[str, str]


class CellUsage(Struct, frozen=True, kw_only=True):
    """What a cell used; times in microseconds."""

    cpu_us: int = 0
    user_us: int = 0
    system_us: int = 0
    memory_peak_bytes: int = 0
    pids_peak: int = 0
    oom_kills: int = 0
    throttled_us: int = 0
    wall_us: int = 0


class LimitHit(Struct, frozen=True, kw_only=True):
    """The ceiling that ended a cell: ms, ms, bytes, count."""

    name: LimitName
    limit: int
    used: int


class Refused(_Event, frozen=True, kw_only=True, tag="refused"):
    """The plan was wrong; nothing ran."""

    id: int | None = None
    reason: str


class Failed(_Event, frozen=True, kw_only=True, tag="failed"):
    """The machine would not; nothing of the tool ran."""

    id: int
    stage: str
    errno: int
    detail: str = ""


class Spawned(_Event, frozen=True, kw_only=True, tag="spawned"):
    """The tool started. `receipt` is what the kernel said while it waited at its last step."""

    id: int
    pid: int
    warm: bool
    stages_us: dict[str, float]
    receipt: dict[str, Any]


class Exited(_Event, frozen=True, kw_only=True, tag="exit"):
    """The whole tree is dead and reaped."""

    id: int
    exit: int | None
    signal: int | None
    limit: LimitHit | None
    killed: str | None
    usage: CellUsage
    leaks: list[str] = field(default_factory=list)


class Used(_Event, frozen=True, kw_only=True, tag="usage"):
    """What a living cell has used so far."""

    id: int
    usage: CellUsage


Event = Hello | Refused | Failed | Spawned | Exited | Used

decode_event = msgspec.msgpack.Decoder(Event).decode
encode = msgspec.msgpack.Encoder().encode
