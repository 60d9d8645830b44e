"""Floods, bombs and balloons: each is ended by its limit, which the exit names with its figures."""

import os
import signal

import pytest
from oops_launcher import plan, wait_for_end

SLEEPS = "import time; time.sleep(60)"


def limits(**changes):
    """The plan's limits with some of them changed."""
    return {"limits": {**plan()["limits"], **changes}}


def script(source, **changes):
    """A plan that runs Python source."""
    return plan("-I", "-S", "-c", source, **changes)


FORK_BOMB = """
import os, time
for _ in range(60):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
print("SURVIVED", flush=True)
os._exit(0)
"""


def test_fork_bomb_is_stopped_by_its_number_of_processes(launcher):
    run = launcher.run(script(FORK_BOMB, **limits(pids=16)))
    assert run.ended["limit"] == {"name": "pids", "limit": 16, "used": 17}
    assert run.ended["usage"]["pids_peak"] <= 16
    assert run.out == b""
    run = launcher.run(script(FORK_BOMB, **limits(pids=100)))
    assert (run.out, run.ended["limit"]) == (b"SURVIVED\n", None)


BALLOON = "block = bytearray(96 << 20); print('SURVIVED', flush=True)"


def test_memory_balloon_is_stopped_by_its_memory(launcher):
    run = launcher.run(script(BALLOON, **limits(memory_bytes=32 << 20)))
    breach = run.ended["limit"]
    assert (breach["name"], breach["limit"]) == ("memory", 32 << 20)
    assert breach["used"] <= 32 << 20
    assert run.ended["usage"]["oom_kills"] >= 1
    run = launcher.run(script(BALLOON, **limits(memory_bytes=256 << 20)))
    assert (run.out, run.ended["limit"]) == (b"SURVIVED\n", None)
    assert run.ended["usage"]["memory_peak_bytes"] >= 96 << 20


def test_memory_of_scratch_and_of_children_counts(launcher):
    mounts = [
        *plan()["mounts"],
        {"kind": "tmpfs", "at": "/scratch", "size_bytes": 256 << 20, "inodes": 64},
    ]
    rules = [*plan()["landlock"], {"at": "/scratch", "access": ["read", "write"]}]
    fill = "open('/scratch/a', 'wb').write(bytes(1 << 20) * 96)"
    changes = {"mounts": mounts, "landlock": rules, **limits(memory_bytes=48 << 20)}
    assert launcher.run(script(fill, **changes)).ended["limit"]["name"] == "memory"


SPIN = """
import time
end = time.process_time() + 0.4
while time.process_time() < end: pass
print("SURVIVED", flush=True)
"""


def test_spinning_is_stopped_by_its_cpu_time(launcher):
    run = launcher.run(script(SPIN, **limits(cpu_ms=100)))
    breach = run.ended["limit"]
    assert (breach["name"], breach["limit"]) == ("cpu", 100)
    assert 100 <= breach["used"] < 350
    assert launcher.run(script(SPIN, **limits(cpu_ms=5000))).out == b"SURVIVED\n"


def test_cpu_time_of_all_processes_counts_as_one(launcher):
    spread = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    run = launcher.run(script(spread, **limits(cpu_ms=200, cpu_percent=200)))
    assert run.ended["limit"]["name"] == "cpu"


def test_bandwidth_throttles_a_spinning_tool(launcher):
    run = launcher.run(script(SPIN.replace("0.4", "0.1"), **limits(cpu_percent=20)))
    assert run.out == b"SURVIVED\n"
    assert run.ended["usage"]["throttled_us"] > 0


def test_sleeping_is_stopped_by_wall_time(launcher):
    run = launcher.run(script(SLEEPS, **limits(wall_ms=150)))
    breach = run.ended["limit"]
    assert (breach["name"], breach["limit"]) == ("wall", 150)
    assert 150 <= breach["used"] < 1000


def test_deadline_takes_a_tree_that_ignores_signals_and_left_its_session(launcher):
    stubborn = """
import os, signal, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        time.sleep(60)
time.sleep(60)
"""
    run = launcher.run(script(stubborn, **limits(wall_ms=300)))
    assert run.ended["limit"]["name"] == "wall"
    assert run.ended["usage"]["pids_peak"] >= 5


def test_what_a_tool_leaves_behind_dies_with_it(launcher):
    daemon = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os._exit(7)
"""
    run = launcher.run(script(daemon))
    assert (run.ended["exit"], run.ended["limit"]) == (7, None)
    assert run.ended["usage"]["wall_us"] < 30_000_000


@pytest.mark.slow
def test_two_hundred_processes_are_killed_at_once(launcher):
    many = """
import os, time
for _ in range(200):
    if os.fork() == 0: time.sleep(60)
time.sleep(60)
"""
    run = launcher.run(script(many, **limits(pids=256, wall_ms=1500)))
    assert run.ended["limit"]["name"] == "wall"
    assert run.ended["usage"]["pids_peak"] >= 200
    assert run.ended["usage"]["wall_us"] < 3_000_000


FD_FLOOD = """
import errno, os
try:
    for _ in range(200): os.dup(0)
    print("WON")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_descriptor_flood_is_stopped_by_its_resource_limit(launcher):
    assert launcher.run(script(FD_FLOOD)).out == b"EMFILE\n"
    roomy = script(FD_FLOOD, rlimits={"nofile": [512, 512]})
    assert launcher.run(roomy).out == b"WON\n"


def test_resource_limits_can_not_be_raised_again(launcher):
    source = "import resource as r\ntry: r.setrlimit(r.RLIMIT_NOFILE, (128, 128)); print('WON')\n"
    source += "except (OSError, ValueError) as error: print('REFUSED')"
    run = launcher.run(plan("-I", "-c", source))
    assert run.out == b"REFUSED\n", run.err


def test_no_core_is_dumped(launcher):
    source = "import ctypes; ctypes.string_at(0)"
    run = launcher.run(script(source))
    assert run.ended["signal"] == signal.SIGSEGV


def test_exit_code_and_signal_are_the_tools(launcher):
    assert launcher.run(script("raise SystemExit(3)")).ended["exit"] == 3
    ended = launcher.run(script("import os; os.kill(os.getpid(), 15)")).ended
    assert (ended["exit"], ended["signal"]) == (None, 15)
    ended = launcher.run(script("import os; os.abort()")).ended
    assert ended["signal"] == signal.SIGABRT


def test_lane_can_kill_and_terminate(launcher):
    for message, signalled in (
        ({"op": "kill", "reason": "cancelled"}, signal.SIGKILL),
        ({"op": "signal", "signal": 15}, signal.SIGTERM),
    ):
        null = os.open("/dev/null", os.O_RDWR)
        answer = launcher.start(script(SLEEPS), [null, null, null])
        os.close(null)
        assert answer["event"] == "spawned", answer
        launcher.send({**message, "id": answer["id"]})
        ended = launcher.receive()
        assert ended["signal"] == signalled
        assert ended["killed"] == message.get("reason")
        assert wait_for_end(launcher.pidfds[answer["id"]])
