"""The gate that every capability call goes through, and what it tells."""

import threading
from pathlib import Path
from typing import Any

import pytest
from broker_runs import Run, envelope, rule_of, run_of

from toolcell.broker import BrokerServices
from toolcell.broker.interface import PARAMS
from toolcell.broker.invocation import MAX_TOLD
from toolcell.errors import CallCancelled, InternalError, LimitExceeded
from toolcell.events import CapabilityCalled, MonitorIncident, SandboxViolation
from toolcell.policy.envelope import CAPABILITIES, CapabilityPolicy, KvPolicy, PolicyEnvelope


def test_every_capability_of_the_policy_has_parameters_and_no_other() -> None:
    assert set(PARAMS) == CAPABILITIES


@pytest.mark.parametrize("capability", sorted(CAPABILITIES))
def test_nothing_is_granted_by_default(services: BrokerServices, capability: str) -> None:
    fault = Run(PolicyEnvelope(), services).refused(capability)

    assert (fault.status, rule_of(fault)) == (403, "allowed_host_apis")
    assert capability in fault.remedy


@pytest.mark.parametrize("capability", sorted(CAPABILITIES))
def test_grant_of_one_capability_is_not_a_grant_of_another(
    services: BrokerServices, capability: str
) -> None:
    others = tuple(sorted(CAPABILITIES - {capability}))

    fault = Run(envelope(allowed_host_apis=others), services).refused(capability)

    assert (fault.status, rule_of(fault)) == (403, "allowed_host_apis")


def test_no_egress_refuses_fetch_whatever_the_list_says(services: BrokerServices) -> None:
    fault = Run(envelope(allow_network_egress=False), services).refused("http.fetch", url="x")

    assert (fault.status, rule_of(fault)) == (403, "allow_network_egress")
    assert "allow_network_egress" in fault.message


@pytest.mark.parametrize("capability", sorted(n for n in CAPABILITIES if n.startswith("fs.")))
def test_no_file_io_refuses_files_whatever_the_list_says(
    services: BrokerServices, capability: str
) -> None:
    fault = Run(envelope(allow_file_io=False), services).refused(capability, path="/scratch/x")

    assert (fault.status, rule_of(fault)) == (403, "allow_file_io")
    assert "allow_file_io" in fault.message


@pytest.mark.parametrize(
    "name", ["kv.nope", "kv", "", "__class__", "kv.__init__", "x" * 9999, "a\nb\0"]
)
def test_unknown_capability_is_not_found(services: BrokerServices, name: str) -> None:
    run = Run(envelope(), services)

    fault = run.refused(name)

    assert (fault.status, rule_of(fault)) == (404, "unknown")
    assert len(fault.message) < 200
    assert run.broker.usage.by_capability == {"unknown": 1}
    (event,) = run.told.of(CapabilityCalled)
    assert len(event.name) < 200
    assert event.name.isprintable() or event.name == ""


@pytest.mark.parametrize(
    ("capability", "params"),
    [
        ("kv.get", {}),
        ("kv.get", {"key": None}),
        ("kv.get", {"key": 1}),
        ("kv.get", {"key": b"bytes"}),
        ("kv.get", {"key": ["a"]}),
        ("kv.get", {"key": "a", "extra": 1}),
        ("kv.set", {"key": "a"}),
        ("kv.get", {"key": "lone \udc80 surrogate"}),
        ("kv.get", {"key": ""}),
        ("http.fetch", {"url": "http://x/", "headers": [["only one"]]}),
        ("http.fetch", {"url": "http://x/", "headers": {"a": "b"}}),
        ("http.fetch", {"url": "http://x/", "timeout_ms": 0}),
        ("http.fetch", {"url": "http://x/", "timeout_ms": -1}),
        ("http.fetch", {"url": "http://x/", "timeout_ms": True}),
        ("http.fetch", {"url": "http://x/", "body": "not base64!"}),
        ("images.resize", {"data": b"", "width": 0, "height": 1, "format": "png"}),
        ("images.resize", {"data": b"", "width": 8193, "height": 1, "format": "png"}),
        ("images.resize", {"data": b"", "width": 1, "height": 1, "format": "bmp"}),
        ("log.emit", {"level": "fatal", "message": "x"}),
    ],
)
def test_malformed_parameters_are_refused(
    services: BrokerServices, capability: str, params: dict[str, Any]
) -> None:
    assert Run(envelope(), services).refused(capability, **params).status == 400


def test_deeply_nested_parameters_are_refused(services: BrokerServices) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]

    assert Run(envelope(), services).refused("kv.get", key=nested).status == 400


def test_base64_text_is_taken_for_bytes(services: BrokerServices) -> None:
    with run_of(services) as run:
        run.call("fs.writeBytes", path="/scratch/a", data="AP8=")

        assert run.call("fs.readBytes", path="/scratch/a") == b"\x00\xff"


def test_message_over_its_size_is_refused_before_it_is_read(services: BrokerServices) -> None:
    run = Run(envelope(max_message_bytes=100), services)

    fault = run.refused("kv.set", key="a", value="v" * 100)

    assert (fault.status, rule_of(fault)) == (413, "max_message_bytes")
    assert run.call("kv.get", key="a") is None


def test_answer_over_the_message_size_is_refused(services: BrokerServices) -> None:
    run = Run(envelope(max_message_bytes=100), services)
    for at in range(30):
        run.call("kv.set", key=f"key-{at}", value="")

    fault = run.refused("kv.list", prefix="")

    assert (fault.status, rule_of(fault)) == (413, "max_message_bytes")
    assert run.call("kv.list", prefix="key-29") == ["key-29"]


def test_calls_over_max_requests_are_refused(services: BrokerServices) -> None:
    run = Run(envelope(kv=KvPolicy(max_requests=2)), services)
    run.call("kv.set", key="a", value="1")
    run.call("kv.get", key="a")

    fault = run.refused("kv.get", key="a")

    assert (fault.status, rule_of(fault)) == (429, "max_requests")
    assert "capabilities.kv.max_requests" in fault.remedy


def test_quota_of_one_interface_leaves_another_alone(services: BrokerServices) -> None:
    run = Run(envelope(kv=KvPolicy(max_requests=0)), services)

    assert run.refused("kv.get", key="a").status == 429
    run.call("log.emit", level="info", message="still here")


def test_bytes_in_and_out_count_against_max_bytes(services: BrokerServices) -> None:
    run = Run(envelope(kv=KvPolicy(max_bytes=100)), services)
    run.call("kv.set", key="a", value="v" * 49)  # 50 in
    assert run.call("kv.get", key="a") is not None  # 1 in, 49 out: 100

    fault = run.refused("kv.get", key="a")

    assert (fault.status, rule_of(fault)) == (429, "max_bytes")


def test_one_call_over_the_whole_quota_is_too_large(services: BrokerServices) -> None:
    run = Run(envelope(kv=KvPolicy(max_bytes=10)), services)

    assert run.refused("kv.set", key="a", value="v" * 10).status == 413


def test_call_after_the_deadline_ends_the_run(services: BrokerServices) -> None:
    run = Run(envelope(wall_time_ms=1), services)
    while not run.session.deadline.passed():
        run.session.cancel.wait(0.001)

    with pytest.raises(LimitExceeded) as caught:
        run.call("kv.get", key="a")

    assert caught.value.limit == "wall_time_ms"


def test_call_after_cancellation_ends_the_run(services: BrokerServices) -> None:
    run = Run(envelope(), services)
    run.session.cancel.cancel(CallCancelled("enough"))

    with pytest.raises(CallCancelled, match="enough"):
        run.call("kv.get", key="a")


def test_call_after_close_is_refused(services: BrokerServices) -> None:
    run = Run(envelope(), services)
    run.broker.close()
    run.broker.close()

    assert rule_of(run.refused("kv.get", key="a")) == "closed"


def test_new_broker_opens_nothing(services: BrokerServices, tmp_path: Path) -> None:
    threads, fds = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    run = Run(envelope(), services)
    run.broker.close()

    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) == fds
    assert list(tmp_path.iterdir()) == []


def test_calls_are_counted_and_told(services: BrokerServices) -> None:
    run = Run(envelope(), services)
    run.call("kv.set", key="a", value="12345")
    run.call("kv.get", key="a")
    run.refused("kv.get", key="")
    run.refused("kv.nope")

    usage = run.broker.usage
    assert usage.by_capability == {"kv.set": 1, "kv.get": 2, "unknown": 1}
    assert (usage.calls, usage.refused) == (4, 2)
    assert (usage.bytes_written, usage.bytes_read) == (7, 5)
    told = [(e.name, e.status, e.bytes) for e in run.told.of(CapabilityCalled)]
    assert told == [
        ("kv.set", 200, 6),
        ("kv.get", 200, 6),
        ("kv.get", 400, 0),
        ("kv.nope", 404, 0),
    ]
    assert all(e.correlation_id == "c0ffee" for e in run.told.events)


def test_nothing_of_a_key_or_a_value_is_told(services: BrokerServices) -> None:
    run = Run(envelope(), services)
    run.call("kv.set", key="hush-key", value="hush-value")
    run.call("log.emit", level="info", message="hush")

    assert "hush" not in repr(run.told.events)


def test_denied_call_is_a_soft_violation(services: BrokerServices) -> None:
    run = Run(PolicyEnvelope(), services)
    run.refused("http.fetch", url="http://x/")

    (violation,) = run.told.of(SandboxViolation)
    assert violation.severity == "soft"
    assert violation.type == "capability.allowed_host_apis"
    assert "http.fetch" in violation.detail


def test_malformed_call_is_no_violation(services: BrokerServices) -> None:
    run = Run(envelope(), services)
    run.refused("kv.get", key=1)

    assert run.told.of(SandboxViolation) == []


def test_guest_that_is_refused_in_a_loop_does_not_fill_the_log(services: BrokerServices) -> None:
    run = Run(PolicyEnvelope(), services)
    for _ in range(5000):
        run.refused("http.fetch", url="http://x/")
    run.broker.close()

    *each, rest = run.told.of(CapabilityCalled)
    assert len(each) == len(run.told.of(SandboxViolation)) == MAX_TOLD
    assert (rest.name, rest.status, rest.count) == ("http.fetch", 403, 5000 - MAX_TOLD)
    assert run.broker.usage.refused == 5000, "all of them are counted"


def test_guest_that_calls_in_a_loop_does_not_fill_the_log(services: BrokerServices) -> None:
    run = Run(envelope(), services)
    for _ in range(900):
        run.broker.call("kv.set", key="k", value="four")
    run.broker.close()

    *each, rest = run.told.of(CapabilityCalled)
    assert len(each) == MAX_TOLD
    assert (rest.name, rest.status, rest.count) == ("kv.set", 200, 900 - MAX_TOLD)
    assert rest.bytes == (900 - MAX_TOLD) * each[0].bytes


def test_bug_of_ours_is_told_as_ours_without_its_text(
    services: BrokerServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolcell.broker.kv.capability import KvCapability

    def broken(self: object, call: object, params: object) -> None:
        raise KeyError("/host/path")

    monkeypatch.setattr(KvCapability, "get", broken)
    run = Run(envelope(), services)

    with pytest.raises(InternalError) as caught:
        run.call("kv.get", key="a")

    assert "/host/path" not in str(caught.value)
    assert "c0ffee" in str(caught.value)
    assert [e.status for e in run.told.of(CapabilityCalled)] == [500]


def test_part_that_can_not_be_freed_is_an_incident_and_the_rest_is_freed(
    services: BrokerServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from toolcell.broker.kv.store import MemoryStore

    def broken(self: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(MemoryStore, "close", broken)
    run = Run(envelope(), services)
    run.call("kv.get", key="a")
    run.call("fs.writeText", path="/scratch/a", text="x")

    run.broker.close()

    (incident,) = run.told.of(MonitorIncident)
    assert incident.type == "broker.cleanup"
    assert not any(path.is_file() for path in (tmp_path / "scratch").rglob("*"))


def test_two_runs_share_no_store(services: BrokerServices) -> None:
    with run_of(services) as first, run_of(services) as second:
        first.call("kv.set", key="a", value="1")

        assert second.call("kv.get", key="a") is None


def test_warm_up_loads_without_opening(services: BrokerServices, tmp_path: Path) -> None:
    services.warm_up(sorted(CAPABILITIES))

    assert list(tmp_path.iterdir()) == []


def test_timeout_of_a_sub_policy_shortens_the_call_only(services: BrokerServices) -> None:
    run = Run(envelope(kv=KvPolicy(timeout_ms=60_000), fs=CapabilityPolicy(timeout_ms=1)), services)

    assert run.call("kv.get", key="a") is None
