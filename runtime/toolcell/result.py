"""What a call gives back.

Owns the result model and its JSON form (`toolcell run --json`). A result always exists: a call
that was refused, failed or was cancelled is a result with an `error`, so that metrics and digests
are there for it too.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from toolcell.broker.interface import LogLine
from toolcell.errors import ToolcellError

__all__ = ["Incident", "Metrics", "Result", "Trust"]

Trust = Literal["system", "trusted", "untrusted"]


class Metrics(Struct, kw_only=True):
    """What a call used. Times in milliseconds, sizes in bytes but for `memory_peak_mb` (MiB)."""

    cpu_ms: float = 0.0
    memory_peak_mb: float = 0.0
    fuel: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    queue_wait_ms: float = 0.0
    capability_calls: int = 0
    network_requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    syscalls: int = 0


class Incident(Struct, kw_only=True):
    """Something that happened during the call and that the caller should know."""

    time_ns: int
    severity: Literal["info", "warning", "critical"]
    type: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)


class Result(Struct, kw_only=True):
    """Outcome of one call.

    `status` is 200, or the status of `error`. `output` is the decoded JSON, None where it failed.
    `reasons` say why the call ran in that lane. `trust` is the tag of the output, never higher
    than what produced it. `stdout`, `stderr` and `log` are what the tool wrote, under the caps:
    untrusted text. `receipt` says what was enforced. `attestation` is the
    signed statement of a success (`toolcell.artifact.attest`), where the runtime has a key for it.
    `artifact_digest` and `policy_digest` are
    empty where the call ended before they were known.
    """

    status: int
    output: Any = None
    error: ToolcellError | None = None
    warnings: tuple[str, ...] = ()
    tool: str = ""
    version: str = ""
    method: str = ""
    lane: str = ""
    isolation: int | None = None
    reasons: tuple[str, ...] = ()
    trust: Trust = "untrusted"
    duration_ms: float = 0.0
    metrics: Metrics = field(default_factory=Metrics)
    incidents: tuple[Incident, ...] = ()
    artifact_digest: str = ""
    policy_digest: str = ""
    correlation_id: str = ""
    stdout: str = ""
    stderr: str = ""
    log: tuple[LogLine, ...] = ()
    receipt: Mapping[str, Any] = field(default_factory=dict)
    attestation: str = ""
    stages_us: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.error is None

    def value(self) -> Any:
        """The output; raises the call's error where it failed."""
        if self.error is not None:
            raise self.error
        return self.output

    def to_dict(self) -> dict[str, Any]:
        """The JSON form. `error` is there only where the call failed."""
        out: dict[str, Any] = {}
        for name in self.__struct_fields__:
            if name != "error":
                value = msgspec.to_builtins(getattr(self, name))
                out[name] = list(value) if isinstance(value, tuple) else value
        if self.error is not None:
            out["error"] = self.error.to_dict()
        return out
