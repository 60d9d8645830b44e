"""The kernel interface of a hermetic build: one seccomp filter and one ptrace stop, through ctypes.

Owns the numbers and layouts (Linux UAPI headers: seccomp.h, filter.h, ptrace.h) and the raw calls.
Must never decide what an answer is (`answers.py`) or when a call is made (`supervisor.py`).
"""

import ctypes
import os
import platform
import signal
import struct
from dataclasses import dataclass

SETUP_FAILED = 125
"""Exit status of the supervisor where the surroundings could not be fixed."""

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_NEW_LISTENER = 1 << 3
SECCOMP_RET_ALLOW = 0x7FFF0000
SECCOMP_RET_USER_NOTIF = 0x7FC00000
SECCOMP_IOCTL_NOTIF_RECV = 0xC0502100  # _IOWR('!', 0, struct seccomp_notif)
SECCOMP_IOCTL_NOTIF_SEND = 0xC0182101  # _IOWR('!', 1, struct seccomp_notif_resp)
SECCOMP_USER_NOTIF_FLAG_CONTINUE = 1

PTRACE_TRACEME = 0
PTRACE_DETACH = 17

_BPF_LD_W_ABS = 0x20
_BPF_JEQ_K = 0x15
_BPF_RET_K = 0x06
_NR_OFFSET = 0  # struct seccomp_data
_ARCH_OFFSET = 4


@dataclass(frozen=True, slots=True)
class Machine:
    """System call numbers of one architecture, and its AUDIT_ARCH value."""

    audit_arch: int
    seccomp: int
    calls: dict[str, int]


MACHINES = {
    "x86_64": Machine(
        audit_arch=0xC000003E,
        seccomp=317,
        calls={
            "getrandom": 318,
            "getdents64": 217,
            "statx": 332,
            "close": 3,
            "lseek": 8,
        },
    ),
    "aarch64": Machine(
        audit_arch=0xC00000B7,
        seccomp=277,
        calls={
            "getrandom": 278,
            "getdents64": 61,
            "statx": 291,
            "close": 57,
            "lseek": 62,
        },
    ),
}


class _SockFilter(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_SockFilter)))


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that waits for its answer (struct seccomp_notif)."""

    id: int
    tid: int
    number: int
    args: tuple[int, ...]


_libc = ctypes.CDLL(None, use_errno=True)


def machine() -> Machine | None:
    """This machine, or None where the numbers are not known here or it is not 64-bit Linux."""
    if platform.system() != "Linux" or struct.calcsize("P") != 8:
        return None
    return MACHINES.get(platform.machine())


def _checked(value: int, what: str) -> int:
    if value < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return value


def die_with_parent() -> None:
    """Ends this process, and what it execs, as soon as the thread that started it is gone.

    A builder that is killed can end nothing any more, and a module that waits where it is
    imported, under a clock that stands still, would wait for ever.
    """
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PDEATHSIG)")


def ask_to_be_traced() -> None:
    """Makes the next `exec` of this process stop until its parent detaches."""
    _checked(_libc.ptrace(PTRACE_TRACEME, 0, None, None), "ptrace(TRACEME)")


def detach(pid: int) -> None:
    """Lets a stopped child run on."""
    arguments = (ctypes.c_void_p(0), ctypes.c_void_p(0))
    _checked(_libc.ptrace(PTRACE_DETACH, pid, *arguments), "ptrace(DETACH)")


def install_listener(machine: Machine) -> int:
    """Sends the machine's calls to a listener, for this process and all that it starts.

    Calls of another architecture are let through: nothing that a build starts makes any. Returns
    the listener's descriptor.
    """
    numbers = sorted(machine.calls.values())
    count = len(numbers)
    program = [
        _SockFilter(_BPF_LD_W_ABS, 0, 0, _ARCH_OFFSET),
        _SockFilter(_BPF_JEQ_K, 0, count + 1, machine.audit_arch),
        _SockFilter(_BPF_LD_W_ABS, 0, 0, _NR_OFFSET),
        *(_SockFilter(_BPF_JEQ_K, count - i, 0, number) for i, number in enumerate(numbers)),
        _SockFilter(_BPF_RET_K, 0, 0, SECCOMP_RET_ALLOW),
        _SockFilter(_BPF_RET_K, 0, 0, SECCOMP_RET_USER_NOTIF),
    ]
    array = (_SockFilter * len(program))(*program)
    fprog = _SockFprog(len(program), array)
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(NO_NEW_PRIVS)")
    return _checked(
        _libc.syscall(
            machine.seccomp,
            SECCOMP_SET_MODE_FILTER,
            SECCOMP_FILTER_FLAG_NEW_LISTENER,
            ctypes.byref(fprog),
        ),
        "seccomp(NEW_LISTENER)",
    )


def parse_call(notification: bytes | bytearray) -> Call:
    """Reads a struct seccomp_notif (80 bytes)."""
    identifier, tid, _flags, number, _arch, _ip, *args = struct.unpack("=QIIiIQ6Q", notification)
    return Call(identifier, tid, number, tuple(args))


def answer(call: Call, value: int | None) -> bytes:
    """A struct seccomp_notif_resp: the value, the errno `-value`, or None: let the kernel do it."""
    if value is None:
        return struct.pack("=QqiI", call.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE)
    if value < 0:
        return struct.pack("=QqiI", call.id, 0, value, 0)
    return struct.pack("=QqiI", call.id, value, 0, 0)


def statx(path: str, flags: int, mask: int) -> bytes | int:
    """statx(2) on `path`: the 256 bytes of struct statx, or a negative errno."""
    buffer = ctypes.create_string_buffer(256)
    at_fdcwd = -100
    if _libc.statx(at_fdcwd, os.fsencode(path), flags, mask, buffer) != 0:
        return -ctypes.get_errno()
    return buffer.raw
