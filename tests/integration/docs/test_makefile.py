"""`make` asks for the Python that it needs before it makes anything."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OLD = """#!/bin/bash
echo "$@" >> {log}
[ "$1" = -c ] && exec {python} -c "import sys; sys.version_info = (3, 10, 14); $2"
exit 3
"""


@pytest.fixture
def checkout(tmp_path):
    """The files that decide whether .venv is up to date, and no .venv."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "native/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def program(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def make(folder: Path, python: Path) -> subprocess.CompletedProcess:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(
        ["make", "demo", f"PYTHON={python}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_python_that_is_too_old_is_refused_before_anything_is_made(checkout):
    log = checkout / "log"
    old = program(checkout / "old", OLD.format(log=log, python=sys.executable))
    done = make(checkout, old)
    assert done.returncode != 0
    assert f"toolcell needs Python 3.11 or newer, and {old} is none" in done.stderr
    assert "make demo PYTHON=" in done.stderr
    assert not (checkout / ".venv").exists()
    assert "venv" not in log.read_text()


@pytest.mark.slow
def test_a_venv_of_a_python_that_is_too_old_is_thrown_away(checkout):
    log = checkout / "log"
    program(checkout / ".venv/bin/python", OLD.format(log=log, python=sys.executable))
    new = f'#!/bin/bash\n[ "$1" = -c ] && exec {sys.executable} "$@"\nexit 3\n'
    done = make(checkout, program(checkout / "new", new))
    assert done.returncode != 0  # this one makes no venv: it stops there
    assert "-m venv" in done.stdout
    assert not (checkout / ".venv").exists()
