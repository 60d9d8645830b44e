"""A shell as a new user has it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def shell(tmp_path_factory, new_home):
    """Runs a command line in a folder and a home of its own, the venv's commands first.

    Returns what was printed on stdout; fails unless the exit status is 0.
    """
    folder = tmp_path_factory.mktemp("user")
    home = new_home()
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "TOOLCELL_HOME": str(home),
    }

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    run.folder = folder
    run.home = home
    return run
