"""Session: one answer to "may I go on?", whatever the reason to stop."""

import threading

import pytest

from toolcell.errors import CallCancelled, LimitExceeded
from toolcell.events import EventContext
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import CancelToken, Deadline, Session, ToolRef


def session(**limits) -> Session:
    envelope = PolicyEnvelope(**limits)
    return Session(
        tool=ToolRef("id", "t", "1.0.0", "sha256:0"),
        envelope=envelope,
        policy_digest="d",
        context=EventContext(),
        emitter=None,
        deadline=Deadline(envelope.wall_time_ms),
        cancel=CancelToken(),
        seed=bytes(32),
    )


def test_a_fresh_session_may_go_on():
    assert session().stop_reason(cpu_ms=1.0) is None


def test_a_wait_ends_at_the_deadline_not_at_its_own_time():
    run = session(wall_time_ms=20)
    with pytest.raises(LimitExceeded) as caught:
        run.wait(60)
    assert caught.value.limit == "wall_time_ms"
    assert caught.value.status == 408
    assert 20 <= caught.value.used < 5000


def test_a_wait_ends_when_the_call_is_cancelled():
    run = session()
    reason = CallCancelled("enough")
    timer = threading.Timer(0.02, run.cancel.cancel, [reason])
    timer.start()
    with pytest.raises(CallCancelled, match="enough"):
        run.wait(60)
    timer.join()


def test_cpu_time_over_its_limit_is_a_408_with_the_figures():
    error = session(cpu_time_ms=10).stop_reason(cpu_ms=11.5)
    assert isinstance(error, LimitExceeded)
    assert (error.status, error.limit, error.allowed, error.used) == (408, "cpu_time_ms", 10, 11.5)


def test_the_first_reason_to_cancel_stays():
    token = CancelToken()
    assert token.cancel(CallCancelled("first"))
    assert not token.cancel(CallCancelled("second"))
    assert token.error.message == "first"


def test_a_callback_runs_at_once_where_the_token_was_cancelled_before():
    token = CancelToken()
    token.cancel()
    seen = []
    token.on_cancel(lambda: seen.append(1))
    assert seen == [1]


def test_a_forgotten_callback_does_not_run():
    token = CancelToken()
    seen = []
    token.on_cancel(lambda: seen.append(1))()
    token.cancel()
    assert seen == []
