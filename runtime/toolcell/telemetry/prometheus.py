"""The Prometheus sink: the figures of `metrics` in the form that Prometheus scrapes.

Owns the names and labels of the series. Needs the extra `toolcell[prometheus]`, and is imported
only by who uses it. Serving them over HTTP is the embedding program's business
(`prometheus_client.start_http_server`, or its ASGI and WSGI applications).
"""

import threading

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from toolcell.events import (
    CapabilityCalled,
    Event,
    MonitorIncident,
    SandboxViolation,
    ToolInvocation,
)
from toolcell.telemetry.metrics import OTHER

__all__ = ["PrometheusSink"]

_SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
_BYTES = tuple(float(1 << power) for power in range(16, 33, 2))
_TOOL = ("tool", "version", "lane")


class PrometheusSink:
    """Counts and measures in `registry`, by default the process-wide one. Thread-safe.

    `max_tools`: how many versions of tools get labels of their own, default 500; later ones share
    `(other)`, since every label is a series that lives as long as the process.

    Raises ValueError where the registry has these series already: one sink per registry.
    """

    name = "prometheus"
    durable = False

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, max_tools: int = 500) -> None:
        self._lock = threading.Lock()
        self._tools: set[tuple[str, str]] = set()
        self._max_tools = max_tools
        self._invocations = Counter(
            "toolcell_invocations", "Calls that ended.", (*_TOOL, "status"), registry=registry
        )
        self._duration = Histogram(
            "toolcell_invocation_duration_seconds",
            "Wall time of a call, queue included.",
            _TOOL,
            registry=registry,
            buckets=_SECONDS,
        )
        self._queue = Histogram(
            "toolcell_queue_wait_seconds",
            "Time that a call waited for its place.",
            _TOOL,
            registry=registry,
            buckets=_SECONDS,
        )
        self._cpu = Counter("toolcell_cpu_seconds", "CPU time of cells.", _TOOL, registry=registry)
        self._memory = Histogram(
            "toolcell_memory_peak_bytes",
            "Peak memory of a cell.",
            _TOOL,
            registry=registry,
            buckets=_BYTES,
        )
        self._violations = Counter(
            "toolcell_violations",
            "Rules that tools went against.",
            (*_TOOL, "severity"),
            registry=registry,
        )
        self._incidents = Counter(
            "toolcell_incidents",
            "Incidents of the monitor.",
            (*_TOOL, "severity"),
            registry=registry,
        )
        self._capabilities = Counter(
            "toolcell_capability_calls",
            "Capability calls.",
            (*_TOOL, "capability", "status"),
            registry=registry,
        )

    def write(self, event: Event) -> None:
        """Counts `event`. One outside a call counts for nothing."""
        if not event.tool:
            return
        tool = self._labels(event)
        if isinstance(event, ToolInvocation):
            self._invocations.labels(*tool, str(event.status)).inc()
            self._duration.labels(*tool).observe(event.duration_ms / 1000)
            self._queue.labels(*tool).observe(event.queue_wait_ms / 1000)
            self._cpu.labels(*tool).inc(max(0.0, event.cpu_ms / 1000))
            self._memory.labels(*tool).observe(event.memory_peak_bytes)
        elif isinstance(event, CapabilityCalled):
            self._capabilities.labels(*tool, event.name, str(event.status)).inc(event.count)
        elif isinstance(event, SandboxViolation):
            self._violations.labels(*tool, event.severity).inc()
        elif isinstance(event, MonitorIncident):
            self._incidents.labels(*tool, event.severity).inc()

    def flush(self) -> None:
        """Nothing to do: Prometheus comes and reads."""

    def close(self) -> None:
        """Nothing to do: what was counted can still be read."""

    def _labels(self, event: Event) -> tuple[str, str, str]:
        key = (event.tool, event.version)
        with self._lock:
            if key not in self._tools:
                if len(self._tools) >= self._max_tools:
                    return OTHER, "", event.lane
                self._tools.add(key)
        return event.tool, event.version, event.lane
