"""The OpenTelemetry sink, against the real SDK with its in-memory exporters."""

import msgspec
import pytest
from audit_logs import CONTEXT, capability, invocation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from toolcell.events import SandboxTerminated, SandboxViolation
from toolcell.telemetry import Telemetry
from toolcell.telemetry.otel import OtelSink


class Collected:
    """A sink with real providers, and what came out of them."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self.reader])
        self.sink = OtelSink(
            tracer_provider=self.tracer_provider,
            meter_provider=self.meter_provider,
            max_open_calls=3,
        )

    def points(self):
        data = self.reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def shut_down(self):
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()


@pytest.fixture
def collected():
    made = Collected()
    yield made
    made.shut_down()


def test_a_call_is_a_span_with_its_events(collected):
    with Telemetry([collected.sink]) as telemetry:
        telemetry.emit(capability("notes/a"))
        telemetry.emit(SandboxViolation.of(CONTEXT, type="fs", detail="x", severity="soft"))
        end = invocation(duration_ms=20.0)
        telemetry.emit(end)
        telemetry.emit(SandboxTerminated.of(CONTEXT, reason="completed"))
        assert telemetry.dropped == {}
    (span,) = collected.exporter.get_finished_spans()
    assert span.name == "tool.invocation"
    assert (span.end_time, span.end_time - span.start_time) == (end.time_ns, 20_000_000)
    assert span.attributes["toolcell.tool"] == "csv-profile"
    assert span.attributes["toolcell.correlation_id"] == CONTEXT.correlation_id
    assert [event.name for event in span.events] == ["tool.capability", "tool.sandbox.violation"]
    assert dict(span.events[0].attributes) == {
        "toolcell.name": "kv.get",
        "toolcell.status": 200,
        "toolcell.bytes": 12,
        "toolcell.duration_ms": 0.25,
        "toolcell.count": 1,
        "toolcell.target": "notes/a",
    }
    assert span.status.status_code is StatusCode.UNSET


def test_a_failed_call_is_a_failed_span(collected):
    collected.sink.write(invocation(status=408, outcome="limit_exceeded"))
    (span,) = collected.exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "limit_exceeded"


def test_the_span_is_a_child_of_the_callers(collected):
    with collected.tracer_provider.get_tracer("agent").start_as_current_span("plan") as parent:
        collected.sink.write(invocation())
    span = collected.exporter.get_finished_spans()[0]
    assert span.parent.span_id == parent.get_span_context().span_id


def test_the_instruments_measure(collected):
    collected.sink.write(capability())
    collected.sink.write(invocation(duration_ms=500.0, queue_wait_ms=250.0))
    collected.sink.write(SandboxViolation.of(CONTEXT, type="fs", detail="x", severity="hard"))
    points = collected.points()
    assert points["toolcell.invocation.duration"][0].sum == 0.5
    assert points["toolcell.invocation.queue_wait"][0].sum == 0.25
    assert points["toolcell.invocation.memory_peak"][0].sum == 1 << 20
    assert points["toolcell.violations"][0].attributes["severity"] == "hard"
    assert points["toolcell.capability.calls"][0].value == 1


def test_what_is_kept_for_calls_that_never_end_is_bounded(collected):
    for number in range(10):
        for _ in range(200):
            collected.sink.write(msgspec.structs.replace(capability(), correlation_id=str(number)))
    assert list(collected.sink._open) == ["7", "8", "9"]
    collected.sink.write(msgspec.structs.replace(invocation(), correlation_id="9"))
    (span,) = collected.exporter.get_finished_spans()
    assert len(span.events) == 128
    assert span.attributes["toolcell.events_dropped"] == 72


def test_a_call_that_ended_leaves_nothing_behind(collected):
    for _ in range(5):
        collected.sink.write(capability())
        collected.sink.write(invocation())
        collected.sink.write(SandboxTerminated.of(CONTEXT, reason="completed"))
    assert collected.sink._open == {}
