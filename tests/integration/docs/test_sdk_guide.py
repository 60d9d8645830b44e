"""docs/sdk.md from its top to its end: files are written where their first line says, commands run
in their order, and what is shown is what is printed."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TEXT = (Path(__file__).parents[3] / "docs" / "sdk.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_the_guide_works_as_it_says(shell):
    steps = 0
    for language, body in BLOCK.findall(TEXT):
        if language == "console":
            for command, expected in STEP.findall(body):
                assert expected in shell(command)
                steps += 1
        else:
            name = re.match(r"# (\S+)\n", body)[1]
            (shell.folder / name).write_text(body)
    assert steps >= 12
