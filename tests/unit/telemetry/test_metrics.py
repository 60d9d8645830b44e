"""Metrics: percentiles, rates and levels per tool and version, in bounded memory."""

import random

import msgspec
import pytest
from audit_logs import CONTEXT, capability, invocation

from toolcell.events import AuditClosed, EventContext, MonitorIncident, SandboxViolation
from toolcell.telemetry.metrics import OTHER, Histogram, MetricsSink


@pytest.fixture
def sink():
    return MetricsSink()


def of_the_tool(sink):
    return sink.snapshot()["tools"]["csv-profile@1.2.3"]


@pytest.mark.parametrize("spread", ["uniform", "lognormal", "constant"])
def test_percentiles_are_within_their_error(spread):
    generator = random.Random(7)
    draw = {
        "uniform": lambda: generator.uniform(0.01, 50),
        "lognormal": lambda: generator.lognormvariate(1, 2),
        "constant": lambda: 3.5,
    }[spread]
    values = sorted(draw() for _ in range(5_000))
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    for share in (0.01, 0.5, 0.95, 0.99, 1.0):
        exact = values[max(0, int(share * len(values)) - 1)]
        assert histogram.percentile(share) == pytest.approx(exact, rel=0.025)
    assert histogram.highest == values[-1]


def test_a_histogram_takes_any_number_and_does_not_grow():
    histogram = Histogram()
    for value in (0.0, -1.0, 1e-9, 1e300, float("nan"), float("inf")):
        histogram.record(value)
    assert histogram.count == 4
    for exponent in range(-300, 300):
        histogram.record(10.0**exponent)
    assert len(histogram._buckets) <= 601
    assert Histogram().summary() == {"p50": 0.0, "p95": 0.0, "p99": 0.0, "mean": 0.0, "max": 0.0}


def test_durations_errors_and_levels_are_kept_per_tool_and_version(sink):
    sink.write(invocation(duration_ms=10.0, memory_peak_bytes=100))
    sink.write(invocation(duration_ms=20.0, memory_peak_bytes=300, status=408))
    sink.write(msgspec.structs.replace(invocation(), version="2.0.0"))
    shown = of_the_tool(sink)
    assert (shown["calls"], shown["errors"], shown["error_rate"]) == (2, 1, 0.5)
    assert shown["statuses"] == {"200": 1, "408": 1}
    assert shown["memory_peak_bytes"] == {"mean": 200, "peak": 300}
    assert shown["duration_ms"]["max"] == 20.0
    assert shown["duration_ms"]["p50"] == pytest.approx(10, rel=0.02)
    assert shown["bytes_in"] == 200
    assert sink.snapshot()["tools"]["csv-profile@2.0.0"]["calls"] == 1


def test_violations_and_incidents_are_counted_by_kind(sink):
    sink.write(invocation())
    for severity in ("hard", "soft", "soft"):
        sink.write(SandboxViolation.of(CONTEXT, type="fs", detail="x", severity=severity))
    sink.write(MonitorIncident.of(CONTEXT, severity="warning", type="throttle", message="x"))
    shown = of_the_tool(sink)
    assert shown["violations"] == {"hard:fs": 1, "soft:fs": 2}
    assert shown["violation_rate"] == 3.0
    assert shown["incidents"] == {"warning:throttle": 1}


def test_capability_calls_are_counted_by_name(sink):
    sink.write(capability(bytes=5))
    sink.write(capability(bytes=7, status=403))
    assert of_the_tool(sink)["capabilities"] == {"kv.get": {"calls": 2, "errors": 1, "bytes": 12}}


def test_tools_and_kinds_beyond_the_bound_share_an_entry():
    sink = MetricsSink(max_series=2)
    for number in range(10):
        context = EventContext(tool=f"t{number}", version="1")
        sink.write(msgspec.structs.replace(invocation(), tool=context.tool, version="1"))
    assert set(sink.snapshot()["tools"]) == {"t0@1", "t1@1", OTHER}
    assert sink.snapshot()["tools"][OTHER]["calls"] == 8
    sink = MetricsSink()
    for number in range(200):
        sink.write(SandboxViolation.of(CONTEXT, type=str(number), detail="", severity="soft"))
        sink.write(capability(name=f"x.{number}"))
    shown = of_the_tool(sink)
    assert len(shown["violations"]) == len(shown["capabilities"]) == 65
    assert shown["violations"][OTHER] == 136


def test_events_outside_a_call_count_for_nothing(sink):
    sink.write(AuditClosed.of(EventContext(), next="x"))
    assert sink.snapshot()["tools"] == {}


def test_a_snapshot_is_json_and_a_reset_begins_anew(sink):
    sink.write(invocation())
    msgspec.json.encode(sink.snapshot())
    before = sink.snapshot()["since_ns"]
    sink.reset()
    assert sink.snapshot()["tools"] == {}
    assert sink.snapshot()["since_ns"] >= before
