"""A hermetic program sees one time, no entropy, and files without a date or an order."""

import json
import os
import subprocess
import sys

import pytest

from toolcell_sdk.hermetic import SETUP_FAILED, hermetic_command
from toolcell_sdk.hermetic.vdso import FROZEN_TIME_S

pytestmark = pytest.mark.slow

LOOK_AROUND = """
import json, os, sys, threading, time
entropy = []
threads = [threading.Thread(target=lambda: entropy.append(os.getrandom(8).hex())) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
clocks = [time.time(), time.monotonic(), time.perf_counter(), time.time_ns()]
print(json.dumps({"entropy": entropy, "clocks": clocks, "names": os.listdir(sys.argv[1])}))
"""

STATX = """
import ctypes, json, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def statx(path):
    buffer = ctypes.create_string_buffer(256)
    if libc.statx(-100, path.encode(), 0, 0xFFF, buffer):
        return ctypes.get_errno()
    (mode,) = struct.unpack_from("=H", buffer, 28)
    inode, size = struct.unpack_from("=QQ", buffer, 32)
    times = [struct.unpack_from("=qI", buffer, at) for at in (64, 80, 96, 112)]
    return [mode & 0o170000, inode, size, times]
print(json.dumps([statx(path) for path in sys.argv[1:]]))
"""


def run(root, *argv, hermetic=True):
    program = [sys.executable, "-I", *argv]
    command = hermetic_command(program, root) if hermetic else program
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def look_around(root, **options):
    done = run(root, "-c", LOOK_AROUND, str(root), **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_clock_and_entropy_stand_still(tmp_path):
    seen = look_around(tmp_path)
    assert seen["clocks"] == [FROZEN_TIME_S] * 3 + [FROZEN_TIME_S * 10**9]
    assert len(seen["entropy"]) == 4
    assert len(set(seen["entropy"])) == 1
    assert seen == look_around(tmp_path)
    free = look_around(tmp_path, hermetic=False)
    assert len(set(free["entropy"])) == 4
    assert FROZEN_TIME_S not in free["clocks"]


def test_a_folder_is_listed_whole_and_sorted(tmp_path):
    # More than one buffer of the C library, made in an order that is not the sorted one.
    names = [f"{number * 7919 % 3000:05}-{'x' * 40}" for number in range(3000)]
    for name in names:
        (tmp_path / name).touch()
    assert look_around(tmp_path)["names"] == sorted(names)


def test_files_have_neither_date_nor_inode_of_their_own(tmp_path):
    seen = []
    for place in ("one", "two"):
        root = tmp_path / place
        (root / "folder").mkdir(parents=True)
        (root / "file").write_text("four")
        os.utime(root / "file", (1, 2 + len(seen)))
        paths = [str(root / "file"), str(root / "folder"), str(root / "missing")]
        done = run(root, "-c", STATX, *paths)
        seen.append(json.loads(done.stdout))
    file, folder, missing = seen[0]
    assert seen[0] == seen[1]
    assert (file[0], file[2], folder[0]) == (0o100000, 4, 0o040000)
    assert file[1] != folder[1]
    assert file[3] == folder[3] == [[FROZEN_TIME_S, 0]] * 4
    assert missing == 2  # ENOENT


@pytest.mark.parametrize(
    ("source", "status"),
    [("pass", 0), ("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_the_exit_status_is_the_programs(tmp_path, source, status):
    assert run(tmp_path, "-c", source).returncode == status


def test_a_program_that_can_not_start_is_a_set_up_that_failed(tmp_path):
    command = hermetic_command([str(tmp_path / "missing")], tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == SETUP_FAILED
    assert done.stderr.startswith("hermetic set-up failed: ")


def test_what_the_program_starts_gets_no_entropy_either(tmp_path):
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-Ic', sys.argv[1]])"
    entropy = "import os; print(os.getrandom(4).hex())"
    outputs = {run(tmp_path, "-c", nested, entropy).stdout for _ in range(2)}
    assert len(outputs) == 1
