"""Metrics: what a dashboard asks for, added up in this process from the events that pass by.

Owns the aggregates per tool and version: how long, how often wrong, how much memory, how long in
the queue. Bounded whatever comes: a histogram has a fixed number of buckets, and tools beyond
`max_series` share one entry. A sink like any other; never durable.
"""

import math
import threading
import time
from typing import Any

from toolcell.events import (
    CapabilityCalled,
    Event,
    MonitorIncident,
    SandboxViolation,
    ToolInvocation,
)

__all__ = ["OTHER", "Histogram", "MetricsSink"]

OTHER = "(other)"
"""The entry that tools share which came after `max_series` others, and kinds after 64 others."""

_ERROR_STATUS = 400
_MAX_KINDS = 64
_LEAST = 0.001
_GROWTH = 1.04
_LOG_GROWTH = math.log(_GROWTH)
_BUCKETS = 600


class Histogram:
    """Counts in buckets that grow by 4 %, so that a percentile is off by 2 % at most.

    For values from 0.001 to about 16 million (in milliseconds: 1 µs to four hours); what lies
    outside counts as the nearest of the two. Not thread-safe.
    """

    __slots__ = ("_buckets", "count", "highest", "total")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.highest = 0.0

    def record(self, value: float) -> None:
        """Counts `value`. A negative one counts as 0, one that is no number not at all."""
        if not math.isfinite(value):
            return
        bucket = 0
        if value > _LEAST:
            bucket = min(_BUCKETS, 1 + int(math.log(value / _LEAST) / _LOG_GROWTH))
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.total += max(0.0, value)
        self.highest = max(self.highest, value)

    def percentile(self, share: float) -> float:
        """The value that `share` (0 to 1) of all values do not exceed. 0.0 without values."""
        wanted = math.ceil(share * self.count)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                middle = _LEAST * _GROWTH ** (bucket - 0.5) if bucket else 0.0
                return min(middle, self.highest)
        return 0.0

    def summary(self) -> dict[str, float]:
        """`p50`, `p95`, `p99`, `mean` and `max`, rounded to a thousandth."""
        mean = self.total / self.count if self.count else 0.0
        return {
            "p50": round(self.percentile(0.50), 3),
            "p95": round(self.percentile(0.95), 3),
            "p99": round(self.percentile(0.99), 3),
            "mean": round(mean, 3),
            "max": round(self.highest, 3),
        }


class _Series:
    """Everything about one version of one tool."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "calls",
        "capabilities",
        "cpu_ms",
        "duration_ms",
        "errors",
        "fuel",
        "incidents",
        "memory_peak_bytes",
        "queue_wait_ms",
        "statuses",
        "violations",
    )

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.fuel = 0
        self.duration_ms = Histogram()
        self.queue_wait_ms = Histogram()
        self.cpu_ms = Histogram()
        self.memory_peak_bytes = _Level()
        self.statuses: dict[str, int] = {}
        self.violations: dict[str, int] = {}
        self.incidents: dict[str, int] = {}
        self.capabilities: dict[str, dict[str, int]] = {}

    def invocation(self, event: ToolInvocation) -> None:
        self.calls += 1
        self.errors += event.status >= _ERROR_STATUS
        self.bytes_in += event.bytes_in
        self.bytes_out += event.bytes_out
        self.fuel += event.fuel
        self.duration_ms.record(event.duration_ms)
        self.queue_wait_ms.record(event.queue_wait_ms)
        self.cpu_ms.record(event.cpu_ms)
        self.memory_peak_bytes.record(event.memory_peak_bytes)
        _count(self.statuses, str(event.status))

    def capability(self, event: CapabilityCalled) -> None:
        name = event.name
        if name not in self.capabilities and len(self.capabilities) >= _MAX_KINDS:
            name = OTHER
        entry = self.capabilities.setdefault(name, {"calls": 0, "errors": 0, "bytes": 0})
        entry["calls"] += event.count
        entry["errors"] += event.count * (event.status >= _ERROR_STATUS)
        entry["bytes"] += event.bytes

    def snapshot(self) -> dict[str, Any]:
        violations = sum(self.violations.values())
        calls = max(1, self.calls)
        return {
            "calls": self.calls,
            "errors": self.errors,
            "error_rate": round(self.errors / calls, 6),
            "violations": dict(self.violations),
            "violation_rate": round(violations / calls, 6),
            "incidents": dict(self.incidents),
            "statuses": dict(self.statuses),
            "duration_ms": self.duration_ms.summary(),
            "queue_wait_ms": self.queue_wait_ms.summary(),
            "cpu_ms": self.cpu_ms.summary(),
            "memory_peak_bytes": self.memory_peak_bytes.summary(),
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "fuel": self.fuel,
            "capabilities": {name: dict(entry) for name, entry in self.capabilities.items()},
        }


class _Level:
    """Average and peak of a figure."""

    __slots__ = ("count", "peak", "total")

    def __init__(self) -> None:
        self.count = self.total = self.peak = 0

    def record(self, value: int) -> None:
        self.count += 1
        self.total += value
        self.peak = max(self.peak, value)

    def summary(self) -> dict[str, int]:
        return {"mean": self.total // max(1, self.count), "peak": self.peak}


class MetricsSink:
    """Adds up events per tool and version. Thread-safe.

    `max_series`: how many versions of tools are kept apart, default 1,000, a few KB each; later
    ones share :data:`OTHER`.
    """

    name = "metrics"
    durable = False

    def __init__(self, max_series: int = 1_000) -> None:
        self._lock = threading.Lock()
        self._max_series = max_series
        self._series: dict[tuple[str, str], _Series] = {}
        self._since_ns = time.time_ns()

    def write(self, event: Event) -> None:
        """Adds `event` up. An event outside a call counts for nothing."""
        if not event.tool:
            return
        with self._lock:
            series = self._of(event)
            if isinstance(event, ToolInvocation):
                series.invocation(event)
            elif isinstance(event, CapabilityCalled):
                series.capability(event)
            elif isinstance(event, SandboxViolation):
                _count(series.violations, f"{event.severity}:{event.type}")
            elif isinstance(event, MonitorIncident):
                _count(series.incidents, f"{event.severity}:{event.type}")

    def snapshot(self) -> dict[str, Any]:
        """Everything so far, JSON-ready: `since_ns` and, by `name@version`, `tools`."""
        with self._lock:
            return {
                "since_ns": self._since_ns,
                "tools": {
                    f"{tool}@{version}" if version else tool: series.snapshot()
                    for (tool, version), series in self._series.items()
                },
            }

    def reset(self) -> None:
        """Begins anew."""
        with self._lock:
            self._series.clear()
            self._since_ns = time.time_ns()

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do: what was added up can still be read."""

    def _of(self, event: Event) -> _Series:
        key = (event.tool, event.version)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= self._max_series:
                key = (OTHER, "")
            series = self._series.setdefault(key, _Series())
        return series


def _count(counts: dict[str, int], kind: str) -> None:
    if kind not in counts and len(counts) >= _MAX_KINDS:
        kind = OTHER
    counts[kind] = counts.get(kind, 0) + 1
