"""docs/oops.md: its commands run in the order of the page, and its lists are those of the code."""

import re
import shutil
from pathlib import Path

import pytest

from toolcell_oops.lane import OopsSettings
from toolcell_oops.program import PlainMethod

TEXT = (Path(__file__).parents[3] / "docs" / "oops.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_commands_run(shell):
    documents = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    said = []
    for command in re.findall(r"^\$ (.*)$", TEXT, re.MULTILINE):
        said.append(shell(command))
        if command.startswith("mkdir"):
            for name, document in zip(("program", "manifest"), documents, strict=True):
                (shell.folder / "jq" / f"{name}.json").write_text(document)
    assert len(said) == 11
    assert any('["coot"]' in "".join(each.split()) for each in said)


def test_every_setting_and_every_field_of_a_method_is_named():
    for name in OopsSettings.__struct_fields__:
        assert f"| `{name}` |" in TEXT, name
    for name in PlainMethod.__struct_fields__:
        assert f"`{name}`" in TEXT, name
