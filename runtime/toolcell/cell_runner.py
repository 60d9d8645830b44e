"""Runs a tool's own tests in its cell: the runtime's side of `toolcell test --cell`.

Fulfils `toolcell_sdk.testing.CellRunner`. The tool goes the whole way: built, signed with a key
that lives as long as the test session, opened under a trust store that holds only that key, and
run in a fresh cell of its lane per call. Only the broker is the test kit's.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from toolcell.artifact.build import build_artifact, sign_artifact
from toolcell.artifact.open import VerifiedArtifact, open_artifact
from toolcell.artifact.schema import MethodSchemas
from toolcell.broker.interface import FileEntry, HttpResponse, Image
from toolcell.errors import CapabilityFault, LaneUnavailable, ToolcellError, ToolFault
from toolcell.events import Event, EventContext
from toolcell.home import Home
from toolcell.lane import Lane, LaneHome, Outcome, Prepared, Request
from toolcell.lanes import discover
from toolcell.policy.compose import Grant, effective
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import CancelToken, Deadline, Session, ToolRef
from toolcell.trust.keys import SigningKey
from toolcell.trust.store import TrustedKey, TrustStore
from toolcell_sdk.build import COMPONENT, build
from toolcell_sdk.errors import CapabilityError, Fault
from toolcell_sdk.testing import CellRun
from toolcell_sdk.transport import Transport

__all__ = ["RUNNER", "Runner", "cell_of"]

RUNNER: Final = "toolcell.cell_runner:Runner"
"""What `toolcell_sdk.testing.run_tests` takes as its runner."""

_RESULTS: Final[dict[str, Any]] = {
    "http.fetch": HttpResponse,
    "fs.readBytes": bytes,
    "fs.list": list[FileEntry],
    "images.resize": Image,
}
"""Capability -> the type that a lane expects, where it is not what JSON gives already."""


class Runner:
    """Prepares cells of tools. Made once per test session."""

    def prepare(
        self, folder: Path, progress: Callable[[str], None] = lambda _stage: None
    ) -> "TestCell":
        """Builds the tool in `folder` and prepares it in its lane. `progress` is told of both."""
        progress(f"building {folder.name}")
        with tempfile.TemporaryDirectory(prefix="toolcell-test-") as out:
            built = build(folder, out)
            archive = build_artifact(
                built.manifest_fields(), {COMPONENT: built.component.read_bytes()}
            )
        progress(f"compiling {folder.name}, once")
        return cell_of(archive)


def cell_of(archive: bytes) -> "TestCell":
    """A cell of the unsigned artifact `archive`, signed with a key that nobody keeps."""
    key = SigningKey.generate()
    trust = TrustStore([TrustedKey(publisher="test-session", public=key.public)])
    return TestCell(open_artifact(sign_artifact(archive, key), trust))


class TestCell:
    """A built tool, ready to be called. Meets `toolcell_sdk.testing.PreparedCell`."""

    __test__ = False  # not a test class, whatever pytest makes of the name

    def __init__(self, artifact: VerifiedArtifact) -> None:
        manifest = artifact.manifest
        self._schemas = MethodSchemas(manifest)
        self._ref = ToolRef(manifest.id, manifest.name, manifest.version, artifact.digest)
        grant = PolicyEnvelope(
            allowed_host_apis=manifest.capabilities,
            allow_file_io=True,
            allow_network_egress=True,
        )
        self._envelope = effective(manifest, Grant(name="test-session", envelope=grant)).envelope
        self._lane, self._prepared = _prepare(artifact)

    def invoke(self, method: str, text: str, transport: Transport) -> CellRun:
        """Checks the input, runs one call in a fresh cell, and checks the output, as a runtime
        does. Capability calls are answered by `transport`.
        """
        session = Session(
            tool=self._ref,
            envelope=self._envelope,
            policy_digest="",
            context=EventContext(),
            emitter=_Nowhere(),
            deadline=Deadline(self._envelope.wall_time_ms),
            cancel=CancelToken(),
            seed=bytes(32),
        )
        session.broker = _TransportBroker(transport)
        raw = text.encode()
        outcome = Outcome()
        try:
            self._schemas.check_input(method, raw, self._envelope.max_message_bytes)
            outcome = self._prepared.invoke(Request(method, raw), session)
            if outcome.error is not None:
                raise outcome.error
            self._schemas.check_output(method, outcome.output or b"")
        except ToolcellError as error:
            return _run(outcome, fault=_fault(error))
        return _run(outcome, output=(outcome.output or b"").decode())

    def close(self) -> None:
        """Frees the cell and its lane. Idempotent."""
        self._prepared.close()
        self._lane.close()


def _prepare(artifact: VerifiedArtifact) -> tuple[Lane, Prepared]:
    lanes = discover()
    name = artifact.manifest.lane
    lane = lanes.get(name)
    if lane is None:
        raise LaneUnavailable(
            f"the lane `{name}` is not installed here",
            remedy=f"installed: {', '.join(sorted(lanes))}",
            details={"feature": f"lane:{name}"},
        )
    lane.configure(LaneHome(cache_dir=str(Home().cache(name))))
    return lane, lane.prepare(artifact)


def _run(outcome: Outcome, *, output: str | None = None, fault: Fault | None = None) -> CellRun:
    return CellRun(
        output=output,
        fault=fault,
        fuel=outcome.usage.fuel,
        memory_peak_bytes=outcome.usage.memory_peak_bytes,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
    )


def _fault(error: ToolcellError) -> Fault:
    detail = error.guest_detail if isinstance(error, ToolFault) else ""
    return Fault(error.status, error.message, detail)


class _TransportBroker:
    """The test kit's transport in the place of a broker."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def call(self, capability: str, /, **params: Any) -> Any:
        try:
            result = self._transport.call(capability, msgspec.to_builtins(params))
        except CapabilityError as error:
            message = error.message.removeprefix(f"{capability}: ")
            raise CapabilityFault(capability, message, status=error.status) from None
        kind = _RESULTS.get(capability)
        return result if kind is None else msgspec.convert(result, kind)

    def close(self) -> None:
        """The test looks at the transport afterwards: it stays."""


class _Nowhere:
    """Events of a test session are nobody's."""

    def emit(self, event: Event) -> None:
        pass
