"""Telemetry: one event to many sinks, and what happens when a sink fails."""

import logging
import threading

import pytest
from audit_logs import CONTEXT, capability, invocation

from toolcell.errors import InternalError
from toolcell.events import SandboxTerminated, ToolInvocation
from toolcell.telemetry import Telemetry
from toolcell.telemetry.memory import MemorySink
from toolcell.telemetry.redact import Redactor


class BrokenSink:
    """A sink whose disk is full until `repair`."""

    def __init__(self, *, durable: bool, name: str = "broken") -> None:
        self.name = name
        self.durable = durable
        self.works = False
        self.taken = []

    def write(self, event):
        if not self.works:
            raise OSError(28, "No space left on device")
        self.taken.append(event)

    def flush(self):
        if not self.works:
            raise OSError(5, "Input/output error")

    close = flush


def test_an_event_reaches_every_sink():
    sinks = [MemorySink(), MemorySink()]
    with Telemetry(sinks) as telemetry:
        telemetry.emit(invocation())
    assert [len(sink.events()) for sink in sinks] == [1, 1]


def test_a_failing_sink_does_not_keep_the_event_from_the_others():
    memory = MemorySink()
    telemetry = Telemetry([BrokenSink(durable=False), memory])
    telemetry.emit(invocation())
    assert len(memory.events(ToolInvocation)) == 1
    assert telemetry.dropped == {"broken": 1}


def test_an_event_that_must_persist_and_can_not_fails_the_call():
    memory = MemorySink()
    telemetry = Telemetry([BrokenSink(durable=True), memory])
    with pytest.raises(
        InternalError, match=r"tool\.invocation must persist.*No space left"
    ) as info:
        telemetry.emit(invocation())
    assert "make room" in info.value.remedy
    assert info.value.details == {
        "event": "tool.invocation",
        "correlation_id": CONTEXT.correlation_id,
        "errno": 28,
    }
    assert len(memory.events()) == 1, "the other sinks have it all the same"


def test_one_durable_sink_that_takes_it_is_enough():
    working = BrokenSink(durable=True, name="second")
    working.works = True
    telemetry = Telemetry([BrokenSink(durable=True), working])
    telemetry.emit(invocation())
    assert len(working.taken) == 1


def test_an_event_that_need_not_persist_is_counted_as_dropped():
    telemetry = Telemetry([BrokenSink(durable=True)])
    telemetry.emit(capability())
    telemetry.emit(capability())
    assert telemetry.dropped == {"broken": 2}


def test_without_a_durable_sink_nothing_is_refused():
    telemetry = Telemetry([BrokenSink(durable=False)])
    telemetry.emit(invocation())
    Telemetry([]).emit(invocation())


def test_a_sink_that_begins_to_fail_is_named_once_and_so_is_its_return(caplog):
    sink = BrokenSink(durable=False)
    telemetry = Telemetry([sink])
    with caplog.at_level(logging.WARNING, logger="toolcell.telemetry"):
        telemetry.emit(capability())
        telemetry.emit(capability())
        sink.works = True
        telemetry.emit(capability())
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "sink broken fails",
        "sink broken works again",
    ]


def test_flush_and_close_survive_a_broken_sink():
    memory = MemorySink()
    telemetry = Telemetry([BrokenSink(durable=True), memory])
    telemetry.flush()
    telemetry.close()
    assert telemetry.dropped == {"broken": 2}
    with pytest.raises(ValueError, match="closed"):
        memory.write(capability())


def test_an_event_after_close_that_must_persist_fails():
    from audit_logs import KEY

    from toolcell.home import Home
    from toolcell.telemetry.jsonl import JsonlSink

    telemetry = Telemetry([JsonlSink(Home().audit, KEY)])
    telemetry.close()
    with pytest.raises(InternalError, match="must persist"):
        telemetry.emit(invocation())


def test_every_sink_gets_the_redacted_event():
    sinks = [MemorySink(), MemorySink()]
    telemetry = Telemetry(sinks, redactor=Redactor(secrets=["correct horse"]))
    telemetry.emit(SandboxTerminated.of(CONTEXT, reason="the correct horse left"))
    assert [sink.events(SandboxTerminated)[0].reason for sink in sinks] == [
        "the <redacted> left"
    ] * 2


def test_events_of_many_threads_all_arrive():
    memory = MemorySink()
    telemetry = Telemetry([memory])
    start = threading.Barrier(8)

    def work():
        start.wait()
        for _ in range(200):
            telemetry.emit(capability())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memory.events()) == 1600
