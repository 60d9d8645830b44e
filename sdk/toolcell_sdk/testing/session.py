"""Runs a tool's tests: pytest in a child process that leaves nothing in the author's folder.

Called by `toolcell test`.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from toolcell_sdk.errors import ProjectError
from toolcell_sdk.project import load_project
from toolcell_sdk.testing.runner import RUNNER_VARIABLE

__all__ = ["run_tests"]


def run_tests(path: Path | str, *, runner: str = "", arguments: Sequence[str] = ()) -> int:
    """Runs the tests of the tool in the folder `path`; returns pytest's exit status (0: passed).

    `runner` names a cell runner (`package.module:callable`); without one the tool runs natively.
    `arguments` go to pytest. Output goes to this process's own stdout and stderr. Settings of a
    project around the tool's folder do not apply.
    """
    folder = load_project(path).folder.resolve()
    if importlib.util.find_spec("pytest") is None:
        raise ProjectError("pytest is not installed; install `toolcell[sdk]`")
    settings = next(
        (
            str(folder / name)
            for name in ("pytest.ini", "pyproject.toml")
            if (folder / name).is_file()
        ),
        os.devnull,
    )
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        # Plugins that happen to be installed would change the run and leave files behind.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        RUNNER_VARIABLE: runner,
    }
    argv = [
        *(sys.executable, "-m", "pytest", "-p", "toolcell_sdk.testing.plugin"),
        *("-p", "no:cacheprovider", "-c", settings, f"--rootdir={folder}"),
        *(f"--confcutdir={folder}", *arguments, str(folder)),
    ]
    return subprocess.run(argv, cwd=folder, env=environment, check=False).returncode  # noqa: S603
