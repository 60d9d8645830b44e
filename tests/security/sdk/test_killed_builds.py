"""A build that is killed leaves nothing running, whatever the author's module waits for."""

import os
import select
import subprocess
import sys

import pytest

from toolcell_sdk.hermetic import SETUP_FAILED

pytestmark = pytest.mark.slow

BUILDER = """
import subprocess, sys
from toolcell_sdk.hermetic import hermetic_command
waits = "import time; print('waits', flush=True); time.sleep(1e6)"
command = hermetic_command([sys.executable, "-I", "-c", waits], sys.argv[1])
sys.exit(subprocess.run(command).returncode)
"""
DEADLINE_S = 20


def ended(descriptor: int) -> bool:
    """Whether everybody who held the other end of the pipe is gone by the deadline."""
    ready, _, _ = select.select([descriptor], [], [], DEADLINE_S)
    return bool(ready) and os.read(descriptor, 1) == b""


def test_a_builder_that_is_killed_takes_the_compiler_with_it(tmp_path):
    command = [sys.executable, "-c", BUILDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as builder:
        assert builder.stdout is not None
        if builder.stdout.readline() != b"waits\n":
            assert builder.wait() == SETUP_FAILED
            pytest.skip("this machine can't fix a build's surroundings (ptrace, seccomp)")
        builder.kill()
        builder.wait()
        assert ended(builder.stdout.fileno())
