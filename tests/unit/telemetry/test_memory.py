"""The memory sink: bounded, and easy to ask."""

import threading

import msgspec
import pytest
from audit_logs import capability, invocation

from toolcell.events import CapabilityCalled, ToolInvocation
from toolcell.telemetry.memory import MemorySink


def test_events_are_found_by_type_and_by_call():
    sink = MemorySink()
    other = msgspec.structs.replace(invocation(), correlation_id="other")
    for event in (capability(), invocation(), other):
        sink.write(event)
    assert len(sink.events(CapabilityCalled)) == 1
    assert sink.events(correlation_id="other") == [other]
    assert sink.events(CapabilityCalled, correlation_id="other") == []


def test_the_oldest_events_go_when_the_ring_is_full():
    sink = MemorySink(capacity=3)
    for number in range(5):
        sink.write(capability(str(number)))
    assert [event.target for event in sink.events(CapabilityCalled)] == ["2", "3", "4"]
    assert sink.overwritten == 2


def test_a_waiter_gets_the_event_that_another_thread_writes():
    sink = MemorySink()
    thread = threading.Thread(target=lambda: sink.write(invocation()))
    thread.start()
    assert len(sink.wait(ToolInvocation)) == 1
    thread.join()


def test_a_waiter_is_told_what_is_missing():
    with pytest.raises(TimeoutError, match="0 of 2 ToolInvocation"):
        MemorySink().wait(ToolInvocation, count=2, timeout_s=0.01)


def test_clear_forgets():
    sink = MemorySink()
    sink.write(capability())
    sink.clear()
    assert sink.events() == []


def test_a_ring_without_room_is_refused():
    with pytest.raises(ValueError, match="capacity is 0"):
        MemorySink(capacity=0)
