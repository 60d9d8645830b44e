"""Tries system calls under a real seccomp filter, in a process of its own."""

import json
import subprocess
import sys
import tempfile

_DRIVER = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

bpf = open(sys.argv[1], "rb").read()
calls = json.loads(sys.argv[2])
buffer = ctypes.create_string_buffer(bpf)
program = Program(len(bpf) // 8, ctypes.cast(buffer, ctypes.c_void_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
for call in calls:
    ctypes.set_errno(0)
    value = libc.syscall(*(ctypes.c_long(word) for word in call))
    print(json.dumps(ctypes.get_errno() if value < 0 else 0), flush=True)
"""


def errnos_under(bpf: bytes, *calls: tuple[int, ...]) -> tuple[list[int], int]:
    """The errno of each call (number, arguments…), 0 where it worked; and the exit status of the
    process, negative for the signal that ended it.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(bpf)
        file.flush()
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _DRIVER, file.name, json.dumps(calls)],
            capture_output=True,
            text=True,
            timeout=20,
        )
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode
