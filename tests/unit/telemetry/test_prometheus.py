"""The Prometheus sink, against the real client and its text format."""

import msgspec
import pytest
from audit_logs import CONTEXT, capability, invocation
from prometheus_client import CollectorRegistry, generate_latest

from toolcell.events import AuditClosed, EventContext, MonitorIncident, SandboxViolation
from toolcell.telemetry import Telemetry
from toolcell.telemetry.prometheus import PrometheusSink

TOOL = {"tool": "csv-profile", "version": "1.2.3", "lane": "wasi"}


@pytest.fixture
def registry():
    return CollectorRegistry()


def test_calls_are_counted_and_measured(registry):
    with Telemetry([PrometheusSink(registry)]) as telemetry:
        telemetry.emit(invocation(duration_ms=500.0, queue_wait_ms=2.0, cpu_ms=250.0))
        telemetry.emit(invocation(status=408))
        telemetry.emit(capability(status=403))
        telemetry.emit(SandboxViolation.of(CONTEXT, type="fs", detail="x", severity="hard"))
        telemetry.emit(MonitorIncident.of(CONTEXT, severity="warning", type="x", message="y"))
        assert telemetry.dropped == {}
    value = registry.get_sample_value
    assert value("toolcell_invocations_total", TOOL | {"status": "200"}) == 1
    assert value("toolcell_invocations_total", TOOL | {"status": "408"}) == 1
    assert value("toolcell_invocation_duration_seconds_count", TOOL) == 2
    assert value("toolcell_invocation_duration_seconds_sum", TOOL) == pytest.approx(0.5125)
    assert value("toolcell_queue_wait_seconds_sum", TOOL) == pytest.approx(0.0021)
    assert value("toolcell_cpu_seconds_total", TOOL) == pytest.approx(0.261)
    assert value("toolcell_memory_peak_bytes_sum", TOOL) == 2 << 20
    denied = TOOL | {"capability": "kv.get", "status": "403"}
    assert value("toolcell_capability_calls_total", denied) == 1
    assert value("toolcell_violations_total", TOOL | {"severity": "hard"}) == 1
    assert value("toolcell_incidents_total", TOOL | {"severity": "warning"}) == 1
    assert b"# HELP toolcell_invocations_total Calls that ended." in generate_latest(registry)


def test_tools_beyond_the_bound_share_their_labels(registry):
    sink = PrometheusSink(registry, max_tools=2)
    for number in range(5):
        sink.write(msgspec.structs.replace(invocation(), tool=f"t{number}"))
    shared = {"tool": "(other)", "version": "", "lane": "wasi", "status": "200"}
    assert registry.get_sample_value("toolcell_invocations_total", shared) == 3


def test_events_outside_a_call_count_for_nothing(registry):
    PrometheusSink(registry).write(AuditClosed.of(EventContext(), next="x"))
    assert b'tool="' not in generate_latest(registry)


def test_one_registry_takes_one_sink(registry):
    PrometheusSink(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusSink(registry)
