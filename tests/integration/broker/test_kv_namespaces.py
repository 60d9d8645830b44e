"""Persistent namespaces: shared, private on disk, and clear about what goes wrong."""

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_runs import Run, envelope, rule_of, run_of

from toolcell.broker import BrokerServices
from toolcell.errors import CallCancelled, ConfigError
from toolcell.policy.envelope import KvPolicy

SHARED = KvPolicy(namespace="shared")


def open_run(services: BrokerServices, **fields: object) -> Run:
    return Run(envelope(kv=KvPolicy(**{"namespace": "shared", **fields})), services)


@pytest.fixture
def file(tmp_path: Path, services: BrokerServices) -> Path:
    """The file of the namespace `shared`, with one key in it."""
    with run_of(services, kv=SHARED) as run:
        run.call("kv.set", key="a", value="1")
    return tmp_path / "kv" / "shared.sqlite3"


@pytest.fixture
def locked(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection of somebody else that holds the write lock."""
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()


def test_value_outlives_the_run_and_the_services(services: BrokerServices, tmp_path: Path) -> None:
    with run_of(services, kv=SHARED) as run:
        run.call("kv.set", key="a", value="1")
    services.close()
    again = BrokerServices(kv_dir=tmp_path / "kv")

    with run_of(again, kv=SHARED) as run:
        assert run.call("kv.get", key="a") == "1"
    again.close()


def test_one_namespace_does_not_see_another(services: BrokerServices) -> None:
    with run_of(services, kv=SHARED) as run:
        run.call("kv.set", key="a", value="1")

    with run_of(services, kv=KvPolicy(namespace="other")) as run:
        assert run.call("kv.list", prefix="") == []


def test_caps_count_what_earlier_runs_left(services: BrokerServices) -> None:
    first = open_run(services, max_total_bytes=20)
    first.call("kv.set", key="a", value="v" * 15)
    first.broker.close()

    fault = open_run(services, max_total_bytes=20).refused("kv.set", key="b", value="v" * 10)

    assert (fault.status, rule_of(fault)) == (413, "max_total_bytes")


def test_files_are_the_owner_s_alone(file: Path) -> None:
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {0o600}


def test_policy_with_a_namespace_needs_a_folder_for_it() -> None:
    services = BrokerServices()

    with pytest.raises(ConfigError, match="shared"):
        open_run(services).call("kv.get", key="a")


def test_connections_are_used_again_and_not_piled_up(
    services: BrokerServices, tmp_path: Path
) -> None:
    fds = Path("/proc/self/fd")
    with run_of(services, kv=SHARED) as run:
        run.call("kv.get", key="a")
    before = len(list(fds.iterdir()))

    for _ in range(50):
        with run_of(services, kv=SHARED) as run:
            run.call("kv.set", key="a", value="1")

    assert len(list(fds.iterdir())) <= before
    services.close()
    assert not any(str(tmp_path) in str(link.resolve()) for link in fds.iterdir())


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from broker_runs import Run, envelope
from toolcell.broker import BrokerServices
from toolcell.policy.envelope import KvPolicy
services = BrokerServices(kv_dir=Path(sys.argv[1]))
policy = KvPolicy(namespace="shared", timeout_ms=20_000)
run = Run(envelope(kv=policy, wall_time_ms=60_000), services)
for at in range(150):
    run.call("kv.set", key=f"{sys.argv[2]}-{at}", value="v" * (at % 7))
    run.call("kv.set", key="both", value=sys.argv[2])
    run.call("kv.delete", key=f"{sys.argv[2]}-{at - 100}") if at >= 100 else None
"""


@pytest.mark.slow
def test_two_processes_write_at_once_and_lose_nothing(
    services: BrokerServices, tmp_path: Path
) -> None:
    support = str(Path(__file__).parents[2] / "support")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "kv"), name, support],
            stderr=subprocess.PIPE,
        )
        for name in ("one", "two")
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors.decode()

    with run_of(services, kv=SHARED) as run:
        keys = run.call("kv.list", prefix="")
        assert len(keys) == 2 * 100 + 1
    with sqlite3.connect(tmp_path / "kv" / "shared.sqlite3") as reader:
        counted = reader.execute("SELECT keys, bytes FROM total").fetchone()
        real = reader.execute(
            "SELECT count(*), sum(length(key) + length(value)) FROM entry"
        ).fetchone()
    reader.close()
    assert counted == real


@pytest.mark.slow
def test_store_that_stays_locked_is_told_as_that(
    services: BrokerServices, locked: sqlite3.Connection
) -> None:
    started = time.monotonic()

    fault = open_run(services, timeout_ms=100).refused("kv.set", key="b", value="2")

    assert (fault.status, rule_of(fault)) in {(502, "store"), (408, "timeout_ms")}
    assert time.monotonic() - started < 2


@pytest.mark.slow
def test_store_that_is_locked_for_a_moment_is_waited_for(
    services: BrokerServices, locked: sqlite3.Connection
) -> None:
    run = open_run(services, timeout_ms=10_000)
    freed = threading.Timer(0.1, locked.execute, ["COMMIT"])
    freed.start()

    run.call("kv.set", key="b", value="2")

    freed.join()
    assert run.call("kv.get", key="b") == "2"


def test_reading_does_not_wait_for_a_writer(
    services: BrokerServices, locked: sqlite3.Connection
) -> None:
    locked.execute("UPDATE entry SET value = x'32'")

    assert open_run(services, timeout_ms=100).call("kv.get", key="a") == "1"


@pytest.mark.slow
def test_cancellation_ends_a_wait_for_the_lock(
    services: BrokerServices, locked: sqlite3.Connection
) -> None:
    run = open_run(services, timeout_ms=60_000)
    cancelling = threading.Timer(0.1, run.session.cancel.cancel)
    cancelling.start()
    started = time.monotonic()

    with pytest.raises(CallCancelled):
        run.call("kv.set", key="b", value="2")

    assert time.monotonic() - started < 2
    cancelling.join()


def test_full_disk_is_told_and_leaves_the_old_value(services: BrokerServices, file: Path) -> None:
    connection = services.kv.lease("shared")
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    services.kv.give_back("shared", connection)
    run = open_run(services)

    fault = run.refused("kv.set", key="a", value="v" * 100_000)

    assert (fault.status, rule_of(fault)) == (502, "store")
    assert "disk is full" in fault.message
    assert str(file.parent) not in repr(fault.to_dict())
    assert run.call("kv.get", key="a") == "1"
    run.call("kv.set", key="a", value="2")


def test_damaged_file_is_told_without_its_place(
    services: BrokerServices, file: Path, tmp_path: Path
) -> None:
    services.close()
    file.write_bytes(b"not a database" * 1000)
    again = BrokerServices(kv_dir=tmp_path / "kv")

    fault = open_run(again).refused("kv.get", key="a")

    assert (fault.status, rule_of(fault)) == (502, "store")
    assert "damaged" in fault.message
    assert str(tmp_path) not in repr(fault.to_dict())
    again.close()


def test_file_of_another_version_is_not_touched(
    services: BrokerServices, file: Path, tmp_path: Path
) -> None:
    services.close()
    with sqlite3.connect(file) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    again = BrokerServices(kv_dir=tmp_path / "kv")

    fault = open_run(again).refused("kv.get", key="a")

    assert (fault.status, rule_of(fault)) == (502, "store")
    assert "99" in fault.message
    again.close()


def test_file_behind_a_link_is_not_opened(services: BrokerServices, tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir(mode=0o700)
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "kv" / "shared.sqlite3").symlink_to(tmp_path / "elsewhere")

    fault = open_run(services).refused("kv.get", key="a")

    assert (fault.status, rule_of(fault)) == (502, "store")


def test_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir()
    (tmp_path / "kv").chmod(0o777)
    services = BrokerServices(kv_dir=tmp_path / "kv")

    with pytest.raises(ConfigError, match="others"):
        open_run(services).call("kv.get", key="a")


def test_list_of_a_crowded_namespace_is_refused_and_not_cut(services: BrokerServices) -> None:
    with run_of(services, kv=SHARED) as run:
        for at in range(50):
            run.call("kv.set", key=f"key-{at:04}", value="")

    with run_of(services, kv=SHARED, max_message_bytes=200) as run:
        fault = run.refused("kv.list", prefix="")
        assert (fault.status, rule_of(fault)) == (413, "max_message_bytes")
        assert len(run.call("kv.list", prefix="key-000")) == 10
