"""Attacks on the file system, each with the control that stops it and with that one off."""

import os
from pathlib import Path

import pytest
from oops_launcher import plan

OPEN = [{"at": "/", "access": ["read", "execute", "write"]}]
"""Landlock rules that stop nothing, so that another control is seen to."""


@pytest.fixture
def secret(tmp_path_factory):
    """A file of the host that anybody may read."""
    folder = tmp_path_factory.mktemp("secret")
    for path in (folder, *list(folder.parents)[:2]):
        path.chmod(0o755)
    made = folder / "secret.txt"
    made.write_text("host")
    made.chmod(0o644)
    return made


def host_plan(**changes):
    """A plan whose root is the host's: what the pivot would have taken away."""
    return {"mounts": [], **changes}


def test_host_file_is_out_of_reach_because_the_root_is_pivoted(attack, secret):
    read = f"open({str(secret)!r}).read()"
    assert attack(read, landlock=OPEN) == "ENOENT"
    assert attack(read, landlock=OPEN, **host_plan(without=["pivot"])) == "WON"


def test_host_file_is_out_of_reach_because_of_landlock(attack, secret):
    read = f"open({str(secret)!r}).read()"
    rules = [{"at": "/usr", "access": ["read", "execute"]}]
    assert attack(read, **host_plan(without=["pivot"], landlock=rules)) == "EACCES"
    assert attack(read, **host_plan(without=["pivot", "landlock"])) == "WON"


def test_bound_tree_is_not_writable_because_it_is_read_only(attack, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir(mode=0o777)
    tree.chmod(0o777)
    plain = plan()["mounts"]
    mounts = [*plain, {"kind": "bind", "source": str(tree), "at": "/tool"}]
    write = "open('/tool/planted', 'w').write('x')"
    assert attack(write, mounts=mounts, landlock=OPEN) == "EROFS"
    assert not (tree / "planted").exists()
    assert attack(write, mounts=mounts, landlock=OPEN, without=["read_only"]) == "WON"
    assert (tree / "planted").exists()


def test_bound_tree_is_not_writable_because_of_landlock(attack, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    tree.chmod(0o777)
    mounts = [*plan()["mounts"], {"kind": "bind", "source": str(tree), "at": "/tool"}]
    write = "open('/tool/planted', 'w').write('x')"
    assert attack(write, mounts=mounts, without=["read_only"]) == "EACCES"
    assert attack(write, mounts=mounts, without=["read_only", "landlock"]) == "WON"


def test_root_takes_no_new_file_because_it_is_sealed(attack):
    write = "open('/planted', 'w').write('x')"
    assert attack(write, landlock=OPEN) == "EROFS"
    assert attack(write, landlock=OPEN, without=["read_only"]) == "WON"


def test_scratch_runs_no_program_because_it_is_noexec(attack):
    mounts = [
        *plan()["mounts"],
        {"kind": "tmpfs", "at": "/scratch", "size_bytes": 8 << 20, "inodes": 64},
    ]
    run = """
    import shutil
    shutil.copy("/usr/bin/true", "/scratch/true")
    os.chmod("/scratch/true", 0o755)
    os.execv("/scratch/true", ["true"])
    """
    assert attack(run, mounts=mounts, landlock=OPEN) == "EACCES"


@pytest.mark.parametrize(
    ("write", "bound"),
    [
        ("open('/scratch/a', 'wb').write(bytes(2 << 20))", "size_bytes"),
        ("[open(f'/scratch/{n}', 'w').close() for n in range(100)]", "inodes"),
    ],
    ids=["size", "inodes"],
)
def test_scratch_flood_is_stopped_by_its_own_cap(attack, write, bound):
    caps = {"size_bytes": 1 << 20, "inodes": 32}
    rules = [*plan()["landlock"], {"at": "/scratch", "access": ["read", "write"]}]

    def flood(**caps):
        mounts = [*plan()["mounts"], {"kind": "tmpfs", "at": "/scratch", **caps}]
        return attack(write, mounts=mounts, landlock=rules)

    assert flood(**caps) == "ENOSPC"
    assert flood(**(caps | {bound: 8 << 20})) == "WON"


def test_proc_shows_neither_the_host_nor_the_init(attack):
    assert attack("assert set(filter(str.isdigit, os.listdir('/proc'))) == {'2'}") == "WON"
    for path in ("/proc/1/mem", "/proc/1/environ", "/proc/sys/kernel/hostname", "/proc/kcore"):
        assert attack(f"open({path!r}).read()", landlock=OPEN) == "ENOENT"
    assert attack("open('/proc/self/oom_score_adj', 'w').write('0')", landlock=OPEN) == "EROFS"


def test_host_paths_of_the_binds_are_not_shown_because_of_landlock(attack, tmp_path):
    tree = tmp_path / "a-folder-of-the-host"
    tree.mkdir()
    mounts = [*plan()["mounts"], {"kind": "bind", "source": str(tree), "at": "/tool"}]
    look = "assert 'a-folder-of-the-host' in open('/proc/self/mountinfo').read()"
    rules = [{"at": "/usr", "access": ["read", "execute"]}]
    assert attack(look, mounts=mounts, landlock=rules) == "EACCES"
    shown = [*rules, {"at": "/proc", "access": ["read"]}]
    assert attack(look, mounts=mounts, landlock=shown) == "WON"


def test_devices_are_the_harmless_five_and_none_can_be_made(attack):
    names = {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr"}
    assert attack(f"assert set(os.listdir('/dev')) == {names!r}") == "WON"
    mounts = [
        *plan()["mounts"],
        {"kind": "tmpfs", "at": "/scratch", "size_bytes": 1 << 20, "inodes": 64},
    ]
    make = "import stat; os.mknod('/scratch/vda', stat.S_IFBLK | 0o600, os.makedev(254, 0))"
    assert attack(make, mounts=mounts, without=["landlock"]) == "EPERM"
    # Even with every capability of its own namespace: a device is the host's to make.
    weak = ["landlock", "capabilities", "bounding"]
    assert attack(make, mounts=mounts, without=weak) == "EPERM"


def test_posix_shared_memory_of_the_host_is_not_there(attack):
    host = "/dev/shm/toolcell-test"  # the very place that is attacked
    descriptor = os.open(host, os.O_CREAT | os.O_RDWR, 0o666)
    os.fchmod(descriptor, 0o666)
    os.close(descriptor)
    try:
        assert attack(f"open({host!r}).close()", landlock=OPEN) == "ENOENT"
        assert (
            attack(f"open({host!r}).close()", **host_plan(without=["pivot", "landlock"])) == "WON"
        )
    finally:
        Path(host).unlink()
