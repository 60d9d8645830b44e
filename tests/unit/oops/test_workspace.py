"""Unpacked artifacts: as verified, sealed, and gone with their process."""

import fcntl
import hashlib

import pytest

from toolcell.artifact.manifest import Manifest, Method
from toolcell_oops.base.tree import discard
from toolcell_oops.workspace import Workspace

FILES = {"program.json": b"{}", "bin/x": b"#!", "app/pkg/m.py": b"pass"}


class Artifact:
    publisher = "t"
    digest = "sha256:0"

    def __init__(self):
        self.manifest = Manifest(
            id="00000000-0000-0000-0000-000000000000",
            name="t",
            version="1.0.0",
            lane="oops",
            entry_point="program.json",
            methods={"go": Method(input={}, output={})},
            files={name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()},
        )

    def read(self, name):
        return FILES[name]


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "tools"
    discard(tmp_path / "tools")


def test_a_tree_holds_the_files_sealed(folder):
    workspace = Workspace(folder)
    root = workspace.unpack(Artifact())
    found = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert found == FILES
    modes = {name: (root / name).stat().st_mode & 0o777 for name in FILES}
    assert modes == {"program.json": 0o444, "bin/x": 0o555, "app/pkg/m.py": 0o444}
    workspace.close()
    assert list(folder.iterdir()) == []


def test_a_failure_half_way_leaves_nothing(folder, monkeypatch):
    workspace = Workspace(folder)
    artifact = Artifact()
    artifact.read = lambda name: FILES[name] if name != "program.json" else 1 / 0
    inside = next(folder.iterdir())
    before = list(inside.iterdir())
    with pytest.raises(ZeroDivisionError):
        workspace.unpack(artifact)
    assert list(inside.iterdir()) == before
    workspace.close()


def test_what_a_killed_process_left_is_removed_and_a_living_one_s_is_not(folder):
    living = Workspace(folder)
    kept = living.unpack(Artifact())
    dead = Workspace(folder)
    dead.unpack(Artifact())
    fcntl.flock(dead._lock, fcntl.LOCK_UN)  # what the kernel does when a process ends
    Workspace(folder).close()
    assert kept.exists()
    assert not dead._folder.exists()
    living.close()
