"""A call and its record, through the whole runtime: none without the other."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from audit_logs import check, kinds
from installation import fake_archive

from toolcell.errors import InternalError, ToolFault
from toolcell.events import CapabilityCalled, SandboxSpawned, SandboxTerminated, ToolInvocation
from toolcell.fake_lane import FakeLane
from toolcell.home import owner_only_key
from toolcell.runtime import Runtime
from toolcell.telemetry.memory import MemorySink


class Calls:
    """A runtime with a fake lane, whose tool does what `go` says."""

    def __init__(self, installation):
        self.home = installation.home
        self.memory = MemorySink()
        self.ran = 0
        self.go = lambda value, session: value
        installation.publish(fake_archive())
        lane = FakeLane({("fake", "go"): self._run})
        self.runtime = Runtime(self.home.root, lanes={"wasi": lane}, sinks=[self.memory])

    def _run(self, value, session):
        self.ran += 1
        return self.go(value, session)

    def invoke(self, value=None):
        return self.runtime.invoke("fake", "go", {} if value is None else value)

    def report(self):
        return check(self.home.audit, key=owner_only_key(self.home.audit_key))


@pytest.fixture
def calls(installation):
    made = Calls(installation)
    yield made
    made.runtime.close()


@pytest.fixture
def full_disk(monkeypatch):
    """Every write to the audit log finds the disk full, while `set` is."""

    class Disk:
        full = True

    real = os.write

    def write(descriptor, data):
        if Disk.full and bytes(data).startswith(b'{"seq":'):
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    return Disk


def test_each_call_leaves_a_whole_record(calls):
    result = calls.invoke({"a": 1})
    assert result.output == {"a": 1}
    events = calls.memory.events(correlation_id=result.correlation_id)
    kinds_seen = [type(event) for event in events]
    assert kinds_seen == [SandboxSpawned, ToolInvocation, SandboxTerminated]
    report = calls.report()
    assert (report.whole, report.lines) == (True, 4)


def test_a_tool_does_not_run_when_its_start_can_not_be_recorded(calls, full_disk):
    result = calls.invoke()
    assert calls.ran == 0
    assert isinstance(result.error, InternalError)
    assert "must persist" in result.error.message
    assert "No space left" in result.error.message
    full_disk.full = False
    assert calls.invoke().error is None
    assert calls.report().whole


def test_the_output_of_a_run_whose_end_can_not_be_recorded_is_withheld(calls, full_disk):
    full_disk.full = False

    def fill(value, session):
        full_disk.full = True
        return {"secret": "result"}

    calls.go = fill
    result = calls.invoke()
    assert calls.ran == 1
    assert result.output is None
    assert isinstance(result.error, InternalError)
    full_disk.full = False
    assert calls.report().whole


def test_a_tool_can_not_forge_a_line_or_steer_a_terminal_through_its_errors(calls):
    forged = '"}\n{"seq":9,"event":"tool.invocation","status":200}\n\x1b[2J\u202e'

    def fail(value, session):
        raise ToolFault(forged, guest_detail=forged)

    calls.go = fail
    result = calls.invoke()
    assert result.error.message.isprintable()
    log = calls.home.audit.read_text()
    assert "\x1b" not in log
    assert "\u202e" not in log
    assert len(log.splitlines()) == calls.report().lines
    assert calls.report().whole


def test_host_paths_do_not_reach_the_caller_or_the_log(calls):
    def fail(value, session):
        raise ToolFault(f"can't open {calls.home.root}/registry/x and {Path.cwd()}/y")

    calls.go = fail
    result = calls.invoke()
    assert result.error.message == "can't open <registry>/x and <cwd>/y"
    assert str(calls.home.root) not in calls.home.audit.read_text()


def test_calls_from_many_threads_leave_one_whole_chain(calls):
    calls.go = lambda value, session: session.broker.call("log.emit", level="info", message="x")
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: calls.invoke(), range(40)))
    assert {len(calls.memory.events(correlation_id=r.correlation_id)) > 2 for r in results} == {
        True
    }
    assert kinds(calls.report()) == []
    assert calls.memory.events(CapabilityCalled)
