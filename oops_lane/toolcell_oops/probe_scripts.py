"""The programs that the probe runs in cells: Python texts, each one thing that must not work.

Owns the texts only. They run inside a cell, under the interpreter of the base `python`, and import
nothing of toolcell.
"""

from typing import Final

__all__ = ["LOOK", "SCRIPTS", "WORDS"]

WORDS: Final = b"forked"

LOOK: Final = (
    ("pid", "os.getpid() == 2 or 'its process id is %d' % os.getpid()"),
    ("uid", "os.getuid() == os.geteuid() == 1000 or 'its uid is %d' % os.getuid()"),
    ("environment", "not os.environ or 'it has %d variables' % len(os.environ)"),
    ("descriptors", "fds() == [0, 1, 2] or 'it has %s' % fds()"),
    ("read-only-root", "fails(lambda: open('/python/x', 'w')) or 'a base tree can be written'"),
    ("proc", "{*processes()} <= {'1', '2'} or 'it sees %s' % processes()"),
    ("seccomp", "seccomp_mode() == '2' or 'no filter is in force'"),
    ("user-namespace", "libc.unshare(0x10000000) < 0 or 'unshare(CLONE_NEWUSER) works'"),
    ("io_uring", "not_there(425, 1, 0) or 'io_uring_setup is there: it goes past every filter'"),
    ("landlock", "fails(lambda: os.listdir('/')) or 'a folder that no rule names can be listed'"),
    ("network", "fails(dial) or 'a socket could be connected'"),
    ("scratch", "quota()"),
)
"""Feature -> an expression that is true where it holds, else says why not."""

_LOOK_TEXT = """
import ctypes, errno, json, os
libc = ctypes.CDLL(None, use_errno=True)

def fds():
    found = []
    for number in range(64):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found

def processes():
    return sorted(name for name in os.listdir("/proc") if name.isdigit())

def fails(action):
    try:
        action()
    except OSError:
        return True
    return False

def seccomp_mode():
    with open("/proc/self/status") as status:
        return next(line.split()[1] for line in status if line.startswith("Seccomp:"))

def not_there(*call):
    ctypes.set_errno(0)
    return libc.syscall(*call) < 0 and ctypes.get_errno() == errno.ENOSYS

def dial():
    import socket
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as link:
        link.settimeout(0.5)
        link.connect(("192.0.2.1", 80))

def quota():
    try:
        with open("/scratch/full", "wb", buffering=0) as file:
            for _ in range(8):
                file.write(bytes(262144))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT) or "writing failed: %s" % error
    return "twice its size could be written"

checks = {checks}
seen = {{}}
for name, text in checks:
    try:
        held = eval(text)
        seen[name] = "" if held is True else str(held)
    except BaseException as error:
        seen[name] = "%s: %s" % (type(error).__name__, error)
print(json.dumps(seen))
"""

_FORK_TEXT = """
import os, time
made = 0
try:
    while made < 64:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        made += 1
except OSError:
    pass
print("forked", made, flush=True)
os._exit(0)
"""

SCRIPTS: Final = {
    "look": _LOOK_TEXT.replace("{checks}", repr(LOOK)).replace("{{}}", "{}"),
    "fork": _FORK_TEXT,
    "memory": "kept = [bytes([1]) * 1048576 for _ in range(4096)]",
    "spin": "while True: pass",
    "sleep": "import time; time.sleep(60)",
}
