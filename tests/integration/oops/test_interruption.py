"""Whatever ends a call from outside: the cell is gone when the call is over, and the next works."""

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
from oops_cells import call, prepared
from oops_sessions import make_session

from toolcell.errors import CallCancelled

pytestmark = pytest.mark.slow

SLEEPER = """
@method
def go() -> int:
    print("running", flush=True)
    kv.set("k", "v")
    time.sleep(60)
    return 1
"""
FOREST = """
@method
def go() -> int:
    for _ in range(20):
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
    kv.set("k", "v")
    time.sleep(60)
"""
QUICK = """
@method
def go() -> int:
    return 1
"""
GRANT = {"allowed_host_apis": ("kv.set",), "memory_mb": 256}


def running_session():
    """A session, and an event that is set when its tool has made a capability call."""
    session = make_session(**GRANT)
    started = threading.Event()
    broker = session.broker

    class Tell:
        def call(self, capability, /, **params):
            started.set()
            return broker.call(capability, **params)

        close = broker.close

    session.broker = Tell()
    return session, started


def in_thread(cell, session):
    """Starts a call; returns the thread and where its outcome will be."""
    found = []

    def body():
        try:
            found.append(call(cell, session=session))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            found.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    return thread, found


def tools_of(launcher_pid):
    """The processes in cells of this launcher that run the interpreter of a base."""
    below = psutil.Process(launcher_pid).children(recursive=True)
    return [each for each in below if _is_tool(each)]


def _is_tool(process) -> bool:
    try:
        return any("toolcell_sdk.worker" in part for part in process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.parametrize("source", [SLEEPER, FOREST])
def test_a_cancelled_call_ends_with_all_its_processes(lane, source):
    session, started = running_session()
    with prepared(lane, source, capabilities=("kv.set",)) as cell:
        thread, found = in_thread(cell, session)
        assert started.wait(20)
        pid = lane._launcher.pid
        assert tools_of(pid)
        at = time.monotonic()
        session.cancel.cancel()
        thread.join(10)
        assert time.monotonic() - at < 3
        assert tools_of(pid) == []
    assert isinstance(found[0].error, CallCancelled)


def test_ctrl_c_ends_the_cell_and_is_raised(lane):
    session, started = running_session()
    with prepared(lane, SLEEPER, capabilities=("kv.set",)) as cell:
        main = threading.get_ident()
        threading.Thread(
            target=lambda: started.wait(20) and signal.pthread_kill(main, signal.SIGINT)
        ).start()
        with pytest.raises(KeyboardInterrupt):
            call(cell, session=session)
        assert tools_of(lane._launcher.pid) == []


def test_a_killed_launcher_ends_the_call_and_the_next_one_works(lane):
    session, started = running_session()
    with (
        prepared(lane, SLEEPER, capabilities=("kv.set",)) as cell,
        prepared(lane, QUICK) as quick,
    ):
        thread, found = in_thread(cell, session)
        assert started.wait(20)
        pid = lane._launcher.pid
        tools = tools_of(pid)
        os.kill(pid, signal.SIGKILL)
        thread.join(10)
        assert found[0].error.status == 503
        assert found[0].error.details["feature"] == "launcher"
        _, alive = psutil.wait_procs(tools, timeout=5)
        assert alive == []
        assert call(quick).output == b"1"
        assert lane._launcher.pid != pid


def test_closing_the_lane_leaves_no_process_and_no_cgroup(lane):
    with prepared(lane, QUICK) as cell:
        receipt = call(cell).receipt
        launcher = psutil.Process(lane._launcher.pid)
        family = [launcher, *launcher.children(recursive=True)]
        lane.close()
    _, alive = psutil.wait_procs(family, timeout=5)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
    slot = receipt["cgroup"]["path"].lstrip("/")
    until(lambda: list(Path("/sys/fs/cgroup").glob(f"*/{slot}")) == [])


def test_many_calls_at_once_do_not_meet(lane):
    source = """
@method
def go(value: int) -> list[int]:
    kv.set("k", str(value))
    return [value, int(kv.get("k")), os.getpid()]
"""
    grant = ("kv.get", "kv.set")
    found: dict[int, bytes] = {}
    with prepared(lane, source, capabilities=grant) as cell:

        def one(number: int) -> None:
            value = b'{"value":%d}' % number
            found[number] = call(cell, value, allowed_host_apis=grant).output

        threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {number: b"[%d,%d,2]" % (number, number) for number in range(16)}


def test_a_hundred_calls_leave_nothing_behind(lane):
    with prepared(lane, QUICK) as cell:
        call(cell)
        before = footprint(lane)
        for _ in range(100):
            assert call(cell).output == b"1"
        until(lambda: footprint(lane) <= before)


def footprint(lane) -> tuple[int, int, int]:
    """Descriptors here, in the launcher, and processes below it: what could grow."""
    launcher = psutil.Process(lane._launcher.pid)
    here = psutil.Process().num_fds()
    return here, launcher.num_fds(), len(launcher.children(recursive=True))


def until(condition) -> None:
    waiting = threading.Event()
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        waiting.wait(0.01)
