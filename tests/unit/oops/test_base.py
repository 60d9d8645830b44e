"""Base trees: made once, believed only by their digest."""

import os
import socket
import subprocess

import pytest

from toolcell.errors import ArtifactRejected, ConfigError
from toolcell_oops.base import BaseStore
from toolcell_oops.base.tree import discard, seal, tree_digest


class Warnings(list):
    def __call__(self, kind, message):
        self.append((kind, message))


@pytest.fixture
def store(tmp_path):
    yield lambda warn=None, own=None: BaseStore(tmp_path / "bases", own or {}, warn)
    discard(tmp_path / "bases")


def altered(path, data=b"evil"):
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o555)


def test_an_empty_base_is_empty(store):
    base = store().get("empty")
    assert base.folders == ()
    assert list(base.root.iterdir()) == []


def test_a_base_is_made_once_and_found_again(store):
    base = store().get("native")
    made = base.root.stat().st_ino
    again = store().get("native")
    assert (again.digest, again.root.stat().st_ino) == (base.digest, made)


def test_nothing_in_a_base_can_be_written_and_all_can_be_read(store):
    root = store().get("native").root
    for path in (root, *root.rglob("*")):
        mode = path.stat().st_mode & 0o7777
        assert mode in (0o444, 0o555), (path, oct(mode))


def test_a_program_of_this_machine_runs_on_the_native_base(store):
    base = store().get("native")
    loader = next(path for path in base.root.rglob("ld-linux*"))
    library = next(base.root.rglob("libc.so.6")).parent
    done = subprocess.run(
        [loader, "--library-path", library, "--inhibit-cache", "/bin/true"], check=False
    )
    assert done.returncode == 0


def test_a_base_that_was_altered_is_thrown_away_and_made_again(store):
    base = store().get("native")
    altered(next(base.root.rglob("libm.so.6")))
    warnings = Warnings()
    again = store(warnings).get("native")
    assert again.digest == base.digest == tree_digest(again.root)
    assert [kind for kind, _ in warnings] == ["oops.base_altered"]


def test_a_file_that_was_added_to_a_base_is_noticed(store):
    base = store().get("empty")
    base.root.chmod(0o755)
    (base.root / "extra").write_text("x")
    warnings = Warnings()
    assert store(warnings).get("empty").folders == ()
    assert warnings


def test_a_tree_of_the_operator_s_is_used_where_it_is_and_never_mended(store, tmp_path):
    tree = tmp_path / "own"
    (tree / "opt").mkdir(parents=True)
    (tree / "opt/x").write_text("x")
    digest = tree_digest(tree)
    assert store(own={"mine": (tree, digest)}).get("mine").root == tree
    (tree / "opt/x").write_text("y")
    with pytest.raises(ConfigError, match="digest"):
        store(own={"mine": (tree, digest)}).get("mine")
    assert (tree / "opt/x").read_text() == "y"


def test_a_base_that_is_not_here_is_named(store):
    with pytest.raises(ArtifactRejected, match="`alpine`"):
        store().get("alpine")


def make(tmp_path, change) -> str:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a").write_text("a")
    (root / "d").mkdir()
    change(root)
    return tree_digest(root)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "a").write_text("b"),
        lambda root: (root / "a").rename(root / "b"),
        lambda root: (root / "a").chmod(0o755),
        lambda root: (root / "d").rmdir(),
        lambda root: (root / "l").symlink_to("a"),
        lambda root: (root / "d/e").write_text(""),
    ],
)
def test_a_digest_covers_names_modes_links_and_content(tmp_path, change):
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    plain = make(tmp_path / "1", lambda _root: None)
    assert make(tmp_path / "2", change) != plain


def listen(root):
    link = socket.socket(socket.AF_UNIX)
    link.bind(str(root / "s"))
    link.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "l").symlink_to("/etc"),
        lambda root: (root / "d/l").symlink_to("../../x"),
        lambda root: os.mkfifo(root / "f"),
        lambda root: (root / "a").chmod(0o4755),
        listen,
    ],
)
def test_what_no_tree_may_hold_is_refused(tmp_path, change):
    with pytest.raises(ConfigError):
        make(tmp_path, change)


def test_sealing_keeps_programs_executable(tmp_path):
    root = tmp_path / "t"
    root.mkdir()
    (root / "p").write_text("")
    (root / "p").chmod(0o700)
    (root / "f").write_text("")
    seal(root)
    assert (root / "p").stat().st_mode & 0o777 == 0o555
    assert (root / "f").stat().st_mode & 0o777 == 0o444
    discard(root)
    assert not root.exists()
