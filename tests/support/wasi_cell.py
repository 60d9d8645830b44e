"""What a lane needs around it in a test: an artifact, a session with the real broker, a call."""

import hashlib
import time
from contextlib import contextmanager

from machine_noise import MachineNoise

from toolcell.artifact.manifest import Manifest, Method
from toolcell.broker import BrokerServices, InvocationBroker
from toolcell.events import EventContext
from toolcell.lane import Request
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import CancelToken, Deadline, Session, ToolRef


class Artifact:
    """An artifact whose signature nobody looks at: the lane gets verified ones only."""

    publisher = "test"

    def __init__(self, wasm, *, capabilities=(), **fields):
        self._wasm = wasm
        self.digest = "sha256:" + hashlib.sha256(wasm).hexdigest()
        self.manifest = Manifest(
            id="00000000-0000-0000-0000-000000000000",
            name="hostile",
            version="1.0.0",
            entry_point="tool.wasm",
            methods={"run": Method(input={}, output={})},
            capabilities=capabilities,
            files={"tool.wasm": hashlib.sha256(wasm).hexdigest()},
            **fields,
        )

    def read(self, name):
        assert name == "tool.wasm"
        return self._wasm


class Events(list):
    """An emitter that keeps what it is told."""

    def emit(self, event):
        self.append(event)


SERVICES = BrokerServices()


def make_session(*, seed=bytes(32), cancel=None, **fields):
    """A session under an envelope of `fields`, the deadline running from now."""
    envelope = PolicyEnvelope(**fields)
    session = Session(
        tool=ToolRef(id="", name="hostile", version="1.0.0", digest=""),
        envelope=envelope,
        policy_digest="",
        context=EventContext(),
        emitter=Events(),
        deadline=Deadline(envelope.wall_time_ms),
        cancel=cancel or CancelToken(),
        seed=seed,
    )
    session.broker = InvocationBroker(session, SERVICES)
    return session


def call(prepared, method="run", text="null", **fields):
    """One call in a fresh cell; returns the outcome."""
    session = make_session(**fields)
    try:
        return prepared.invoke(Request(method, text.encode()), session)
    finally:
        session.broker.close()


@contextmanager
def ends_within(ceiling_ms, slack_ms=50):
    """Fails where the block took longer than ceiling, slack and what the machine was late."""
    with MachineNoise() as noise:
        started = time.monotonic()
        yield
        took_ms = (time.monotonic() - started) * 1000
    allowed_ms = ceiling_ms + slack_ms + noise.worst_ms
    assert took_ms <= allowed_ms, f"took {took_ms:.0f} ms, ceiling {ceiling_ms} ms"
