"""A lane for tests: Python functions in the place of a tool. It is no boundary.

For whoever embeds toolcell and wants to test the code around it: policy, schemas, broker, quotas,
events and results are the real ones, only the cell is not. It is registered nowhere; a test
passes it to `Runtime(lanes=…)` by hand.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from toolcell.artifact.manifest import Manifest
from toolcell.errors import CapabilityFault, LimitExceeded, ToolcellError, ToolFault
from toolcell.isolation import FEATURES
from toolcell.lane import Artifact, LaneHome, Outcome, Probe, Request, Usage
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import Session

__all__ = ["FakeLane", "Handler"]

Handler = Callable[[Any, Session], Any]
"""What plays a method: the decoded input and the session in, a JSON-ready value out."""


class FakeLane:
    """Runs `handlers[tool name, method]` in the calling thread, under the name of a real lane.

    `name` and `isolation` are what the lane claims, so that selection works as it will with the
    real one. A handler that never looks at its session can't be ended: there is no boundary.
    """

    def __init__(
        self,
        handlers: Mapping[tuple[str, str], Handler],
        *,
        name: str = "wasi",
        isolation: int = 1,
        probe: Probe | None = None,
    ) -> None:
        self.name = name
        self.isolation = isolation
        self.prepared = 0
        self.closed = False
        self._handlers = dict(handlers)
        self._probe = probe or Probe(available=True, features=dict.fromkeys(FEATURES, ""))

    def configure(self, home: LaneHome) -> None:
        """Takes no settings."""

    def probe(self) -> Probe:
        """What the test said."""
        return self._probe

    def screen(self, artifact: Artifact, envelope: PolicyEnvelope) -> None:
        """Lets everything through: a fake has no imports."""

    def prepare(self, artifact: Artifact) -> "FakePrepared":
        """Nothing to prepare; counts in `prepared`."""
        self.prepared += 1
        return FakePrepared(artifact.manifest, self._handlers)

    def interrupt(self) -> None:
        """Preparing takes no time here."""

    def close(self) -> None:
        """Notes that it was closed."""
        self.closed = True


class FakePrepared:
    """One tool of a :class:`FakeLane`."""

    def __init__(self, manifest: Manifest, handlers: Mapping[tuple[str, str], Handler]) -> None:
        self._manifest = manifest
        self._handlers = handlers

    def admit(self, envelope: PolicyEnvelope) -> None:
        """Admits everything: a fake has no imports."""

    def invoke(self, request: Request, session: Session) -> Outcome:
        """Calls the handler and maps what it raises as a real lane would."""
        started = time.thread_time()
        usage = Usage()
        try:
            session.check()
            handler = self._handlers[self._manifest.name, request.method]
            output = _bounded(handler(msgspec.json.decode(request.input), session), session)
            usage.bytes_out = len(output)
            outcome = Outcome(output=output, usage=usage)
        except CapabilityFault as fault:
            error = ToolFault(fault.message, status=fault.status, remedy=fault.remedy)
            outcome = Outcome(error=error, usage=usage)
        except ToolcellError as reason:
            outcome = Outcome(error=reason, usage=usage)
        except Exception as raised:  # noqa: BLE001 - it plays a guest, whose every error is a fault
            outcome = Outcome(error=ToolFault(f"{type(raised).__name__}: {raised}"), usage=usage)
        usage.cpu_ms = (time.thread_time() - started) * 1000
        outcome.receipt = {"lane": "fake", "boundary": "none"}
        return outcome

    def close(self) -> None:
        """Nothing to free."""


def _bounded(value: Any, session: Session) -> bytes:
    """`value` as JSON; :class:`LimitExceeded` where it is over `max_output_bytes`."""
    output = msgspec.json.encode(value)
    allowed = session.envelope.max_output_bytes
    if len(output) > allowed:
        raise LimitExceeded("max_output_bytes", allowed=allowed, used=len(output))
    return output
