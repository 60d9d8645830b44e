"""`toolcell new`: a folder that is a tool from the first moment, or no folder at all."""

import pytest

from toolcell_sdk.errors import ProjectError
from toolcell_sdk.lint import lint
from toolcell_sdk.project import load_project
from toolcell_sdk.scaffold import new
from toolcell_sdk.testing import ToolTest


def test_a_new_tool_is_whole(tmp_path):
    files = new(tmp_path / "deep" / "my-tool")
    assert [file.name for file in files] == [
        "README.md",
        "my_tool.py",
        "policy.toml",
        "test_my_tool.py",
        "tool.toml",
    ]
    project = load_project(tmp_path / "deep" / "my-tool")
    assert (project.name, project.module) == ("my-tool", "my_tool")
    assert lint(project.folder) == []
    with ToolTest(project.folder) as tool:
        assert tool.call("greet", name="Ada") == "Hello, Ada!"


def test_every_tool_has_an_id_of_its_own(tmp_path):
    ids = set()
    for name in ("a", "b"):
        new(tmp_path / name)
        ids.add(load_project(tmp_path / name).id)
    assert len(ids) == 2


def test_the_name_can_differ_from_the_folder(tmp_path):
    new(tmp_path / "Folder", name="tool")
    assert load_project(tmp_path / "Folder").name == "tool"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("json", "tool_json"),
        ("class", "tool_class"),
        ("annotationlib", "tool_annotationlib"),
        ("toolcell-sdk", "tool_toolcell_sdk"),
        ("test-data", "tool_test_data"),
        ("conftest", "tool_conftest"),
        ("match", "match"),
    ],
)
def test_a_module_is_never_named_like_one_that_is_there_already(tmp_path, name, module):
    new(tmp_path / name)
    project = load_project(tmp_path / name)
    assert (project.name, project.module) == (name, module)
    assert lint(project.folder) == []
    with ToolTest(project.folder) as tool:
        assert tool.call("greet", name="Ada") == "Hello, Ada!"


@pytest.mark.parametrize("name", ["Upper", "a b", "a_b", "-a", "a" * 65, "class.", "$(x)"])
def test_a_name_that_can_be_no_tools_is_refused(tmp_path, name):
    with pytest.raises(ProjectError, match="can't be a tool's name"):
        new(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_not_touched(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(ProjectError, match="is there already"):
        new(tmp_path / "taken")
    assert [file.name for file in (tmp_path / "taken").iterdir()] == ["file"]
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    assert len(new(tmp_path / "empty")) == 5


def test_an_unknown_template_is_named(tmp_path):
    with pytest.raises(ProjectError, match="no template `cobol`; known: python"):
        new(tmp_path / "a", template="cobol")
