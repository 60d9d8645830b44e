"""docs/artifacts.md: every command that it shows runs, in the order of the page."""

import re
from pathlib import Path

import pytest
from artifact_maker import unsigned

from toolcell.artifact import schema_policy
from toolcell.artifact.archive import MAX_ARCHIVE_BYTES, MAX_FILE_BYTES, MAX_FILES
from toolcell.artifact.strict_json import MAX_DEPTH
from toolcell.registry.versions import parse_range

TEXT = (Path(__file__).parents[3] / "docs" / "artifacts.md").read_text()


@pytest.mark.slow
def test_the_commands_run(shell):
    (shell.folder / "echo-1.0.0.tool").write_bytes(unsigned())
    commands = re.findall(r"^\$ (.*)$", TEXT, re.MULTILINE)
    assert len(commands) >= 12
    for command in commands:
        assert shell(command)


def test_the_limits_are_the_ones_of_the_code():
    assert f"{MAX_ARCHIVE_BYTES // 2**20} MiB, {MAX_FILES:,} files" in TEXT
    assert f"{MAX_FILE_BYTES // 2**20} MiB for one file" in TEXT
    assert f"{MAX_DEPTH} levels" in TEXT


def test_every_keyword_and_format_is_listed():
    listed = set(re.findall(r"[$a-zA-Z0-9-]+", TEXT[TEXT.index("## Schemas") :]))
    keywords = schema_policy._ALLOWED - schema_policy._ANNOTATIONS - {"$schema"}
    assert keywords <= listed
    assert listed >= schema_policy.FORMATS


def test_every_range_in_the_table_is_one():
    table = TEXT[TEXT.index("| range |") : TEXT.index("A pre-release")]
    ranges = re.findall(
        r"`([^`]+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:] if row)
    )
    assert len(ranges) >= 8
    for text in ranges:
        parse_range(text)
