"""Runs without a lane: a session, a broker and what they told, for tests of the broker."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from toolcell.broker import BrokerServices, InvocationBroker
from toolcell.errors import CapabilityFault
from toolcell.events import Event, EventContext
from toolcell.policy.envelope import CAPABILITIES, CapabilityPolicies, PolicyEnvelope
from toolcell.session import CancelToken, Deadline, Session, ToolRef

TOOL = ToolRef("00000000-0000-0000-0000-000000000001", "probe", "1.0.0", "sha256:00")


class Told:
    """An emitter that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of type `kind`, in order."""
        return [event for event in self.events if type(event) is kind]


def envelope(**fields: Any) -> PolicyEnvelope:
    """An envelope that grants everything; sub-policies by name (`kv=…`), the rest as fields."""
    names = CapabilityPolicies.__struct_fields__
    policies = {name: fields.pop(name) for name in names if name in fields}
    granted: dict[str, Any] = {
        "allowed_host_apis": tuple(sorted(CAPABILITIES)),
        "allow_network_egress": True,
        "allow_file_io": True,
        "capabilities": CapabilityPolicies(**policies),
    }
    return PolicyEnvelope(**{**granted, **fields})


_OPEN: list["Run"] = []


def close_runs() -> None:
    """Closes every run that a test left open."""
    while _OPEN:
        _OPEN.pop().broker.close()


class Run:
    """One invocation: its broker, its session and its events. `close_runs` ends it."""

    def __init__(self, policy: PolicyEnvelope, services: BrokerServices) -> None:
        self.told = Told()
        self.session = Session(
            tool=TOOL,
            envelope=policy,
            policy_digest="hmac-sha256:00",
            context=EventContext(correlation_id="c0ffee", tool=TOOL.name),
            emitter=self.told,
            deadline=Deadline(policy.wall_time_ms),
            cancel=CancelToken(),
            seed=bytes(32),
        )
        self.broker = InvocationBroker(self.session, services)
        _OPEN.append(self)

    def call(self, capability: str, /, **params: Any) -> Any:
        """Calls the broker."""
        return self.broker.call(capability, **params)

    def refused(self, capability: str, /, **params: Any) -> CapabilityFault:
        """Calls the broker, which must refuse; returns the fault."""
        with pytest.raises(CapabilityFault) as caught:
            self.broker.call(capability, **params)
        return caught.value


@contextlib.contextmanager
def run_of(services: BrokerServices, **fields: Any) -> Iterator[Run]:
    """A run that is closed at the end. `fields` as for `envelope`."""
    run = Run(envelope(**fields), services)
    try:
        yield run
    finally:
        run.broker.close()


def rule_of(fault: CapabilityFault) -> str:
    """The rule that refused: the defence which stopped an attack."""
    return str(fault.details.get("rule", ""))
