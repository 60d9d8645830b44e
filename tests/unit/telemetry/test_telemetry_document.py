"""docs/telemetry.md keeps in step with the code, and its example runs."""

import re

import pytest
from event_reference import DOCUMENT, all_events, with_reference

from toolcell.cli import main
from toolcell.telemetry.redact import MAX_NAME_CHARS, MAX_TEXT_CHARS

TEXT = DOCUMENT.read_text()


def test_every_event_is_listed_as_it_is():
    assert with_reference(TEXT) == TEXT, "run python tests/support/event_reference.py"
    for kind in all_events():
        assert f"### `{kind.__struct_config__.tag}`\n" in TEXT


def test_the_example_runs():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(DOCUMENT), "exec"), {})


def test_the_commands_print_what_the_page_shows(capsys):
    test_the_example_runs()
    shown = re.findall(r"```console\n\$ toolcell (.*?)\n(.*?)```", TEXT, re.DOTALL)
    assert shown
    for command, output in shown:
        with pytest.raises(SystemExit, match=r"^0$"):
            main(command.split())
        pattern = re.escape(output).replace("…", "[0-9a-f]{64}")
        assert re.fullmatch(pattern, capsys.readouterr().out)


def test_the_bounds_are_those_of_the_code():
    assert f"cut at {MAX_TEXT_CHARS:,} characters, names at {MAX_NAME_CHARS}" in TEXT
