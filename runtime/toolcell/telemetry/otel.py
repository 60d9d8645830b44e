"""The OpenTelemetry sink: one span per call, with its events on it, and the usual instruments.

Owns the names of spans, attributes and instruments. Needs the extra `toolcell[otel]`, and is
imported only by who uses it. Where things are exported to is up to the providers, which belong to
the embedding program: the sink never shuts one down.
"""

import threading
from collections import OrderedDict

import msgspec
from opentelemetry import metrics, trace
from opentelemetry.trace import Status, StatusCode
from opentelemetry.util.types import AttributeValue

from toolcell.events import (
    CapabilityCalled,
    Event,
    SandboxTerminated,
    SandboxViolation,
    ToolInvocation,
)

__all__ = ["OtelSink"]

_SCOPE = "toolcell"
_MAX_EVENTS_PER_CALL = 128
_ERROR_STATUS = 400
_CONTEXT = frozenset(Event.__struct_fields__)


class _Open:
    """What a call that has not ended has emitted so far."""

    __slots__ = ("dropped", "events")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.dropped = 0


class OtelSink:
    """Makes a span `tool.invocation` of each call, as a child of the caller's current span.

    Whatever else a call emits before its end becomes an event of that span: the first 128, the
    rest is counted in its attribute `toolcell.events_dropped`. `max_open_calls`: of how many calls
    events are kept at once, default 1,000; the oldest is forgotten first.

    Providers None: the global ones. Thread-safe.
    """

    name = "otel"
    durable = False

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        max_open_calls: int = 1_000,
    ) -> None:
        self._tracer_provider = tracer_provider or trace.get_tracer_provider()
        self._meter_provider = meter_provider or metrics.get_meter_provider()
        self._tracer = self._tracer_provider.get_tracer(_SCOPE)
        meter = self._meter_provider.get_meter(_SCOPE)
        self._duration = meter.create_histogram(
            "toolcell.invocation.duration", "s", "Wall time of a call, queue included."
        )
        self._queue = meter.create_histogram(
            "toolcell.invocation.queue_wait", "s", "Time that a call waited for its place."
        )
        self._memory = meter.create_histogram(
            "toolcell.invocation.memory_peak", "By", "Peak memory of a cell."
        )
        self._violations = meter.create_counter(
            "toolcell.violations", "{violation}", "Rules that tools went against."
        )
        self._capabilities = meter.create_counter(
            "toolcell.capability.calls", "{call}", "Capability calls."
        )
        self._lock = threading.Lock()
        self._max_open_calls = max_open_calls
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def write(self, event: Event) -> None:
        """Keeps `event` for its call's span, or makes the span where the call is over."""
        labels: dict[str, AttributeValue] = {
            "tool": event.tool,
            "version": event.version,
            "lane": event.lane,
        }
        if isinstance(event, ToolInvocation):
            ended = labels | {"status": event.status}
            self._duration.record(event.duration_ms / 1000, ended)
            self._queue.record(event.queue_wait_ms / 1000, labels)
            self._memory.record(event.memory_peak_bytes, labels)
            self._span(event)
            return
        if isinstance(event, SandboxViolation):
            self._violations.add(1, labels | {"severity": event.severity})
        elif isinstance(event, CapabilityCalled):
            self._capabilities.add(1, labels | {"capability": event.name, "status": event.status})
        # The cell's end follows the span's, and the outcome says the same.
        if event.correlation_id and not isinstance(event, SandboxTerminated):
            self._keep(event)

    def flush(self) -> None:
        """Asks the providers to export what they have, where they can."""
        for provider in (self._tracer_provider, self._meter_provider):
            force_flush = getattr(provider, "force_flush", None)
            if force_flush is not None:
                force_flush()

    def close(self) -> None:
        """Exports what is left. The providers stay as they are."""
        with self._lock:
            self._open.clear()
        self.flush()

    def _keep(self, event: Event) -> None:
        with self._lock:
            call = self._open.setdefault(event.correlation_id, _Open())
            if len(call.events) < _MAX_EVENTS_PER_CALL:
                call.events.append(event)
            else:
                call.dropped += 1
            while len(self._open) > self._max_open_calls:
                self._open.popitem(last=False)

    def _span(self, event: ToolInvocation) -> None:
        with self._lock:
            call = self._open.pop(event.correlation_id, None) or _Open()
        span = self._tracer.start_span(
            str(event.__struct_config__.tag),
            attributes=_attributes(event, everything=True),
            start_time=event.time_ns - int(event.duration_ms * 1e6),
        )
        for each in call.events:
            tag = str(each.__struct_config__.tag)
            span.add_event(tag, _attributes(each, everything=False), each.time_ns)
        if call.dropped:
            span.set_attribute("toolcell.events_dropped", call.dropped)
        if event.status >= _ERROR_STATUS:
            span.set_status(Status(StatusCode.ERROR, event.outcome))
        span.end(event.time_ns)


def _attributes(event: Event, *, everything: bool) -> dict[str, AttributeValue]:
    """The event's fields; without `everything`, those that are not the call's in common."""
    return {
        f"toolcell.{name}": value
        if isinstance(value, str | bool | int | float)
        else msgspec.json.encode(value).decode()
        for name, value in msgspec.structs.asdict(event).items()
        if name != "time_ns" and (everything or name not in _CONTEXT)
    }
