"""The lane contract, run over each installed lane and over the fake one.

What holds here holds for whoever calls through `Runtime`, whatever is under it.
"""

import sys
import threading
import time

import pytest
from installation import Installation

from toolcell.errors import CallCancelled, ToolFault
from toolcell.fake_lane import FakeLane
from toolcell.lane import Lane
from toolcell.lanes import discover
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.runtime import Runtime

pytestmark = pytest.mark.slow

GRANT = PolicyEnvelope(allowed_host_apis=("kv.get", "kv.set", "log.emit"))


def _fail(value, _session):
    raise ValueError(value["message"])


def _spin(_value, session):
    while True:
        session.check(cpu_ms=0.0)


def _sleep(value, session):
    session.wait(value["seconds"])
    return "awake"


def _store(value, session):
    session.broker.call("kv.set", key=value["key"], value=value["value"])
    return session.broker.call("kv.get", key=value["key"])


def _say(value, session):
    session.broker.call("log.emit", level="info", message=value["line"])


FAKES = {
    "echo": lambda value, _session: value["value"],
    "fail": _fail,
    "spin": _spin,
    "sleep": _sleep,
    "remember": lambda value, _session: [value["word"]],
    "store": _store,
    "say": _say,
}


def fake_lane() -> FakeLane:
    return FakeLane({("contract", method): handler for method, handler in FAKES.items()})


@pytest.fixture(scope="module", params=["fake", *sorted(discover())])
def lane(request) -> Lane:
    """The lane under test, not yet configured."""
    return fake_lane() if request.param == "fake" else discover()[request.param]


@pytest.fixture(scope="module")
def runtime(lane, new_home, archive_of, oops_archive_of):
    """A runtime whose only lane is the one under test, with the guest prepared."""
    installation = Installation(new_home())
    archive = oops_archive_of if lane.name == "oops" else archive_of
    installation.publish(archive("contract"))
    with Runtime(installation.home.root, lanes={lane.name: lane}) as made:
        made.prepare("contract", policy=GRANT)
        yield made


def call(runtime, method, value=None, **options):
    return runtime.invoke("contract", method, value, policy=options.pop("policy", GRANT), **options)


def limited(**limits) -> PolicyEnvelope:
    return PolicyEnvelope(allowed_host_apis=GRANT.allowed_host_apis, **limits)


def test_a_value_comes_back_as_it_went_in(runtime, lane):
    value = {"text": "é\u2028\U0001f600", "numbers": [0, -1, 1.5, 2**53], "none": None, "yes": True}
    result = call(runtime, "echo", {"value": value})
    assert result.value() == value
    assert (result.status, result.lane, result.isolation) == (200, lane.name, lane.isolation)
    assert result.metrics.bytes_in > 0
    assert result.metrics.bytes_out > 0


def test_a_large_value_comes_back_whole(runtime):
    value = "é" * 400_000
    assert call(runtime, "echo", {"value": value}).value() == value


def test_a_result_over_the_limit_is_too_large(runtime):
    result = call(runtime, "echo", {"value": "x" * 5000}, policy=limited(max_output_bytes=4000))
    assert result.status == 413
    assert result.error.details["limit"] == "max_output_bytes"


def test_an_exception_is_a_fault_with_the_author_s_message(runtime):
    result = call(runtime, "fail", {"message": "no such luck"})
    assert result.status == 500
    assert isinstance(result.error, ToolFault)
    assert "no such luck" in result.error.message


def test_each_call_has_a_fresh_cell(runtime):
    assert call(runtime, "remember", {"word": "one"}).value() == ["one"]
    assert call(runtime, "remember", {"word": "two"}).value() == ["two"]


def test_capabilities_go_through_the_broker(runtime):
    result = call(runtime, "store", {"key": "k", "value": "v"})
    assert result.value() == "v"
    assert result.metrics.capability_calls == 2


def test_the_store_of_a_call_is_gone_after_it(runtime):
    call(runtime, "store", {"key": "k", "value": "v"}).value()
    again = call(runtime, "store", {"key": "other", "value": "w"})
    assert again.value() == "w"


def test_a_capability_that_is_not_granted_is_refused_by_name(runtime):
    only_set = PolicyEnvelope(allowed_host_apis=("kv.set", "log.emit"))
    result = call(runtime, "store", {"key": "k", "value": "v"}, policy=only_set)
    assert result.status == 403
    assert "kv.get" in result.error.message


def test_log_lines_come_with_the_result(runtime):
    result = call(runtime, "say", {"line": "hello"})
    assert [(line.level, line.message) for line in result.log] == [("info", "hello")]


@pytest.mark.parametrize(("method", "value"), [("spin", {}), ("sleep", {"seconds": 60})])
def test_the_wall_deadline_ends_a_call_that_computes_or_blocks(runtime, method, value):
    started = time.monotonic()
    result = call(runtime, method, value, policy=limited(wall_time_ms=150))
    assert result.status == 408
    assert result.error.details["limit"] == "wall_time_ms"
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(("method", "value"), [("spin", {}), ("sleep", {"seconds": 60})])
def test_a_kill_ends_a_call_with_its_reason(runtime, method, value):
    handle = runtime.start("contract", method, value, policy=GRANT)
    until(lambda: handle.status == "running")
    assert handle.kill("the operator said so")
    result = handle.wait(timeout_ms=5000)
    assert result.status == 499
    assert isinstance(result.error, CallCancelled)
    assert "the operator said so" in result.error.message
    assert not handle.kill("again")


def test_calls_from_many_threads_do_not_meet(runtime):
    call(runtime, "echo", {"value": 0}).value()
    answers: dict[int, object] = {}

    def one(number: int) -> None:
        answers[number] = call(runtime, "echo", {"value": number}).value()

    threads = [threading.Thread(target=one, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {n: n for n in range(24)}


def until(condition) -> None:
    done = threading.Event()
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, sys._getframe(1).f_code.co_name
        done.wait(0.002)
