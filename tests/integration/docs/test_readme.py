"""README's example works exactly as it says: every block, in its order, as a new user would."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^<!-- example: ([a-z-]+) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> dict[str, tuple[str, str]]:
    return {name: (language, body) for name, language, body in BLOCK.findall(TEXT)}


def test_every_code_block_is_an_example_that_is_tested():
    fenced = re.findall(r"^```(\w+)$", TEXT, re.MULTILINE)
    assert len(fenced) == len(blocks()), "mark each block with <!-- example: NAME -->"


def test_the_first_tool(shell):
    _, body = blocks()["first-tool"]
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE)
    assert len(steps) == 6
    for command, expected in steps:
        assert expected in shell(command)


def test_the_source_that_is_shown_is_the_one_that_new_writes(shell):
    _, body = blocks()["hello"]
    written = (shell.folder / "hello" / "hello.py").read_text()
    shown = body[body.index("from toolcell_sdk") :].strip()
    assert shown in written


def test_the_embedding_example_runs(shell):
    _, body = blocks()["embed"]
    (shell.folder / "embed.py").write_text(body)
    out = shell("python embed.py")
    assert out.startswith("200 Hello, Ada!\n")
    assert "hmac-sha256:" in out


def test_the_policy_example_is_valid_and_explains(shell):
    _, body = blocks()["policy"]
    (shell.folder / "digest.toml").write_text(body)
    shell("toolcell policy check digest.toml")
    command = re.search(r"`(toolcell policy explain [^`]+)`", TEXT)[1]
    assert "cpu_time_ms" in shell(command)
