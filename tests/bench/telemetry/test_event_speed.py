"""What an event costs: each sink alone, redaction, and the check of a log."""

import pytest
from audit_logs import KEY, capability, check, invocation, write_log

from toolcell.telemetry import Telemetry
from toolcell.telemetry.jsonl import JsonlSink
from toolcell.telemetry.memory import MemorySink
from toolcell.telemetry.metrics import MetricsSink
from toolcell.telemetry.redact import Redactor

WRITE_BUDGET_US = 10


@pytest.mark.benchmark(group="one event")
@pytest.mark.parametrize("fsync", ["none", "interval", "always"])
def test_a_line_of_the_audit_log(benchmark, tmp_path, fsync):
    sink = JsonlSink(tmp_path / "audit.jsonl", KEY, fsync=fsync)
    event = invocation()
    rounds = 200 if fsync == "always" else 10_000
    benchmark.pedantic(sink.write, (event,), rounds=rounds, warmup_rounds=100)
    benchmark.extra_info["budget_us"] = WRITE_BUDGET_US if fsync != "always" else None
    sink.close()


@pytest.mark.benchmark(group="one event")
@pytest.mark.parametrize("sink", [MemorySink(), MetricsSink()], ids=lambda sink: sink.name)
def test_a_sink_in_memory(benchmark, sink):
    benchmark.pedantic(sink.write, (invocation(),), rounds=10_000, warmup_rounds=100)


@pytest.mark.benchmark(group="one event")
def test_the_whole_way_with_redaction(benchmark, tmp_path):
    redactor = Redactor.for_host(secrets=["correct-horse-battery", "ghp_0123456789abcdefghij"])
    with Telemetry([JsonlSink(tmp_path / "audit.jsonl", KEY)], redactor=redactor) as telemetry:
        benchmark.pedantic(telemetry.emit, (invocation(),), rounds=10_000, warmup_rounds=100)


@pytest.mark.benchmark(group="redaction")
@pytest.mark.parametrize(
    "target",
    ["notes/a", "GET https://example.com/a?page=2", "x" * 2_000],
    ids=["clean", "url", "2000 chars"],
)
def test_redaction_of_one_event(benchmark, target):
    redactor = Redactor.for_host(secrets=["correct-horse-battery", "ghp_0123456789abcdefghij"])
    benchmark.pedantic(redactor.redact_event, (capability(target),), rounds=10_000)


@pytest.mark.benchmark(group="check")
def test_checking_a_thousand_lines(benchmark, tmp_path):
    log = write_log(tmp_path / "audit.jsonl", events=999)
    report = benchmark.pedantic(check, (log,), rounds=20)
    assert report.lines == 1_000
