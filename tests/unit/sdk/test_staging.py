"""What goes into a component: the tool's own source, bounded, and nothing else of the machine."""

import pytest

from toolcell_sdk.builder import staging
from toolcell_sdk.builder.description import MAX_DESCRIPTION_BYTES, read_description
from toolcell_sdk.builder.staging import stage
from toolcell_sdk.errors import BuildError, ProjectError
from toolcell_sdk.project import load_project


@pytest.fixture
def staged(tmp_path):
    """`staged(folder)`: the project's build folder."""

    def run(folder):
        root = tmp_path / "staged"
        root.mkdir()
        return stage(load_project(folder), root)

    return run


def names_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_modules_and_packages_are_staged_and_nothing_else(tool_folder, staged):
    folder = tool_folder()
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "words.txt").write_text("data")
    (folder / "package" / "__pycache__").mkdir()
    (folder / "package" / "__pycache__" / "x.pyc").write_bytes(b"")
    (folder / "README.md").write_text("")
    (folder / "test_sample.py").write_text("")
    (folder / "build").mkdir()
    (folder / "build" / "__init__.py").write_text("")
    found = staged(folder)
    source = ["package/__init__.py", "package/words.txt", "sample.py"]
    assert names_in(found.mounts[0]) == source


def test_the_guest_part_of_the_sdk_is_staged_and_no_more(tool_folder, staged):
    sdk = names_in(staged(tool_folder()).mounts[1])
    assert "toolcell_entry.py" in sdk
    assert "toolcell_sdk/component.py" in sdk
    for outside in ("build.py", "lint/__init__.py", "testing/__init__.py", "hermetic/kernel.py"):
        assert f"toolcell_sdk/{outside}" not in sdk


def test_vendored_folders_come_in_order(tool_folder, staged):
    folder = tool_folder(python_path=["v1", "v2"])
    for name in ("v1", "v2"):
        (folder / name).mkdir()
        (folder / name / f"{name}.py").write_text("")
    mounts = staged(folder).mounts
    assert [names_in(mount) for mount in mounts[2:]] == [["v1.py"], ["v2.py"]]


def test_a_vendored_folder_that_is_missing_is_named(tool_folder, staged):
    with pytest.raises(ProjectError, match="v1: no such folder; `python_path`"):
        staged(tool_folder(python_path=["v1"]))


def test_a_module_that_is_missing_is_named(tool_folder, staged):
    with pytest.raises(ProjectError, match=r"other\.py or .*no such file; `module`"):
        staged(tool_folder(module="other"))


@pytest.mark.parametrize("place", ["linked.py", "package/linked.txt", "package/folder"])
def test_a_link_is_refused(tool_folder, staged, place, tmp_path):
    folder = tool_folder()
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / place).symlink_to("/etc/passwd" if "folder" not in place else "/etc")
    with pytest.raises(ProjectError, match="a link"):
        staged(folder)


def test_the_source_is_bounded_in_files_and_bytes(tool_folder, staged, monkeypatch, tmp_path):
    monkeypatch.setattr(staging, "MAX_SOURCE_FILES", 3)
    with pytest.raises(BuildError, match="more than 3 files, at "):
        staged(tool_folder())
    monkeypatch.setattr(staging, "MAX_SOURCE_BYTES", 10)
    (tmp_path / "staged").rename(tmp_path / "first")
    with pytest.raises(BuildError, match="more than 10 bytes, at "):
        staged(tool_folder("x = 'more than ten'"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "did not describe"),
        ("[]", "did not describe"),
        ("{}", "did not describe"),
        ("[" * 100_000, "did not describe"),
        ('{"methods": {}}', "put @method on a function"),
        ('{"methods": []}', "put @method on a function"),
        ('{"methods": {"a": {}}}', "description of `a` is malformed"),
        ('{"methods": {"a": {"description": 1, "input": {}, "output": {}}}}', "`description`"),
        ('{"methods": {"a": {"description": "", "input": [], "output": {}}}}', "`input`"),
    ],
)
def test_a_description_is_read_as_untrusted_input(tmp_path, text, words):
    file = tmp_path / "description.json"
    file.write_text(text)
    with pytest.raises(BuildError, match=words):
        read_description(file)


def test_a_description_is_bounded(tmp_path):
    file = tmp_path / "description.json"
    file.write_text(" " * (MAX_DESCRIPTION_BYTES + 1))
    with pytest.raises(BuildError, match="the limit is 1048576"):
        read_description(file)
    with pytest.raises(BuildError, match="did not describe"):
        read_description(tmp_path / "missing")
