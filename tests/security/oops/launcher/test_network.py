"""Attacks over the network and other ways to reach somebody else's process."""

import os
import signal
import socket
import subprocess

import pytest
from oops_launcher import plan

OPEN = [{"at": "/", "access": ["read", "execute", "write"]}]


@pytest.fixture
def loopback_port():
    """A server of the host on loopback that answers nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_loopback_of_the_host_is_another_network(attack, loopback_port):
    dial = f"socket.create_connection(('127.0.0.1', {loopback_port}), 2)"
    assert attack(dial, without=["landlock"]) == "ENETUNREACH"
    assert attack(dial, without=["landlock", "net"]) == "WON"


def test_tcp_is_refused_by_landlock_as_well(attack, loopback_port):
    dial = f"socket.create_connection(('127.0.0.1', {loopback_port}), 2)"
    assert attack(dial, without=["net"]) == "EACCES"
    assert attack(dial, without=["net", "landlock"]) == "WON"


def test_cell_has_no_interface_that_is_up(attack):
    look = """
    import socket, struct, fcntl
    assert [name for _, name in socket.if_nameindex()] in ([], ["lo"])
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    flags = fcntl.ioctl(probe, 0x8913, struct.pack("256s", b"lo"))
    assert not struct.unpack("16xH", flags[:18])[0] & 1
    """
    assert attack(look) == "WON"


def test_udp_has_no_way_out(attack):
    send = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.53', 53))"
    assert attack(send) == "ENETUNREACH"
    assert attack(send, without=["net"]) == "WON"


@pytest.mark.parametrize("controls", [["net"], ["landlock"]], ids=["landlock", "net"])
def test_abstract_socket_of_the_host_is_refused_by_either_control(attack, controls):
    name = "\0toolcell-test-abstract"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        dial = f"socket.socket(socket.AF_UNIX).connect({name!r})"
        assert attack(dial, without=controls) in {"EPERM", "ECONNREFUSED"}
        assert attack(dial, without=["net", "landlock"]) == "WON"


def test_raw_and_packet_sockets_need_a_capability_that_is_gone(attack):
    for kind in ("AF_INET, socket.SOCK_RAW, 1", "AF_PACKET, socket.SOCK_RAW, 3"):
        make = f"socket.socket(socket.{kind})"
        assert attack(make) == "EPERM"
        assert attack(make, without=["capabilities", "bounding"]) == "WON"


def test_host_process_does_not_exist_for_a_signal(attack):
    victim = subprocess.Popen(["sleep", "60"])
    try:
        look = f"os.kill({victim.pid}, 0)"
        assert attack(look, without=["landlock"]) == "ESRCH"
        # It is seen, and only the uid protects it.
        assert attack(look, without=["landlock", "pid"]) == "EPERM"
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_signal_to_the_cells_init_does_nothing(attack):
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
        assert attack(f"os.kill(1, {int(number)})") == "WON"


def test_system_v_memory_of_the_host_is_another_namespace(attack):
    shmget, key = 29, 0x7C7C7C7C
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.syscall(shmget, key, 4096, 0o1000 | 0o666)
    assert segment >= 0
    try:
        look = f"call({shmget}, {key}, 0, 0)"
        assert attack(look) == "ENOENT"
        assert attack(look, without=["ipc"]) == "WON"
    finally:
        libc.syscall(31, segment, 0, None)


def test_host_name_is_the_plans(attack):
    look = "import os; assert os.uname().nodename == 'cell'"
    assert attack(look) == "WON"
    assert os.uname().nodename != "cell"


def test_two_cells_do_not_meet(launcher, attack):
    """Abstract socket, System V memory and a lock of one cell, looked for by another."""
    body = """
import socket, sys, ctypes
server = socket.socket(socket.AF_UNIX); server.bind("\\0meet"); server.listen()
ctypes.CDLL(None).syscall(29, 0x5eed, 4096, 0o1666)
print("there", flush=True)
sys.stdin.read()
"""
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    answer = launcher.start(plan("-I", "-S", "-c", body), [read_in, write_out, write_out])
    try:
        assert answer["event"] == "spawned"
        assert os.read(read_out, 64) == b"there\n"
        for control in ([], ["landlock"]):
            dial = "socket.socket(socket.AF_UNIX).connect('\\0meet')"
            assert attack_of_other(launcher, dial, control) in {"EPERM", "ECONNREFUSED"}
            assert attack_of_other(launcher, "call(29, 0x5eed, 0, 0)", control) == "ENOENT"
    finally:
        for fd in (write_in, read_in, read_out, write_out):
            os.close(fd)
        assert launcher.receive()["event"] == "exit"


def attack_of_other(launcher, source, without):
    """As the fixture does, in a second cell that lives beside a first one."""
    from oops_launcher import Run

    body = (
        "import ctypes,errno,socket\n"
        "def call(*a):\n"
        " libc = ctypes.CDLL(None, use_errno=True)\n"
        " r = libc.syscall(*a)\n"
        " if r < 0: raise OSError(ctypes.get_errno(), '')\n"
        f"try:\n {source}\n print('WON')\n"
        "except OSError as e: print(errno.errorcode[e.errno])\n"
    )
    run: Run = launcher.run(plan("-I", "-S", "-c", body, without=without))
    return run.out.decode().strip()
