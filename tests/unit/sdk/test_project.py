"""`tool.toml`: read strictly, with messages that name file, field, value and remedy."""

import dataclasses

import pytest

from toolcell.artifact.manifest import Manifest, RequestedLimits, SandboxNeeds
from toolcell.policy.envelope import CAPABILITIES as KNOWN_TO_THE_RUNTIME
from toolcell_sdk.errors import ProjectError
from toolcell_sdk.project import LIMITS, MAX_PROJECT_FILE_BYTES, Project, load_project
from toolcell_sdk.wit import CAPABILITIES


def test_a_project_is_read_with_its_defaults(tool_folder):
    folder = tool_folder()
    project = load_project(folder)
    assert project == Project(
        folder=folder, id=project.id, name="sample", version="0.1.0", module="sample"
    )
    assert load_project(folder / "tool.toml") == project


def test_every_field_can_be_given(tool_folder):
    folder = tool_folder(
        description="d",
        lane="wasi",
        policy_class="compute",
        capabilities=["kv.get"],
        python_path=["vendor"],
        toml='[limits]\nmemory_mb = 64\nfuel = 10\n[sandbox]\nrequired = true\nnetwork = "off"\n',
    )
    project = load_project(folder)
    assert project.capabilities == ("kv.get",)
    assert project.limits == {"memory_mb": 64, "fuel": 10}
    assert project.sandbox == {"required": True, "network": "off"}


@pytest.mark.parametrize(
    ("fields", "toml", "words"),
    [
        ({"nmae": "x"}, "", r"\[tool\] has an unknown field `nmae`; did you mean `name`\?"),
        ({"id": "x"}, "", r"`id` is 'x'; it must be a UUID"),
        ({"id": "11111111-2222-4333-8444-55555555555F"}, "", "UUID in lower case"),
        ({"version": "1.0"}, "", "MAJOR.MINOR.PATCH"),
        ({"version": "01.0.0"}, "", "MAJOR.MINOR.PATCH"),
        ({"module": "a-b"}, "", "name of a Python module"),
        ({"module": "../a"}, "", "name of a Python module"),
        ({"lane": "wasm"}, "", 'one of "wasi", "oops"'),
        ({"description": "d" * 4001}, "", "has 4001 characters; the limit is 4000"),
        (
            {"capabilities": ["kv.gte"]},
            "",
            r"'kv.gte', which does not exist; did you mean `kv.get`",
        ),
        ({"capabilities": ["kv.get", "kv.get"]}, "", "lists an entry twice"),
        ({"capabilities": "kv.get"}, "", "must be a list of strings"),
        ({"python_path": ["/etc"]}, "", "a folder inside the project"),
        ({"python_path": ["../x"]}, "", "a folder inside the project"),
        ({"python_path": ["a/../.."]}, "", "a folder inside the project"),
        ({}, "[limits]\nmemory = 1\n", r"\[limits\] has an unknown field `memory`; did you mean"),
        ({}, "[limits]\nmemory_mb = 0\n", "a whole number from 1"),
        ({}, "[limits]\nmemory_mb = 1.5\n", "a whole number from 1"),
        ({}, "[limits]\nmemory_mb = true\n", "a whole number from 1"),
        ({}, '[sandbox]\nnetwork = "on"\n', '"outbound-https-only"'),
        ({}, '[sandbox]\nrequired = "yes"\n', "true or false"),
        ({}, "[extra]\n", r"unknown table \[extra\]; known: tool, limits, sandbox"),
        ({}, "[tool.more]\n", r"unknown field `more`"),
        ({}, "nonsense", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(tool_folder, fields, toml, words):
    with pytest.raises(ProjectError, match=words) as caught:
        load_project(tool_folder(toml=toml, **fields))
    assert "tool.toml" in str(caught.value)


@pytest.mark.parametrize("name", ["Upper", "a--b", "-a", "a-", "1a", "a" * 65, "ä"])
def test_a_name_that_a_manifest_can_not_hold_is_refused(tmp_path, name):
    (tmp_path / "tool.toml").write_text(f'[tool]\nname = "{name}"\n')
    with pytest.raises(ProjectError, match=r"\[tool\] `name`"):
        load_project(tmp_path)


@pytest.mark.parametrize("field", ["id", "name", "version", "module"])
def test_a_required_field_that_is_missing_is_named(tool_folder, field):
    folder = tool_folder()
    file = folder / "tool.toml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{field} ")]
    file.write_text("\n".join(lines))
    with pytest.raises(ProjectError, match=rf"\[tool\] has no `{field}`"):
        load_project(folder)


def test_no_file_and_too_large_a_file_are_refused(tmp_path):
    with pytest.raises(ProjectError, match="no such file; `toolcell new"):
        load_project(tmp_path)
    (tmp_path / "tool.toml").write_text("#" * (MAX_PROJECT_FILE_BYTES + 1))
    with pytest.raises(ProjectError, match="the limit is 16384"):
        load_project(tmp_path)


def test_the_project_file_and_the_manifest_have_the_same_fields():
    ours = {field.name for field in dataclasses.fields(Project)}
    built = {"schema", "files", "methods", "entry_point"}
    assert ours - {"folder", "module", "python_path"} == set(Manifest.__struct_fields__) - built
    assert set(LIMITS) == set(RequestedLimits.__struct_fields__)
    assert set(CAPABILITIES) == KNOWN_TO_THE_RUNTIME


def test_the_sandbox_table_takes_what_the_manifest_takes(tool_folder):
    for name in SandboxNeeds.__struct_fields__:
        with pytest.raises(ProjectError, match=f"`{name}`"):
            load_project(tool_folder(toml=f"[sandbox]\n{name} = 7\n"))
