"""Whoever dies, and whenever: no process, cgroup or mount is left, and the next call works."""

import os
import random
import signal
from pathlib import Path

import pytest
from oops_launcher import Launcher, leftovers, plan, wait_for_end, wait_until

SLEEPS = plan(
    "-I",
    "-S",
    "-c",
    "import os, time\nos.fork() or os.setsid()\nprint('there', flush=True)\ntime.sleep(60)",
)


def clean() -> bool:
    """Nothing of the test's launchers is left."""
    return not leftovers()


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Before and after each of these tests."""
    mounts = len(Path("/proc/self/mountinfo").read_text().splitlines())
    yield
    assert wait_until(clean), leftovers()
    assert len(Path("/proc/self/mountinfo").read_text().splitlines()) == mounts


def started(launcher):
    """A cell that runs; its pidfd."""
    read_end, write_end = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    answer = launcher.start(SLEEPS, [null, write_end, write_end])
    os.close(null)
    os.close(write_end)
    assert answer["event"] == "spawned", answer
    os.read(read_end, 16)
    os.close(read_end)
    return answer, launcher.pidfds[answer["id"]]


def test_lane_that_leaves_takes_every_cell_along():
    launcher = Launcher(pool=2)
    pidfds = [os.dup(started(launcher)[1]) for _ in range(3)]
    assert launcher.close() == 0
    for pidfd in pidfds:
        assert wait_for_end(pidfd)
        os.close(pidfd)
    assert clean()


def test_killed_launcher_takes_every_cell_along():
    launcher = Launcher(pool=2)
    pidfds = [os.dup(started(launcher)[1]) for _ in range(3)]
    launcher.kill()
    for pidfd in pidfds:
        assert wait_for_end(pidfd)
        os.close(pidfd)
    assert wait_until(clean)
    launcher.close()


def test_killed_launcher_is_noticed_at_once():
    launcher = Launcher()
    started(launcher)
    launcher.kill()
    with pytest.raises((EOFError, ConnectionResetError)):
        launcher.receive()
    launcher.close()


def test_killed_init_of_a_cell_is_an_exit_like_any_other():
    with Launcher() as launcher:
        answer, pidfd = started(launcher)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        ended = launcher.receive()
        assert (ended["id"], ended["signal"], ended["limit"]) == (answer["id"], 9, None)
        assert launcher.run(plan("-I", "-S", "-c", "print(1)")).out == b"1\n"


@pytest.mark.slow
def test_launcher_killed_at_any_moment_leaves_nothing():
    """Twenty moments between the plan and a good while after the start, pool or not."""
    draw = random.Random(20)
    for turn in range(20):
        launcher = Launcher(pool=turn % 3)
        null = os.open("/dev/null", os.O_RDWR)
        launcher.last_id += 1
        launcher.send({**SLEEPS, "op": "spawn", "id": 1}, [null] * 3)
        os.close(null)
        # A wait for something that never comes, of 0 to 30 ms.
        wait_until(lambda: False, draw.random() * 0.03)
        launcher.kill()
        launcher.close()
    assert wait_until(clean), leftovers()
    with Launcher() as launcher:
        assert launcher.run(plan("-I", "-S", "-c", "print(1)")).out == b"1\n"


@pytest.mark.slow
def test_orphans_of_a_killed_launcher_and_janitor_are_swept_by_the_next():
    launcher = Launcher(pool=1)
    _, pidfd = started(launcher)
    pidfd = os.dup(pidfd)
    own = str(launcher.process.pid)
    family = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.read_text().rsplit(")", 1)[1].split()[1] == own
    ]
    janitor = min(family)
    os.kill(janitor, 9)
    launcher.kill()
    assert wait_for_end(pidfd)
    os.close(pidfd)
    launcher.close()
    assert leftovers()
    with Launcher():
        assert wait_until(lambda: not [path for path in leftovers() if f"/{own}." in path])
