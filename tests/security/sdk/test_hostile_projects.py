"""Somebody else's project is linted and built: it must not read or hold up the machine.

The author's code runs in the compiler's guest only, and may write to the staged folders there. So
both the project and what the guest leaves are hostile.
"""

import json
import os
import shutil

import pytest
from click.testing import CliRunner

from toolcell.cli.author import lint_command
from toolcell_sdk.builder.description import read_description
from toolcell_sdk.builder.staging import flatten, stage
from toolcell_sdk.errors import BuildError, ProjectError
from toolcell_sdk.lint import lint
from toolcell_sdk.project import load_project
from toolcell_sdk.sources import plain_files

ONE_METHOD = """
from toolcell_sdk import method
@method
def go(n: int) -> int:
    \"\"\"Goes.\"\"\"
    return n
"""
DEPTH = 1500
"""Folders inside each other: beyond what `shutil.rmtree` can recurse."""


@pytest.fixture
def private(tmp_path):
    """Files of whoever builds, outside of the project."""
    folder = tmp_path / "home" / ".ssh"
    folder.mkdir(parents=True)
    (folder / "id_ed25519").write_text("PRIVATE")
    return folder


@pytest.mark.parametrize("name", ["vendor/.ssh", "linked"])
def test_a_link_on_the_way_to_a_vendored_folder_is_refused(project, private, tmp_path, name):
    folder = project(python_path=[name])
    (folder / "vendor").symlink_to(private.parent)
    (folder / "linked").symlink_to(private)
    root = tmp_path / "staged"
    root.mkdir()
    with pytest.raises(ProjectError, match=r"/(vendor|linked): a link"):
        stage(load_project(folder), root)
    assert not list(root.rglob("id_ed25519"))


def test_without_that_check_the_private_file_would_be_packed(project, private):
    folder = project(python_path=["vendor/.ssh"])
    (folder / "vendor").symlink_to(private.parent)
    (found,) = plain_files(folder / "vendor/.ssh")
    assert found.read_text() == "PRIVATE"


def test_a_module_that_is_a_link_to_a_device_is_not_read(project):
    folder = project()
    (folder / "zero.py").symlink_to("/dev/zero")
    with pytest.raises(ProjectError, match=r"zero\.py: a link"):
        lint(folder)


def test_a_module_that_is_a_pipe_holds_nobody_up(project):
    folder = project(ONE_METHOD)
    os.mkfifo(folder / "pipe.py")
    assert lint(folder) == []


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_project_file_that_is_a_pipe_or_a_link_is_refused(project, make):
    folder = project()
    (folder / "tool.toml").unlink()
    make(folder / "tool.toml")
    with pytest.raises(ProjectError, match=r"tool\.toml: "):
        load_project(folder)


@pytest.mark.parametrize("value", ["[" * 5000, "9" * 5000, "{a=" * 1000])
def test_a_project_file_can_not_end_the_reader(project, value):
    folder = project()
    with (folder / "tool.toml").open("a") as file:
        file.write(f"x = {value}\n")
    with pytest.raises(ProjectError, match="not valid TOML"):
        load_project(folder)


def test_a_file_name_can_not_steer_the_terminal(project):
    folder = project()
    (folder / "a\x1b]0;title\x07.py").write_text("import socket\n")
    shown = CliRunner().invoke(lint_command, [str(folder)]).output
    assert "a\\x1b]0;title\\x07.py:1: " in shown
    assert "\x1b" not in shown


def test_a_description_that_is_a_link_is_not_followed(tmp_path):
    secret = tmp_path / "secret.json"
    described = {"description": "SECRET", "input": {}, "output": {}}
    secret.write_text(json.dumps({"methods": {"go": described}}))
    assert read_description(secret)["go"]["description"] == "SECRET"
    link = tmp_path / "description.json"
    link.symlink_to("secret.json")
    with pytest.raises(BuildError, match="Too many levels of symbolic links"):
        read_description(link)
    link.unlink()
    os.mkfifo(link)
    with pytest.raises(BuildError, match="Not a plain file"):
        read_description(link)


def test_folders_that_a_guest_nested_too_deep_are_removed(tmp_path):
    root = tmp_path / "root"
    deep = root / "source"
    deep.mkdir(parents=True)
    at = os.open(deep, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    with pytest.raises(RecursionError):
        shutil.rmtree(root)
    flatten(root)
    shutil.rmtree(root)
    assert not root.exists()
