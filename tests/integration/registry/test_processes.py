"""Several processes, one registry: publishing, resolving, and dying in the middle."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import registry_process
from artifact_maker import OTHER_ID, registry_of, signed

from toolcell.errors import ToolNotFound

DEADLINE_S = 60


class Process:
    """`registry_process.py` under way; says "ready" and waits for `go`."""

    def __init__(self, home: Path, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, registry_process.__file__, str(home), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "ready"

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def rest(self) -> list[str]:
        out, err = self._process.communicate(timeout=DEADLINE_S)
        assert self._process.returncode == 0, err
        return out.split("\n")[:-1]

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def start(home) -> Iterator:
    """Starts processes on the home, and ends what is left of them."""
    started = []

    def run(*words: str) -> Process:
        started.append(Process(home.root, *words))
        return started[-1]

    yield run
    for process in started:
        process.kill()


def artifact_files(folder: Path, versions: list[str]) -> list[str]:
    paths = []
    for version in versions:
        path = folder / f"{version}.tool"
        path.write_bytes(signed({"tool.wasm": version.encode()}, version=version))
        paths.append(str(path))
    return paths


@pytest.mark.slow
def test_two_processes_publish_while_two_resolve(start, home, tmp_path):
    versions = [f"{n}.0.0" for n in range(1, 13)]
    files = artifact_files(tmp_path, versions)
    publishers = [start("publish", *files[0::2]), start("publish", *files[1::2])]
    resolvers = [start("resolve", "12"), start("resolve", "12")]
    for process in (*publishers, *resolvers):
        process.go()
    published = [line.split()[1] for each in publishers for line in each.rest()]
    assert sorted(published) == sorted(versions)
    for resolver in resolvers:
        (line,) = resolver.rest()
        assert line.split()[1].split(",")[-1] == "12.0.0"
    with registry_of(home) as registry:
        assert {row.version for row in registry.versions()} == set(versions)
        assert registry.sweep() == 0


@pytest.mark.slow
def test_two_processes_that_publish_the_same_version_agree(start, home, tmp_path):
    files = artifact_files(tmp_path, [f"{n}.0.0" for n in range(1, 6)])
    both = [start("publish", *files), start("publish", *files)]
    for process in both:
        process.go()
    for process in both:
        assert len(process.rest()) == 5
    with registry_of(home) as registry:
        assert len(registry.versions()) == 5
        assert registry.sweep() == 0


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["writing", "renaming", "renamed", "row", "transaction"])
def test_a_publisher_that_is_killed_leaves_nothing_to_be_seen(start, home, tmp_path, stage):
    (file,) = artifact_files(tmp_path, ["1.0.0"])
    with registry_of(home) as registry:
        registry.publish(signed(id=OTHER_ID, name="other"))
        publisher = start("stop", stage, file)
        publisher.go()
        assert publisher.line() == f"stopped in {stage}"
        with pytest.raises(ToolNotFound):
            registry.resolve("echo")
        assert registry.sweep() == 0, "a living publisher's file was swept"
        publisher.kill()
        with pytest.raises(ToolNotFound):
            registry.resolve("echo")
        assert [row.name for row in registry.versions()] == ["other"]
        assert registry.sweep() == 1, "the dead publisher's file was not swept"
        assert list((home.registry / "incoming").iterdir()) == []
        assert len(list((home.registry / "blobs").glob("sha256/*/*"))) == 1
        registry.publish(Path(file))
        assert registry.resolve("echo").artifact.read("tool.wasm") == b"1.0.0"


@pytest.mark.slow
def test_the_next_publisher_sweeps_what_a_dead_one_left(start, home, tmp_path):
    first, file = artifact_files(tmp_path, ["1.0.0", "1.1.0"])
    with registry_of(home) as registry:
        registry.publish(Path(first))
    dead = start("stop", "writing", file)
    dead.go()
    dead.line()
    dead.kill()
    assert len(list((home.registry / "incoming").iterdir())) == 1
    with registry_of(home) as registry:
        registry.publish(signed(id=OTHER_ID, name="other"))
    assert list((home.registry / "incoming").iterdir()) == []


@pytest.mark.slow
def test_a_change_by_another_process_counts_at_the_next_resolve(start, home, tmp_path):
    files = artifact_files(tmp_path, ["1.0.0", "1.1.0"])
    with registry_of(home) as registry:
        registry.publish(Path(files[0]))
        assert registry.resolve("echo").artifact.manifest.version == "1.0.0"
        other = start("publish", files[1])
        other.go()
        other.rest()
        assert registry.resolve("echo").artifact.manifest.version == "1.1.0"


@pytest.mark.slow
def test_a_forked_child_resolves_on_a_connection_of_its_own(home):
    import os

    with registry_of(home) as registry:
        registry.publish(signed())
        registry.resolve("echo")
        inherited = registry._index._connection
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            good = registry.resolve("echo").artifact.manifest.version == "1.0.0"
            os._exit(0 if good and registry._index._connection is not inherited else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        registry.publish(signed(version="1.1.0"))
        assert registry.resolve("echo").artifact.manifest.version == "1.1.0"
