"""docs/policy.md: every command that it shows runs, on the policy that it shows."""

import re
from pathlib import Path

import pytest
from installation import Installation

pytestmark = pytest.mark.slow

TEXT = (Path(__file__).parents[3] / "docs" / "policy.md").read_text()


def test_the_commands_run_on_the_policy_of_the_page(shell, archive_of):
    installation = Installation(shell.home)
    installation.publish(archive_of("csv-profile"))
    first = re.search(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[1]
    (shell.folder / "policy.toml").write_text(first)
    commands = re.findall(r"^\$ (.*)$", TEXT, re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        assert shell(command)
