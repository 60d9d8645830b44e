"""Each example's README, followed to the letter by somebody who has nothing yet: from the root of
the repository, with an empty home."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installation import EXAMPLES

pytestmark = pytest.mark.slow

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)

RESULTS = {
    "csv-profile": lambda given: given["rows"] == 10_000 and len(given["columns"]) == 14,
    "notebook": lambda given: [each["title"] for each in given] == ["Milk"],
    "regex-grep": lambda given: given["total"] == 28 and len(given["matches"]) == 2,
    "thumbnail": lambda given: [each["width"] for each in given] == [256, 64],
    "web-digest": None,  # asks a server of the Internet
}
"""What the last command of each prints."""


@pytest.fixture
def root(tmp_path):
    """What of the repository the commands name, so that none of them leaves anything in it."""
    shutil.copytree(
        EXAMPLES, tmp_path / "tools-examples", ignore=shutil.ignore_patterns("build", "__pycache__")
    )
    return tmp_path


def shell(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_example_is_followed():
    assert sorted(RESULTS) == sorted(file.parent.name for file in EXAMPLES.glob("*/tool.toml"))


@pytest.mark.parametrize("name", RESULTS)
def test_the_commands_of_a_readme_work_in_their_order(name, root):
    (block,) = BLOCK.findall((root / "tools-examples" / name / "README.md").read_text())
    commands = COMMAND.findall(block)
    words = [command.split()[1] for command in commands]
    assert words[:6] == ["test", "build", "keygen", "sign", "publish", "run"]
    holds = RESULTS[name]
    out = ""
    for command in commands if holds else commands[:5]:
        out = shell(command, root)
    assert holds is None or holds(json.loads(out))
