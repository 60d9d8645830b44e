"""Attacks that want more rights than a cell has."""

import fcntl
import os
import pty
import shutil
import subprocess
import termios
import textwrap
from pathlib import Path

import pytest
from oops_launcher import EPERM, KILL, Launcher, bpf, plan

HELD = ["capabilities", "bounding"]
UNSHARE, MOUNT, REBOOT, PTRACE, KEYCTL, IO_URING_SETUP = 272, 165, 169, 101, 250, 425
INIT_MODULE, KEXEC_LOAD, OPEN_BY_HANDLE, BPF, PERF = 175, 246, 304, 321, 298
NEWUSER, NEWNS = 0x10000000, 0x00020000


def test_no_capability_is_left_and_none_comes_back_by_exec(attack):
    look = """
    status = open("/proc/self/status").read()
    sets = [line.split()[1] for line in status.splitlines() if line.startswith("Cap")]
    assert len(sets) == 5 and not any(int(value, 16) for value in sets), sets
    """
    rules = [*plan()["landlock"], {"at": "/proc", "access": ["read"]}]
    assert attack(look, landlock=rules) == "WON"


def test_mount_is_refused_for_want_of_a_capability(attack):
    mount = f"call({MOUNT}, b'x', b'/dev', b'tmpfs', 0, 0)"
    assert attack(mount, without=["landlock"]) == "EPERM"
    assert attack(mount, without=["landlock", *HELD]) == "WON"


def test_mount_is_refused_by_landlock_as_well(attack):
    mount = f"call({MOUNT}, b'x', b'/dev', b'tmpfs', 0, 0)"
    assert attack(mount, without=HELD) == "EPERM"


def test_read_only_is_not_lifted_by_a_remount(attack):
    remount = f"call({MOUNT}, b'x', b'/', b'', 0x1020, 0)"  # MS_REMOUNT | MS_BIND, writable
    assert attack(remount, without=["landlock"]) == "EPERM"


def test_user_namespace_inside_is_refused_by_its_count(attack):
    unshare = f"call({UNSHARE}, {NEWUSER})"
    assert attack(unshare) == "ENOSPC"
    assert attack(unshare, without=["userns_limit"]) == "WON"


def test_other_namespaces_are_refused_for_want_of_a_capability(attack):
    for flag in (NEWNS, 0x40000000, 0x20000000, 0x08000000, 0x04000000):
        assert attack(f"call({UNSHARE}, {flag})") == "EPERM"
        assert attack(f"call({UNSHARE}, {flag})", without=[*HELD, "landlock"]) == "WON"


def test_reboot_is_refused_for_want_of_a_capability(launcher, attack):
    reboot = f"call({REBOOT}, 0xfee1dead, 672274793, 0x01234567, 0)"
    assert attack(reboot) == "EPERM"
    # With it the kernel ends the cell, not the machine: the pid namespace is the cell's own.
    assert attack(reboot, without=HELD) == "signal 9"


@pytest.mark.parametrize(
    "call",
    [
        f"call({INIT_MODULE}, b'', 0, b'')",
        f"call({KEXEC_LOAD}, 0, 0, 0, 0)",
        f"import struct; call({OPEN_BY_HANDLE}, -100, struct.pack('II8s', 8, 1, b''), 0)",
        f"call({BPF}, 5, bytes(128), 120)",
        "import time; time.clock_settime(0, 0)",
        "os.chroot('/')",
        "os.setuid(0)",
        "call(170, b'pwned', 5)",
    ],
    ids=["module", "kexec", "handle", "bpf", "clock", "chroot", "setuid", "hostname"],
)
def test_calls_on_the_machine_are_refused_for_want_of_a_right(attack, call):
    # A kernel without modules or kexec has no such call at all; uid 0 has no meaning in the cell.
    assert attack(call) in {"EPERM", "ENOSYS", "EINVAL" if "setuid" in call else "EPERM"}


def test_seccomp_answers_a_refused_call_and_kills_on_a_killed_one(attack):
    ring = f"call({IO_URING_SETUP}, 1, ctypes.create_string_buffer(120))"
    assert attack(ring, seccomp=bpf([IO_URING_SETUP])) == "EPERM"
    assert attack(ring, seccomp=bpf([IO_URING_SETUP], KILL)) == "signal 31"
    assert attack(ring, without=["seccomp"]) == "WON"


def test_key_of_the_host_is_in_no_keyring_of_the_cell(attack):
    search = f"call({KEYCTL}, 10, -3, b'user', b'toolcell-test', 0)"
    assert attack(search) == "ENOKEY"
    assert attack(search, seccomp=bpf([KEYCTL], EPERM)) == "EPERM"


def test_i386_entry_is_refused_by_the_filter(attack):
    """A page with `mov eax, 20; int 0x80; ret` (getpid of i386) that is called."""
    enter = """
    import mmap
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    if ctypes.CFUNCTYPE(ctypes.c_int)(address)() < 0: raise OSError(38, "")
    """
    assert attack(enter) == "signal 31"
    # Without the filter the kernel takes it (or has no such entry at all).
    assert attack(enter, without=["seccomp"]) in {"WON", "ENOSYS", "signal 11"}


def test_x32_entry_is_refused_by_the_filter(attack):
    enter = "call(0x40000000 | 39)"
    assert attack(enter) == "signal 31"
    assert attack(enter, without=["seccomp"]) in {"WON", "ENOSYS"}


def test_init_of_the_cell_can_not_be_traced(attack):
    attach = f"call({PTRACE}, 16, 1, 0, 0)"
    assert attack(attach) == "EPERM"


def test_open_descriptor_of_the_host_is_not_inherited(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host")
    look = """
    import os
    found = []
    for fd in range(3, 1024):
        try: found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError: pass
    print("LEAK" if any("secret" in path for path in found) else "CLEAN")
    """
    with (
        secret.open() as leaked,
        inheriting(leaked.fileno()),
        Launcher(weaken=True, inherit=(leaked.fileno(),)) as launcher,
    ):
        source = textwrap.dedent(look)
        assert launcher.run(plan("-c", source, **SEES_PROC)).out == b"CLEAN\n"
        weak = plan("-c", source, without=["close_fds"], **SEES_PROC)
        assert launcher.run(weak).out == b"LEAK\n"


SEES_PROC = {"landlock": [*plan()["landlock"], {"at": "/proc", "access": ["read"]}]}


class inheriting:
    """A descriptor that a child keeps, for as long as the block lasts."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __enter__(self) -> None:
        os.set_inheritable(self.fd, True)

    def __exit__(self, *_: object) -> None:
        os.set_inheritable(self.fd, False)


def test_environment_is_the_plans_alone(launcher):
    run = launcher.run(
        plan("-I", "-S", "-c", "import os; print(sorted(os.environ))", env=["ONE=1"])
    )
    assert run.out in (b"['ONE']\n", b"['LC_CTYPE', 'ONE']\n")


TIOCSTI_ATTACK = """
import fcntl, errno
try:
    fcntl.ioctl(0, 0x5412, b"x")
    print("WON", flush=True)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
"""


def test_terminal_of_the_host_takes_no_input_from_a_cell(tmp_path):
    legacy = Path("/proc/sys/dev/tty/legacy_tiocsti")
    if not legacy.exists() or legacy.read_text().strip() == "0":
        pytest.skip("TIOCSTI is switched off in this kernel")
    primary, secondary = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(secondary, termios.TIOCSCTTY, 0)

    with Launcher(weaken=True, before_exec=own_terminal) as launcher:
        for without, expected in ([], b"EPERM\n"), (["session"], b"WON\n"):
            read_end, write_end = os.pipe()
            made = plan("-I", "-S", "-c", TIOCSTI_ATTACK, without=without)
            answer = launcher.start(made, [secondary, write_end, write_end])
            assert answer["event"] == "spawned", answer
            os.close(write_end)
            assert os.read(read_end, 64) == expected
            os.close(read_end)
            assert launcher.receive()["event"] == "exit"
    os.close(primary)
    os.close(secondary)


def test_set_uid_program_gains_nothing(attack, tmp_path):
    """Three controls stand in the way; the receipt names each, the effective uid stays."""
    tree = tmp_path / "tree"
    tree.mkdir()
    tree.chmod(0o755)
    shutil.copy("/usr/bin/id", tree / "id")
    (tree / "id").chmod(0o4755)
    assert subprocess.run(["stat", "-c", "%u", tree / "id"], capture_output=True).stdout == b"0\n"
    mounts = [*plan()["mounts"], {"kind": "bind", "source": str(tree), "at": "/tool"}]
    rules = [*plan()["landlock"], {"at": "/tool", "access": ["read", "execute"]}]
    run = """
    import subprocess
    assert subprocess.run(["/tool/id", "-u"], capture_output=True).stdout == b"1000\\n"
    """
    assert attack(run, mounts=mounts, landlock=rules) == "WON"
