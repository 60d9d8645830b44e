"""Runtime over the fake lane: what holds around a cell, whatever the cell is."""

import msgspec
import pytest
from installation import fake_archive
from runtime_lab import echo, in_threads

from toolcell.artifact.manifest import SandboxNeeds
from toolcell.errors import (
    InternalError,
    InvalidInput,
    LimitExceeded,
    ToolFault,
)
from toolcell.fake_lane import FakeLane
from toolcell.lane import Probe
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.runtime import Runtime
from toolcell.trust.edit import revoke_key


def test_a_call_tells_spawned_invocation_and_terminated_in_this_order(lab):
    made = lab()
    result = made.runtime.invoke("fake", "go", {"n": 1})
    assert made.told() == ["tool.sandbox.spawned", "tool.invocation", "tool.sandbox.terminated"]
    assert {event.correlation_id for event in made.sink.events()} == {result.correlation_id}
    assert {event.policy_digest for event in made.sink.events()} == {result.policy_digest}


def test_an_unknown_tool_is_a_404_and_tells_of_no_cell(lab):
    made = lab()
    result = made.runtime.invoke("nobody", "go")
    assert (result.status, result.artifact_digest, made.told()) == (404, "", [])


def test_an_unknown_method_is_a_404_that_names_the_known_ones(lab):
    result = lab().runtime.invoke("fake", "stop")
    assert result.status == 404
    assert "`block`" in result.error.message
    assert "`go`" in result.error.message


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"a":1,"a":2}', b"NaN", b"[" * 5000])
def test_malformed_json_is_a_400_and_nothing_runs(lab, raw):
    made = lab()
    result = made.runtime.invoke_json("fake", "go", raw)
    assert result.status == 400
    assert "tool.sandbox.spawned" not in made.told()


def test_input_over_the_message_limit_is_a_413_with_the_figures(lab):
    policy = PolicyEnvelope(max_message_bytes=100)
    result = lab().runtime.invoke("fake", "go", {"text": "x" * 200}, policy=policy)
    assert result.status == 413
    assert "100" in result.error.message


def test_an_input_that_json_can_t_hold_is_refused_before_anything_else(lab):
    with pytest.raises(InvalidInput) as caught:
        lab().runtime.invoke("fake", "go", {"object": object()})
    assert caught.value.status == 400


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_has_no_word_for_is_refused_and_not_made_null(lab, number):
    made = lab()
    for value in ({"n": number}, [[number]], {"a": {"b": (1, number)}}):
        with pytest.raises(InvalidInput):
            made.runtime.invoke("fake", "go", value)
    assert made.runtime.invoke("fake", "go", {"n": None}).ok


def test_a_bug_of_ours_is_an_internal_error_with_the_correlation_id(lab, monkeypatch):
    made = lab()

    def broken(*_args, **_options):
        raise ZeroDivisionError("a path: /etc/secret")

    monkeypatch.setattr(made.runtime._planner, "plan", broken)
    result = made.runtime.invoke("fake", "go")
    assert isinstance(result.error, InternalError)
    assert result.correlation_id in result.error.message
    assert "secret" not in result.error.message
    assert isinstance(result.error.__cause__, ZeroDivisionError)


def test_a_revoked_key_stops_the_very_next_call(lab):
    made = lab()
    assert made.runtime.invoke("fake", "go").ok
    revoke_key(made.installation.home.trust, made.installation.key.public.id, "laptop stolen")
    result = made.runtime.invoke("fake", "go")
    assert result.status == 403
    assert "laptop stolen" in result.error.message
    assert made.told()[-1] == "tool.sandbox.violation"


def test_an_artifact_is_prepared_once_however_many_call(lab):
    made = lab()
    threads = in_threads(8, lambda n: made.runtime.invoke("fake", "go", {"n": n}).value())
    for thread in threads:
        thread.join()
    assert made.lane.prepared == 1


def test_output_off_its_schema_is_the_tool_s_fault(installation):
    installation.publish(fake_archive(output={"type": "integer"}))
    lane = FakeLane({("fake", "go"): echo})
    with Runtime(installation.home.root, lanes={"wasi": lane}) as runtime:
        assert runtime.invoke("fake", "go", 5).output == 5
        result = runtime.invoke("fake", "go", "five")
    assert (result.status, result.output) == (500, None)
    assert isinstance(result.error, ToolFault)


def test_a_tool_that_exceeds_a_limit_is_a_violation_in_the_log(lab):
    def greedy(_value, _session):
        raise LimitExceeded("memory_mb", allowed=128, used=200)

    made = lab({"go": greedy})
    result = made.runtime.invoke("fake", "go")
    assert (result.status, result.error.code) == (500, "limit_exceeded")
    violation = next(e for e in made.sink.events() if type(e).__name__ == "SandboxViolation")
    assert (violation.type, violation.severity) == ("memory_mb", "hard")


def test_a_fault_keeps_the_status_of_the_capability_that_it_let_through(lab):
    made = lab({"go": lambda _value, session: session.broker.call("kv.get", key="k")})
    result = made.runtime.invoke("fake", "go")
    assert isinstance(result.error, ToolFault)
    assert result.status == 403
    assert "kv.get" in result.error.message


def test_a_lane_that_does_not_work_here_is_a_503_with_feature_and_remedy(installation):
    installation.publish(fake_archive())
    broken = Probe(available=False, reason="no such thing as a cell", remedy="get one")
    lane = FakeLane({}, probe=broken)
    with Runtime(installation.home.root, lanes={"wasi": lane}) as runtime:
        result = runtime.invoke("fake", "go")
    assert result.status == 503
    assert result.error.details["feature"]
    assert result.error.remedy == "get one"
    assert lane.prepared == 0


def test_a_backend_that_the_manifest_demands_and_nobody_has_is_a_503(installation):
    needs = msgspec.to_builtins(SandboxNeeds(backend="gvisor"))
    installation.publish(fake_archive(sandbox=needs))
    with Runtime(installation.home.root, lanes={"wasi": FakeLane({})}) as runtime:
        result = runtime.invoke("fake", "go")
    assert result.status == 503
    assert "gvisor" in result.error.message
