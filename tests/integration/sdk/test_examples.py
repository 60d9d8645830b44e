"""Each example passes its own tests, natively and in its cell, and asks for what it uses only."""

from pathlib import Path

import pytest

from toolcell.cell_runner import RUNNER
from toolcell_sdk.lint import lint
from toolcell_sdk.project import load_project
from toolcell_sdk.scaffold import new
from toolcell_sdk.testing import run_tests

EXAMPLES = Path(__file__).parents[3] / "tools-examples"
NAMES = sorted(file.parent.name for file in EXAMPLES.glob("*/tool.toml"))


def test_the_examples_are_there():
    assert NAMES == ["csv-profile", "notebook", "regex-grep", "thumbnail", "web-digest"]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_without_findings_and_complete(name):
    folder = EXAMPLES / name
    assert lint(folder) == []
    assert load_project(folder).name == name
    assert {"README.md", "policy.toml"} <= {file.name for file in folder.iterdir()}


def test_the_ids_of_the_examples_differ():
    assert len({load_project(EXAMPLES / name).id for name in NAMES}) == len(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["", RUNNER], ids=["native", "cell"])
@pytest.mark.parametrize("name", NAMES)
def test_an_example_passes_its_tests(name, runner):
    before = sorted((EXAMPLES / name).rglob("*"))
    assert run_tests(EXAMPLES / name, runner=runner, arguments=["-q"]) == 0
    assert sorted((EXAMPLES / name).rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["", RUNNER], ids=["native", "cell"])
def test_a_new_tool_passes_its_tests(tmp_path, runner, capfd):
    new(tmp_path / "fresh-tool")
    assert run_tests(tmp_path / "fresh-tool", runner=runner, arguments=["-q"]) == 0
    told = capfd.readouterr().err.splitlines()
    stages = ["  building fresh-tool …", "  compiling fresh-tool, once …"]
    assert told == (stages if runner else [])


@pytest.mark.slow
def test_a_test_that_fails_fails_the_run(tmp_path):
    new(tmp_path / "broken")
    (tmp_path / "broken" / "test_more.py").write_text("def test_no():\n    assert False\n")
    assert run_tests(tmp_path / "broken", arguments=["-q"]) == 1
