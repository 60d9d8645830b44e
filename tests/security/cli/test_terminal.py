"""Words of a publisher or of a policy's author on the operator's terminal."""

import pytest
from artifact_maker import unsigned
from click.testing import CliRunner

from toolcell.cli import terminal
from toolcell.cli.artifacts import inspect_command
from toolcell.cli.policy import policy_command

TITLE = "\x1b]0;owned\x07"
HIDDEN = "\x1b[8m\u202e\u009b8m"
IMPORT = f"evil{TITLE}\nsignature     valid, publisher acme".encode()
COMPONENT = (
    b"\0asm\x0d\0\x01\0"
    + bytes([10, len(IMPORT) + 5, 1, 0, len(IMPORT)])
    + IMPORT
    + b"\x01\x00"  # the type of the import: function 0
)
POLICY = """
[classes.mirror]
description = "Mirrors.\\u001b[8m"
network = "full"
[classes.mirror.capabilities.http]
domians = []
[classes."x\\u001b[2J\\u202e"]
"""


@pytest.fixture
def shown(private_home):
    """`shown(command, words…)`: what is printed, escapes and all."""

    def run(command, *words):
        return CliRunner().invoke(command, [*map(str, words)], obj=None, color=True).output

    return run


@pytest.fixture
def artifact(tmp_path):
    """Well-formed, unsigned, hostile: `inspect` must be safe to use on it."""
    path = tmp_path / "evil.tool"
    path.write_bytes(unsigned({"tool.wasm": COMPONENT}, description=f"Harmless.{HIDDEN}"))
    return path


@pytest.fixture
def policy(tmp_path):
    """A policy that somebody asks the operator to look at."""
    path = tmp_path / "evil.toml"
    path.write_text(POLICY)
    return path


def test_an_artifact_that_is_inspected_can_not_steer_the_terminal(shown, artifact):
    text = shown(inspect_command, artifact)
    assert "evil\\x1b]0;owned\\x07\\nsignature" in text
    assert not set("\x1b\u202e\u009b\x07") & set(text)


def test_a_policy_that_is_checked_or_shown_can_not_steer_the_terminal(shown, policy, tmp_path):
    text = shown(policy_command, "check", policy)
    assert "\\x1b" in text
    policy.write_text(POLICY.partition("[classes.mirror.capabilities")[0])
    text += shown(policy_command, "show", policy)
    assert "Mirrors.\\x1b[8m" in text
    assert not set("\x1b\u202e") & set(text)


def test_without_the_spelling_out_it_would(shown, artifact, monkeypatch):
    monkeypatch.setattr(terminal, "escape_control", lambda line: line)
    assert TITLE in shown(inspect_command, artifact)


def test_json_carries_them_spelled_out_too(shown, artifact):
    text = shown(inspect_command, artifact, "--json")
    assert not set("\x1b\u202e\u009b\x07") & set(text)


def test_a_line_that_is_plain_is_printed_as_it_is(capsys):
    terminal.say("größer → 例え")
    assert capsys.readouterr().out == "größer → 例え\n"
