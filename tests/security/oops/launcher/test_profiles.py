"""The two profiles in real cells: each refused call with the filter on, and with it off."""

import socket

import pytest
from oops_launcher import plan

from toolcell_oops.seccomp import compile_profile, load_profile

ATTACKS = {
    "io_uring": ("call(425, 1, ctypes.create_string_buffer(120))", {"ENOSYS"}, {"WON"}),
    "keyctl": ("call(250, 0, -3, 1)", {"EPERM"}, {"WON"}),
    "request_key": ("call(249, b'user', b'x', 0, -3)", {"EPERM"}, {"ENOKEY", "ENOENT", "EACCES"}),
    "ptrace": ("call(101, 0, 0, 0, 0)", {"EPERM"}, {"WON"}),
    "userfaultfd": ("call(323, 1)", {"EPERM"}, {"WON"}),
    "personality": ("call(135, 0x0040000)", {"EPERM"}, {"WON"}),
    "vsock": ("socket.socket(40, socket.SOCK_STREAM)", {"EPERM"}, {"WON", "EAFNOSUPPORT"}),
    "netlink_alg": ("socket.socket(38, socket.SOCK_SEQPACKET)", {"EPERM"}, {"WON", "EAFNOSUPPORT"}),
    "clone3": ("call(435, bytes(8), 8)", {"ENOSYS"}, {"EINVAL"}),
    "x32": ("call(0x40000000 | 39)", {"signal 31", "EPERM", "ENOSYS"}, {"WON", "ENOSYS"}),
    "kcmp": ("call(312, 2, 2, 0, 0, 0)", {"EPERM"}, {"WON"}),
    "process_vm": ("call(310, 2, 0, 0, 0, 0, 0)", {"EPERM"}, {"WON", "EINVAL"}),
}
"""An attack, what a profile makes of it, and what the kernel does without one."""


@pytest.fixture(scope="module", params=["strict", "baseline"])
def profile(request):
    """The finished filter of each profile."""
    return compile_profile(load_profile(request.param))


@pytest.mark.parametrize("name", ATTACKS)
def test_call_is_stopped_by_the_profile(attack, profile, name):
    source, refused, let_through = ATTACKS[name]
    assert attack(source, seccomp=profile) in refused
    assert attack(source, without=["seccomp"]) in let_through


def test_user_namespace_is_stopped_by_the_profile_as_well(attack, profile):
    for source in ("call(272, 0x10000000)", "call(56, 0x10000011, 0, 0, 0, 0)"):
        assert attack(source, seccomp=profile, without=["userns_limit"]) == "EPERM"
    assert attack("call(272, 0x10000000)", without=["userns_limit", "seccomp"]) == "WON"


@pytest.mark.parametrize("request_number", [0x5412, 0x541C, 0x7FFF_FFFF_0000_5412])
def test_typing_into_a_terminal_is_stopped_by_the_profile(attack, profile, request_number):
    """TIOCSTI and TIOCLINUX; the kernel looks at 32 bits only, so the filter does too."""
    source = f"call(16, 0, {request_number}, b'x')"
    assert attack(source, seccomp=profile) == "EPERM"
    # Standard input is a file: without the filter the request reaches it, and means nothing.
    assert attack(source, without=["seccomp"]) == "ENOTTY"


def test_ordinary_work_is_let_through(attack, profile):
    work = """
    import subprocess, threading, json, tempfile
    worker = threading.Thread(target=print, args=("thread",))
    worker.start(); worker.join()
    assert subprocess.run(["/usr/bin/true"]).returncode == 0
    ours, theirs = socket.socketpair()
    ours.sendall(b"x"); assert theirs.recv(1) == b"x"
    os.urandom(8)
    """
    assert attack(work, seccomp=profile) == "WON"


def test_unix_socket_that_was_granted_works_under_either_profile(launcher, profile):
    ours, theirs = socket.socketpair()
    source = "import socket; socket.socket(fileno=3).sendall(b'hello')"
    made = plan("-I", "-S", "-c", source, seccomp=profile, fds=[0, 1, 2, 3])
    with ours, theirs:
        run = launcher.run(made, extra=[theirs.fileno()])
        assert run.ended["exit"] == 0, run.err
        assert ours.recv(16) == b"hello"
