"""Scratch folders of a host that crashed: found and removed by the next one."""

import subprocess
import sys
from pathlib import Path

import pytest
from broker_runs import run_of

from toolcell.broker import BrokerServices
from toolcell.broker.files.root import ScratchRoot
from toolcell.events import MonitorIncident
from toolcell.runtime import Runtime
from toolcell.telemetry.memory import MemorySink

HOST = """
import sys
from pathlib import Path
from toolcell.broker.files.root import ScratchRoot
root = ScratchRoot(Path(sys.argv[1]))
(root.make() / "left-behind").write_text("secret")
print("ready", flush=True)
sys.stdin.read()
"""


def start_host(folder: Path) -> "subprocess.Popen[bytes]":
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert host.stdout is not None
    assert host.stdout.readline() == b"ready\n"
    return host


def end(host: "subprocess.Popen[bytes]") -> None:
    host.kill()
    host.wait()
    for pipe in (host.stdin, host.stdout):
        assert pipe is not None
        pipe.close()


@pytest.mark.slow
def test_folder_of_a_killed_host_is_removed_and_that_of_a_live_one_stays(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    dead, alive = start_host(folder), start_host(folder)
    try:
        end(dead)
        assert len(list(folder.iterdir())) == 2

        services = BrokerServices(scratch_dir=folder)

        assert services.reap() == 1
        assert len(list(folder.rglob("left-behind"))) == 1, "the live host's own"
        assert services.reap() == 0
        services.close()
    finally:
        end(alive)

    assert ScratchRoot(folder).reap() == 1
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_first_scratch_space_removes_leftovers_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    end(start_host(folder))
    services = BrokerServices(scratch_dir=folder)

    with run_of(services) as run:
        run.call("fs.writeText", path="/scratch/a", text="x")
        assert list(folder.rglob("left-behind")) == []
    services.close()


@pytest.mark.slow
def test_runtime_tells_of_leftovers_when_it_starts(private_home: Path) -> None:
    end(start_host(private_home / "scratch"))

    told = MemorySink()

    with Runtime(private_home, lanes={}, sinks=[told]):
        pass
    with Runtime(private_home, lanes={}, sinks=[told]):
        pass

    incidents = [one for one in told.events() if isinstance(one, MonitorIncident)]
    assert [one.message for one in incidents] == ["removed 1 scratch folders of dead hosts"]


def test_own_folder_is_never_reaped(tmp_path: Path) -> None:
    root = ScratchRoot(tmp_path / "scratch")
    mine = root.make()

    assert root.reap() == 0
    assert ScratchRoot(tmp_path / "scratch").reap() == 0
    assert mine.exists()
    root.close()


def test_anything_else_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir(mode=0o700)
    (folder / "run-a-file").write_text("x")
    (folder / "other").mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (folder / "run-link").symlink_to(target)

    assert ScratchRoot(folder).reap() == 0
    assert len(list(folder.iterdir())) == 3
    assert target.exists()


def test_no_folder_is_nothing_to_reap(tmp_path: Path) -> None:
    assert ScratchRoot(tmp_path / "none").reap() == 0
