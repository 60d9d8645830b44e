"""Runtime over the fake lane: what holds around a cell, whatever the cell is."""

import asyncio
import threading
import time

import msgspec
import pytest
from installation import fake_archive

from toolcell.artifact.attest import content_digest, verify_result
from toolcell.artifact.manifest import SandboxNeeds
from toolcell.errors import (
    CapabilityFault,
    InternalError,
    InvalidInput,
    LimitExceeded,
    QueueFull,
    ToolFault,
)
from toolcell.fake_lane import FakeLane
from toolcell.lane import Probe
from toolcell.policy.envelope import CapabilityPolicies, HttpPolicy, PolicyEnvelope
from toolcell.runtime import Runtime
from toolcell.telemetry.memory import MemorySink
from toolcell.trust.edit import revoke_key
from toolcell.trust.keys import SigningKey
from toolcell.trust.store import TrustedKey, TrustStore

FIVE_SECONDS = 5


def echo(value, _session):
    return value


def block(_value, session):
    session.wait(60)


class Lab:
    """A runtime over a fake lane with one tool, and what it told."""

    def __init__(self, installation, handlers, **options):
        self.installation = installation
        self.sink = MemorySink()
        self.lane = FakeLane({("fake", name): handler for name, handler in handlers.items()})
        installation.publish(fake_archive(methods=tuple(handlers)))
        self.runtime = Runtime(
            installation.home.root, lanes={"wasi": self.lane}, sinks=(self.sink,), **options
        )

    def told(self) -> list[str]:
        return [msgspec.to_builtins(event)["event"] for event in self.sink.events()]


@pytest.fixture
def lab(installation):
    made: list[Lab] = []

    def make(handlers=None, **options) -> Lab:
        made.append(Lab(installation, handlers or {"go": echo, "block": block}, **options))
        return made[-1]

    yield make
    for each in made:
        each.runtime.close()


def in_threads(count, target):
    threads = [threading.Thread(target=target, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    return threads


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


class SlowLane(FakeLane):
    """Preparing takes until `ready` is set, or until the lane is interrupted."""

    def __init__(self, handlers):
        super().__init__(handlers)
        self.ready = threading.Event()
        self.interrupted = False

    def prepare(self, artifact):
        self.ready.wait()
        if self.interrupted:
            raise InternalError("interrupted")
        return super().prepare(artifact)

    def interrupt(self):
        self.interrupted = True
        self.ready.set()


def test_the_caller_s_timeout_covers_preparing_which_goes_on_for_the_next(installation):
    installation.publish(fake_archive())
    lane = SlowLane({("fake", "go"): echo})
    with Runtime(installation.home.root, lanes={"wasi": lane}) as runtime:
        result = runtime.invoke("fake", "go", timeout_ms=30)
        assert (result.status, result.error.details["limit"]) == (408, "timeout_ms")
        assert "prepare" in result.error.remedy
        lane.ready.set()
        assert runtime.invoke("fake", "go", timeout_ms=5000).ok
    assert lane.prepared == 1


def test_closing_does_not_wait_for_what_is_being_prepared(installation):
    installation.publish(fake_archive())
    lane = SlowLane({("fake", "go"): echo})
    runtime = Runtime(installation.home.root, lanes={"wasi": lane})
    handle = runtime.start("fake", "go")
    until(lambda: handle.status == "running")
    runtime.close()
    assert handle.wait(0).status in {499, 500}
    assert lane.closed


def test_a_timeout_of_the_caller_is_told_as_such(lab):
    result = lab().runtime.invoke("fake", "block", timeout_ms=40)
    assert result.status == 408
    assert result.error.details["limit"] == "timeout_ms"
    assert "timeout_ms" in result.error.remedy


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


def test_a_full_runtime_refuses_with_429_after_the_call_s_own_patience(lab):
    made = lab(max_concurrency=1)
    running = made.runtime.start("fake", "block")
    until(lambda: "tool.sandbox.spawned" in made.told())
    result = made.runtime.invoke("fake", "go", timeout_ms=30)
    assert isinstance(result.error, QueueFull)
    assert (result.status, result.error.details["limit"]) == (429, 1)
    running.kill("done")
    assert running.wait(FIVE_SECONDS * 1000).status == 499
    assert made.runtime.invoke("fake", "go").ok


def test_queue_wait_is_measured(lab):
    made = lab(max_concurrency=1)
    running = made.runtime.start("fake", "block")
    until(lambda: "tool.sandbox.spawned" in made.told())
    threading.Timer(0.1, running.kill, ["make room"]).start()
    result = made.runtime.invoke("fake", "go")
    assert result.ok
    assert result.metrics.queue_wait_ms > 10


def test_too_many_started_calls_are_refused_at_once(lab):
    made = lab(max_concurrency=1, queue_length=1)
    handles = [made.runtime.start("fake", "block") for _ in range(2)]
    with pytest.raises(QueueFull):
        made.runtime.start("fake", "go")
    for handle in handles:
        handle.kill("enough")
    assert [handle.wait(FIVE_SECONDS * 1000).status for handle in handles] == [499, 499]


def test_a_handle_says_where_its_call_is(lab):
    made = lab(max_concurrency=1)
    first = made.runtime.start("fake", "block")
    until(lambda: first.status == "running")
    second = made.runtime.start("fake", "go")
    assert second.status == "queued"
    with pytest.raises(TimeoutError):
        first.wait(timeout_ms=10)
    first.kill("next, please")
    assert second.wait(FIVE_SECONDS * 1000).ok
    assert (first.status, second.status) == ("done", "done")


def test_map_keeps_the_order_and_reads_no_further_ahead_than_it_runs(lab):
    made = lab(max_concurrency=2)
    read = []

    def inputs():
        for n in range(100):
            read.append(n)
            yield {"n": n}

    results = made.runtime.map("fake", "go", inputs())
    assert [next(results).output["n"] for _ in range(3)] == [0, 1, 2]
    assert len(read) <= 5
    results.close()
    assert made.runtime.invoke("fake", "go").ok


def test_leaving_a_map_early_ends_its_calls(lab):
    made = lab({"go": lambda value, session: session.wait(value["s"])}, max_concurrency=2)
    started = time.monotonic()
    results = made.runtime.map("fake", "go", [{"s": 0}, {"s": 60}, {"s": 60}])
    assert next(results).ok
    results.close()
    assert time.monotonic() - started < FIVE_SECONDS


def test_closing_ends_running_calls_and_refuses_new_ones(lab):
    made = lab()
    handle = made.runtime.start("fake", "block")
    until(lambda: "tool.sandbox.spawned" in made.told())
    made.runtime.close()
    assert handle.wait(0).status == 499
    assert made.lane.closed
    with pytest.raises(InternalError, match="closed"):
        made.runtime.invoke("fake", "go")
    made.runtime.close()


def test_cancelling_a_task_ends_the_cell_before_it_is_raised(lab):
    made = lab()

    async def run():
        task = asyncio.create_task(made.runtime.ainvoke("fake", "block"))
        while "tool.sandbox.spawned" not in made.told():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert made.told()[-1] == "tool.sandbox.terminated"

    asyncio.run(asyncio.wait_for(run(), FIVE_SECONDS))


def test_ainvoke_gives_the_result(lab):
    made = lab()
    assert asyncio.run(made.runtime.ainvoke("fake", "go", {"n": 2})).output == {"n": 2}


def test_ctrl_c_in_the_caller_leaves_no_cell_and_is_raised(lab):
    def interrupted(_value, _session):
        raise KeyboardInterrupt

    made = lab({"go": interrupted})
    with pytest.raises(KeyboardInterrupt):
        made.runtime.invoke("fake", "go")
    assert made.told()[-1] == "tool.sandbox.terminated"
    assert made.runtime._active == set()


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


def test_a_result_has_no_error_field_where_it_succeeded(lab):
    out = lab().runtime.invoke("fake", "go", {"n": 1}).to_dict()
    assert "error" not in out
    assert msgspec.json.decode(msgspec.json.encode(out)) == out


def test_a_refused_capability_comes_with_the_operator_s_remedy(lab):
    def careful_guest(_value, session):
        try:
            session.broker.call("kv.get", key="k")
        except CapabilityFault as fault:
            raise ToolFault(fault.message, status=fault.status) from None

    result = lab({"go": careful_guest}).runtime.invoke("fake", "go")
    assert result.status == 403
    assert "allowed_host_apis" in result.error.remedy
    assert result.error.details["capability"] == "kv.get"


def test_dropped_log_lines_are_a_warning(installation):
    def chatty(_value, session):
        for _ in range(50):
            session.broker.call("log.emit", level="info", message="again")

    installation.publish(fake_archive(capabilities=("log.emit",)))
    policy = PolicyEnvelope(allowed_host_apis=("log.emit",), log_rate=10)
    lane = FakeLane({("fake", "go"): chatty})
    with Runtime(installation.home.root, lanes={"wasi": lane}) as runtime:
        result = runtime.invoke("fake", "go", policy=policy)
    assert result.ok
    assert any("log lines were dropped" in warning for warning in result.warnings)


def test_a_tool_that_is_not_found_is_named_in_the_result(lab):
    assert lab().runtime.invoke("nobody", "go").tool == "nobody"


def test_a_success_is_attested_where_the_runtime_has_a_key(lab):
    key = SigningKey.generate()
    made = lab(result_key=key)
    result = made.runtime.invoke("fake", "go", {"n": 1})
    trust = TrustStore([TrustedKey(publisher="host", public=key.public)])
    attested, signer = verify_result(result.attestation.encode(), trust)
    assert signer.publisher == "host"
    assert attested.input_digest == attested.output_digest == content_digest(b'{"n":1}')
    assert attested.policy_digest == result.policy_digest
    assert attested.artifact_digest == result.artifact_digest
    assert made.runtime.invoke("fake", "nothing").attestation == ""


def test_a_secret_that_was_used_shows_in_no_error_and_no_event(installation):
    """Even where it found its way into a message: the broker tells the redactor before it sends."""
    secret = "correct-horse-battery-staple"

    def careless(_value, session):
        with pytest.raises(CapabilityFault):
            session.broker.call(
                "http.fetch",
                method="GET",
                url="http://localhost:9/",
                headers=[],
                body=b"",
                credential="api",
                timeout_ms=None,
            )
        raise ToolFault(f"the server did not like {secret}", guest_detail=f"x {secret} y")

    installation.home.secrets.write_text(
        f'[api]\ndomains = ["localhost"]\nvalue = "{secret}"\ninsecure = true\n'
    )
    installation.home.secrets.chmod(0o600)
    http = HttpPolicy(domains=("localhost",), schemes=("http",), ports=(9,), credentials=("api",))
    policy = PolicyEnvelope(
        allow_network_egress=True,
        network="outbound-https-only",
        allowed_host_apis=("http.fetch",),
        capabilities=CapabilityPolicies(http=http),
    )
    installation.publish(fake_archive(capabilities=("http.fetch",)))
    ready = Probe(available=True, features={"network=outbound-https-only": ""})
    lane = FakeLane({("fake", "go"): careless}, probe=ready)
    with Runtime(installation.home.root, lanes={"wasi": lane}) as runtime:
        result = runtime.invoke("fake", "go", policy=policy)
    assert result.error.message == "the server did not like <redacted>"
    assert secret not in str(result.to_dict())
    assert secret not in installation.home.audit.read_text()


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


def until(condition) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + FIVE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        pause.wait(0.002)
