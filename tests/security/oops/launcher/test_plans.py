"""Plans that are wrong, too large or ask for less than all controls: refused, and nothing runs."""

import os
from pathlib import Path

import msgspec
import pytest
from oops_launcher import Launcher, bpf, plan


@pytest.fixture(scope="module")
def strict():
    """A launcher as the lane starts it: it weakens nothing."""
    with Launcher() as launcher:
        if launcher.hello["missing"]:
            pytest.skip(f"this machine lacks {launcher.hello['missing']}")
        yield launcher


BIND = {"kind": "bind", "source": "/usr", "at": "/usr"}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"without": ["seccomp"]}, "weakens nothing"),
        ({"without": ["nonsense"]}, "no control"),
        ({"surprise": 1}, "surprise"),
        ({"argv": []}, "argv"),
        ({"argv": ["a\0b"]}, "argv"),
        ({"argv": ["x" * 200_000]}, "argv"),
        ({"argv": ["x"] * 1025}, "argv"),
        ({"env": ["novalue"]}, "env"),
        ({"env": ["A=1"] * 257}, "env"),
        ({"program": "usr/bin/id"}, "program"),
        ({"program": "/usr/../bin/id"}, "program"),
        ({"seccomp": b""}, "seccomp"),
        ({"seccomp": bytes(7)}, "seccomp"),
        ({"seccomp": bytes(8 * 4097)}, "seccomp"),
        ({"fds": [1, 2, 3]}, "fds"),
        ({"fds": [0, 1, 1]}, "fds"),
        ({"fds": [0, 1, 64]}, "fds"),
        ({"mounts": [{**BIND, "at": "/proc/x"}]}, "/proc"),
        ({"mounts": [{**BIND, "at": "/dev"}]}, "/dev"),
        ({"mounts": [{**BIND, "at": "/"}]}, "mounts.at"),
        ({"mounts": [{**BIND, "at": "/a/../b"}]}, "mounts.at"),
        ({"mounts": [{**BIND, "source": "/nowhere"}]}, "/nowhere"),
        ({"mounts": [{**BIND, "source": "/dev/null"}]}, "no file"),
        ({"mounts": [{**BIND, "source": "/proc/self/exe"}]}, "no file"),
        ({"mounts": [BIND] * 65}, "mounts"),
        ({"mounts": [{"kind": "tmpfs", "at": "/s", "size_bytes": 0, "inodes": 1}]}, "tmpfs"),
        ({"mounts": [{"kind": "overlay", "at": "/s"}]}, "overlay"),
        ({"landlock": [{"at": "/", "access": []}]}, "landlock"),
        ({"landlock": [{"at": "/", "access": ["everything"]}]}, "everything"),
        ({"rlimits": {"speed": [1, 1]}}, "speed"),
        ({"rlimits": {"nofile": [2, 1]}}, "nofile"),
        ({"limits": {**plan()["limits"], "pids": 0}}, "pids"),
        ({"limits": {**plan()["limits"], "wall_ms": -1}}, "wall_ms"),
        ({"limits": {**plan()["limits"], "memory_bytes": 1}}, "memory_bytes"),
        ({"limits": {"wall_ms": 1}}, "cpu_ms"),
        ({"hostname": "x" * 65}, "hostname"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_plan_is_refused_by_name(strict, changes, names):
    answer = strict.run({**plan("-c", "print('RAN')"), **changes})
    assert answer.spawned["event"] == "refused"
    # A negative count is no count at all, which the decoder says in its own words.
    assert names in answer.spawned["reason"] or "integer" in answer.spawned["reason"]
    assert answer.out == b""


@pytest.mark.parametrize(
    ("changes", "stage"),
    [
        ({"program": "/usr/bin/nonesuch"}, "fds"),
        ({"cwd": "/nonesuch"}, "seal_root"),
        ({"landlock": [{"at": "/nonesuch", "access": ["read"]}]}, "landlock"),
        ({"seccomp": bytes(8)}, "seccomp"),
        ({"rlimits": {"nofile": [1 << 30, 1 << 30]}}, "rlimits"),
        ({"landlock": [{"at": "/usr", "access": ["read"]}]}, "exec"),
        ({"program": "/usr/lib/os-release"}, "exec"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_failing_stage_is_named_with_its_errno_and_nothing_runs(strict, changes, stage):
    run = strict.run({**plan("-I", "-c", "print('RAN')"), **changes})
    assert run.spawned["event"] == "failed", run.spawned
    assert run.spawned["stage"] == stage
    assert run.out == b""
    assert strict.run(plan("-I", "-S", "-c", "print('next')")).out == b"next\n"


def test_living_id_is_not_given_twice(strict):
    null = os.open("/dev/null", os.O_RDWR)
    sleeper = plan("-I", "-S", "-c", "import time; time.sleep(60)")
    assert strict.start(sleeper, [null] * 3)["event"] == "spawned"
    strict.last_id -= 1
    assert strict.start(sleeper, [null] * 3)["event"] == "refused"
    os.close(null)
    strict.send({"op": "kill", "id": strict.last_id, "reason": "done"})
    assert strict.receive()["killed"] == "done"


@pytest.mark.parametrize(
    "packet", [b"\xff", b"\x80", bytes(70_000), msgspec.msgpack.encode({"op": 1})]
)
def test_nonsense_ends_the_launcher(packet):
    launcher = Launcher()
    launcher.socket.send(packet)
    assert launcher.close() == 2


def test_receipt_is_what_the_cell_itself_finds(strict):
    look = """
import os
for name in ("user", "pid", "mnt", "uts", "ipc", "net", "cgroup"):
    print(name, os.stat(f"/proc/self/ns/{name}").st_ino)
status = open("/proc/self/status").read().splitlines()
print(*[line.split()[1] for line in status if line.startswith(("Seccomp:", "NoNewPrivs:"))])
"""
    rules = [*plan()["landlock"], {"at": "/proc", "access": ["read"]}]
    run = strict.run(plan("-I", "-S", "-c", look, landlock=rules))
    *names, bits = run.out.decode().splitlines()
    assert {n: int(i) for n, i in map(str.split, names)} == run.receipt["namespaces"]
    assert bits == f"{run.receipt['no_new_privs']} {run.receipt['seccomp_mode']}" == "1 2"
    own = {name: Path(f"/proc/self/ns/{name}").stat().st_ino for name in run.receipt["namespaces"]}
    assert not set(own.values()) & set(run.receipt["namespaces"].values())
    assert run.receipt["weakened"] == []
    assert not any(run.receipt["capabilities"].values())


def test_receipt_says_what_a_test_left_out():
    with Launcher(weaken=True) as launcher:
        run = launcher.run(plan("-I", "-S", "-c", "", without=["seccomp", "net"]))
        assert run.receipt["weakened"] == ["seccomp", "net"]
        assert run.receipt["seccomp_mode"] == 0


def test_filter_without_the_last_steps_starts_nothing():
    execveat = 322
    with Launcher() as launcher:
        run = launcher.run(plan("-c", "print('RAN')", seccomp=bpf([execveat])))
        assert (run.spawned["event"], run.spawned["stage"]) == ("failed", "exec")
        assert run.out == b""


def test_launcher_without_rights_names_what_it_lacks_and_starts_nothing(tmp_path):
    def become_nobody() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    # The checkout may lie where nobody may look.
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    with Launcher(before_exec=become_nobody, copy_to=tmp_path) as launcher:
        assert {"uid_map", "memory", "pids"} <= set(launcher.hello["missing"])
        run = launcher.run(plan("-c", "print('RAN')"))
        assert (run.spawned["event"], run.spawned["stage"]) == ("failed", "probe")
        assert run.out == b""
