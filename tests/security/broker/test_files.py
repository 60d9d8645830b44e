"""Ways out of `/scratch`: paths, links, races, special files."""

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_runs import Run, close_runs, envelope, rule_of

from toolcell.broker import BrokerServices
from toolcell.broker.files import beneath, scratch
from toolcell.errors import CapabilityFault
from toolcell.policy.envelope import CapabilityPolicy

SECRET = "host secret"
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # fcntl.h, linux/fs.h


@pytest.fixture
def services(tmp_path: Path) -> Iterator[BrokerServices]:
    made = BrokerServices(scratch_dir=tmp_path / "scratch")
    yield made
    close_runs()
    made.close()


@pytest.fixture(params=["openat2", "walking"])
def opening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way of opening in turn: the kernel's rule, and the one for where it is missing."""
    if request.param == "openat2":
        if not beneath._has_openat2():
            pytest.skip("this kernel has no openat2")
        monkeypatch.setattr(scratch, "open_beneath", beneath.open_with_openat2)
    else:
        monkeypatch.setattr(scratch, "open_beneath", beneath.open_by_walking)
    return str(request.param)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the host with a secret in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


@pytest.fixture
def run(services: BrokerServices) -> Iterator[Run]:
    made = Run(envelope(), services)
    made.call("fs.list", path="/scratch")
    yield made
    made.broker.close()


def tree_of(run: Run) -> Path:
    """The folder behind `/scratch`, which a native tool in the same run may write to directly."""
    return run.broker._interfaces["fs"].scratch.path


def open_naively(folder: int, names: tuple[str, ...], flags: int, mode: int = 0o600) -> int:
    """The defence switched off: a path that the kernel may resolve as it likes."""
    return os.open("/".join(names) or ".", flags, mode, dir_fd=folder)


ESCAPES = [
    "/etc/passwd",
    "/scratch/../etc/passwd",
    "/scratch/../../etc/passwd",
    "/scratch/a/../../etc/passwd",
    "/scratch/./../etc/passwd",
    "//etc/passwd",
    "/proc/self/environ",
    "/scratch/../scratch/../etc/passwd",
    "/../scratch/a",
]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("capability", ["fs.readText", "fs.list", "fs.remove", "fs.writeText"])
def test_path_that_leads_out_is_refused(run: Run, capability: str, path: str) -> None:
    params = {"text": "x"} if capability == "fs.writeText" else {}

    fault = run.refused(capability, path=path, **params)

    assert (fault.status, rule_of(fault)) == (403, "path.outside")


LINKS: dict[str, Callable[[Path], str]] = {
    "file": lambda outside: str(outside / "secret"),
    "relative": lambda outside: "../../../../outside/secret",
    "proc": lambda outside: f"/proc/self/root{outside}/secret",
}


@pytest.mark.parametrize("kind", LINKS)
def test_planted_link_to_a_file_is_not_read(
    run: Run, outside: Path, opening: str, kind: str
) -> None:
    (tree_of(run) / "link").symlink_to(LINKS[kind](outside))

    fault = run.refused("fs.readText", path="/scratch/link")

    assert (fault.status, rule_of(fault)) == (403, "path.link")
    assert str(outside) not in repr(fault.to_dict())


@pytest.mark.usefixtures("opening")
def test_planted_link_to_a_folder_is_not_followed(run: Run, outside: Path) -> None:
    (tree_of(run) / "link").symlink_to(outside)

    for capability, params in [
        ("fs.readText", {"path": "/scratch/link/secret"}),
        ("fs.list", {"path": "/scratch/link"}),
        ("fs.remove", {"path": "/scratch/link/secret"}),
        ("fs.writeText", {"path": "/scratch/link/new", "text": "x"}),
        ("fs.writeText", {"path": "/scratch/link/deep/new", "text": "x"}),
    ]:
        fault = run.refused(capability, **params)
        assert (fault.status, rule_of(fault)) in {(403, "path.link"), (400, "path")}
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_text() == SECRET


def test_planted_link_is_followed_where_the_opening_is_naive(
    run: Run, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "open_beneath", open_naively)
    (tree_of(run) / "link").symlink_to(outside)

    assert run.call("fs.readText", path="/scratch/link/secret") == SECRET


@pytest.mark.usefixtures("opening")
def test_link_in_the_place_of_a_file_is_not_written_through(run: Run, outside: Path) -> None:
    (tree_of(run) / "link").symlink_to(outside / "secret")

    fault = run.refused("fs.writeText", path="/scratch/link", text="overwritten")

    assert rule_of(fault) == "path.link"
    assert (outside / "secret").read_text() == SECRET


@pytest.mark.usefixtures("opening")
def test_removing_a_link_removes_the_link(run: Run, outside: Path) -> None:
    (tree_of(run) / "dir").mkdir()
    (tree_of(run) / "dir" / "link").symlink_to(outside)

    run.call("fs.remove", path="/scratch/dir")

    assert (outside / "secret").read_text() == SECRET


@pytest.mark.usefixtures("opening")
def test_links_and_special_files_are_not_listed(run: Run, outside: Path) -> None:
    (tree_of(run) / "link").symlink_to(outside)
    os.mkfifo(tree_of(run) / "fifo")
    (tree_of(run) / "file").write_text("x")

    assert [entry.name for entry in run.call("fs.list", path="/scratch")] == ["file"]


@pytest.mark.usefixtures("opening")
def test_fifo_does_not_block_the_host(run: Run) -> None:
    os.mkfifo(tree_of(run) / "fifo")

    assert run.refused("fs.readText", path="/scratch/fifo").status == 400
    assert run.refused("fs.writeText", path="/scratch/fifo", text="x").status == 400


@contextlib.contextmanager
def swapped_all_the_time(tree: Path, outside: Path) -> Iterator[None]:
    """`tree/dir` is a folder and a link to `outside` by turns, as fast as can be."""
    (tree / "dir").mkdir()
    (tree / "dir" / "secret").write_text("own")
    (tree / "link").symlink_to(outside)
    done = threading.Event()

    def swap() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        one, other = bytes(tree / "dir"), bytes(tree / "link")
        while not done.is_set():
            assert libc.renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) == 0

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        yield
    finally:
        done.set()
        swapping.join(10)


def outcomes(run: Run, until: set[str], capability: str, **params: str) -> set[str]:
    """What calls give, value or rule, until all of `until` were seen, for 5 s at most."""
    seen: set[str] = set()
    give_up_s = time.monotonic() + 5
    while not until <= seen and time.monotonic() < give_up_s:
        for _ in range(50):
            try:
                seen.add(str(run.call(capability, **params)))
            except CapabilityFault as fault:
                seen.add(rule_of(fault))
    return seen


@pytest.mark.slow
def test_folder_that_is_swapped_for_a_link_meanwhile_leads_nowhere(
    outside: Path, opening: str, services: BrokerServices
) -> None:
    run = Run(envelope(fs=CapabilityPolicy(max_requests=10**6)), services)
    run.call("fs.list", path="/scratch")
    link = "path.link" if opening == "openat2" else "path"

    with swapped_all_the_time(tree_of(run), outside):
        read = outcomes(run, {"own", link}, "fs.readText", path="/scratch/dir/secret")
        written = outcomes(run, {"None", link}, "fs.writeText", path="/scratch/dir/x", text="x")

    assert {"own", link} <= read, "both sides of the race were met"
    assert {"None", link} <= written
    assert SECRET not in read
    assert [path.name for path in outside.iterdir()] == ["secret"]
    run.broker.close()


@pytest.mark.slow
def test_swapped_folder_is_followed_where_the_opening_is_naive(
    services: BrokerServices, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "open_beneath", open_naively)
    run = Run(envelope(fs=CapabilityPolicy(max_requests=10**6)), services)
    run.call("fs.list", path="/scratch")

    with swapped_all_the_time(tree_of(run), outside):
        read = outcomes(run, {SECRET}, "fs.readText", path="/scratch/dir/secret")

    assert SECRET in read
    run.broker.close()


def test_new_file_is_never_seen_half_written(run: Run) -> None:
    run.call("fs.writeText", path="/scratch/a", text="old" * 1000)
    before = (tree_of(run) / "a").stat().st_ino

    run.call("fs.writeText", path="/scratch/a", text="new" * 1000)

    assert (tree_of(run) / "a").stat().st_ino != before, "another file, renamed into place"
    assert [path.name for path in tree_of(run).iterdir()] == ["a"], "and nothing beside it"


def test_scratch_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    from toolcell.errors import ConfigError

    (tmp_path / "scratch").mkdir(mode=0o777)
    (tmp_path / "scratch").chmod(0o777)
    services = BrokerServices(scratch_dir=tmp_path / "scratch")

    with pytest.raises(ConfigError, match="others"):
        Run(envelope(), services).call("fs.list", path="/scratch")
    services.close()


def test_lingering_attack_on_the_close_is_not_followed(
    services: BrokerServices, outside: Path
) -> None:
    run = Run(envelope(), services)
    run.call("fs.writeText", path="/scratch/a", text="x")
    (tree_of(run) / "link").symlink_to(outside)

    run.broker.close()

    assert (outside / "secret").read_text() == SECRET
