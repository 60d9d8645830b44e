"""The lane contract: what every way of running a tool looks like to the runtime.

Owns the protocols and the values that cross them. Must never import a lane: lanes are found
through the entry-point group `toolcell.lanes`, and anybody can add one. One contract test suite
(`tests/contract`) runs over each lane that is installed and over the fake lane.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from toolcell.artifact.manifest import Manifest
from toolcell.errors import ToolcellError
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import Session

__all__ = ["Artifact", "Lane", "Outcome", "Prepared", "Probe", "Request", "Usage"]


class Artifact(Protocol):
    """A verified artifact: signature and digests were checked on the bytes that it hands out."""

    @property
    def manifest(self) -> Manifest:
        """What the publisher signed."""

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of the canonical manifest, which holds the digest of every other file."""

    @property
    def publisher(self) -> str:
        """The name in the trust store whose key verified."""

    def read(self, name: str) -> bytes:
        """The bytes of `name`, the same ones whose digest was checked."""


class Request(Struct, frozen=True):
    """One call. `input` is a JSON text that has passed the method's input schema."""

    method: str
    input: bytes


class Usage(Struct, kw_only=True):
    """What a run used, filled in by the lane as it goes, so that a failed run reports it too."""

    cpu_ms: float = 0.0
    fuel: int = 0
    memory_peak_bytes: int = 0
    syscalls: int = 0
    bytes_out: int = 0
    log_bytes_dropped: int = 0


class Outcome(Struct, kw_only=True):
    """What came of one run. Exactly one of `output` and `error` is set.

    `output` is the guest's JSON text, not yet checked against the output schema. `stdout` and
    `stderr` are what was kept under the caps, control characters included. `receipt` says what
    was enforced, in the lane's terms. `stages_us` has the time of each named stage.
    """

    output: bytes | None = None
    error: ToolcellError | None = None
    usage: Usage = field(default_factory=Usage)
    stdout: str = ""
    stderr: str = ""
    receipt: Mapping[str, Any] = field(default_factory=dict)
    stages_us: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Probe(Struct, frozen=True, kw_only=True):
    """What this machine can enforce in a lane, found by doing it.

    `features` maps a feature to the empty string where it works, or to why it does not.
    """

    available: bool
    features: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    remedy: str = ""


class Prepared(Protocol):
    """An artifact made ready to run many times: parsed, checked, compiled. Thread-safe."""

    def admit(self, envelope: PolicyEnvelope) -> None:
        """Raises before a run where `envelope` can't hold for this artifact in this lane.

        :class:`PolicyDenied` for an import that is not granted, :class:`LaneUnavailable` for a
        demand that can't be enforced. The runtime calls it once per envelope and remembers.
        """

    def invoke(self, request: Request, session: Session) -> Outcome:
        """Runs `request` in a fresh cell. A failure of the tool is in the outcome, not raised.

        Raises only what is not the tool's doing: `KeyboardInterrupt`, :class:`InternalError`.
        """

    def close(self) -> None:
        """Frees what was prepared. Idempotent; never called while a run is under way."""


class Lane(Protocol):
    """A way of running tools. Constructed without arguments by its entry point.

    `name` is the manifest's word for it. `isolation` is the level that it gives (1 wasi, 2 oops,
    3 a stronger backend).
    """

    name: str
    isolation: int

    def configure(self, home: "LaneHome") -> None:
        """Called once, first. Unknown or incomplete settings: :class:`ConfigError`."""

    def probe(self) -> Probe:
        """Tries each mechanism for real. Bounded in time; cached by the runtime."""

    def screen(self, artifact: Artifact, envelope: PolicyEnvelope) -> None:
        """Refuses ahead of preparing, and cheaply, what :meth:`Prepared.admit` is bound to refuse.

        So that a call which is not granted costs no compilation. It may let anything through.
        """

    def prepare(self, artifact: Artifact) -> Prepared:
        """Makes `artifact` ready; the runtime keeps it. Raises :class:`ArtifactRejected`."""

    def interrupt(self) -> None:
        """Ends preparations that are under way; none starts after it. Called before `close`."""

    def close(self) -> None:
        """Ends every cell and frees everything. Idempotent."""


class LaneHome(Struct, frozen=True, kw_only=True):
    """What the runtime gives a lane to live in.

    `cache_dir` is a folder that only the owner can read, for things that can be made again.
    `settings` is the lane's table of the configuration file, unread. `warn` reports something
    that an operator should know, such as a cache entry that failed its check.
    """

    cache_dir: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    warn: "WarnHook | None" = None


class WarnHook(Protocol):
    """Reports an incident that belongs to no call: a type (dotted, snake case) and a sentence."""

    def __call__(self, type: str, message: str, /) -> None: ...  # noqa: A002
