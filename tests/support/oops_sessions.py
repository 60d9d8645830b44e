"""A session with the real broker, for the parts of the oops lane that need one."""

from toolcell.broker import BrokerServices, InvocationBroker
from toolcell.events import EventContext
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import CancelToken, Deadline, Session, ToolRef

SERVICES = BrokerServices()


class Events(list):
    """An emitter that keeps what it is told."""

    def emit(self, event):
        self.append(event)


def make_session(**fields):
    """A session under an envelope of `fields`, the deadline running from now."""
    envelope = PolicyEnvelope(**fields)
    session = Session(
        tool=ToolRef(id="tool-id", name="t", version="1.0.0", digest=""),
        envelope=envelope,
        policy_digest="hmac-sha256:aa",
        context=EventContext(correlation_id="call-1"),
        emitter=Events(),
        deadline=Deadline(envelope.wall_time_ms),
        cancel=CancelToken(),
        seed=bytes(32),
    )
    session.broker = InvocationBroker(session, SERVICES)
    return session
