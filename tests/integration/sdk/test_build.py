"""A build: reproducible, sealed off from the machine, whole or not at all, clear when it fails."""

import os
import re
import shutil
import sys
import tempfile
from contextlib import closing

import pytest

from toolcell.cell_runner import Runner
from toolcell_sdk.build import COMPONENT, build
from toolcell_sdk.builder import compiler
from toolcell_sdk.errors import BuildError
from toolcell_sdk.lint import LintError
from toolcell_sdk.testing import FakeBroker
from toolcell_wasi.engine import Engine
from toolcell_wasi.engine.component import FunctionType

pytestmark = pytest.mark.slow

SOURCE = """
import logging, random, uuid
from toolcell_sdk import kv, method

@method
def number(words: set[str]) -> float:
    kv.set("seen", "1")
    return random.random() + len(words)
"""


def in_another_world(monkeypatch, tmp_path):
    """Another time zone, locale, mask, hash seed, temporary folder, and one processor only."""
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    elsewhere = tmp_path / "a-much-longer-name-for-a-temporary-folder"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))


def test_one_source_gives_one_digest_wherever_it_is_built(tool_folder, tmp_path, monkeypatch):
    first = build(tool_folder(SOURCE, ["kv.set"]), tmp_path / "out-1")
    copy = tmp_path / "deeper" / "copy"
    shutil.copytree(tmp_path / "sample", copy)
    for file in copy.iterdir():
        os.utime(file, (1, 1))
    (copy / "README.md").write_text("not part of the tool")
    in_another_world(monkeypatch, tmp_path)
    before = os.umask(0o077)
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        second = build(copy, tmp_path / "out-2", require_reproducible=True)
    finally:
        os.sched_setaffinity(0, processors)
        os.umask(before)
    assert first.reproducible
    assert first.digest == second.digest
    assert first.component.read_bytes() == second.component.read_bytes()
    assert first.methods == second.methods


def test_without_fixed_surroundings_two_builds_differ(tool_folder, tmp_path, monkeypatch):
    folder = tool_folder(SOURCE, ["kv.set"])
    monkeypatch.setattr(compiler, "hermetic_command", lambda argv, _root: argv)
    assert build(folder, tmp_path / "1").digest != build(folder, tmp_path / "2").digest


def test_a_machine_that_can_not_fix_them_says_so(tool_folder, tmp_path, monkeypatch):
    refusal = [sys.executable, "-c", "import sys; sys.stderr.write('no seccomp'); sys.exit(125)"]
    monkeypatch.setattr(compiler, "hermetic_command", lambda _argv, _root: refusal)
    folder = tool_folder(SOURCE, ["kv.set"])
    made = build(folder, tmp_path / "out")
    assert (made.reproducible, made.not_reproducible_because) == (False, "no seccomp")
    with pytest.raises(BuildError, match="can't build reproducibly: no seccomp"):
        build(folder, tmp_path / "other", require_reproducible=True)
    assert not (tmp_path / "other").exists()


def test_a_component_imports_what_is_declared_and_no_more(tool_folder):
    made = build(tool_folder(SOURCE, ["kv.set"]))
    engine = Engine()
    aot = made.component.with_suffix(".aot")
    aot.write_bytes(engine.compile(made.component.read_bytes()))
    imports = engine.load(str(aot)).imports()
    ours = {
        f"{interface}#{name}"
        for interface, members in imports.items()
        for name, member in members.items()
        if interface.startswith("toolcell:") and isinstance(member, FunctionType)
    }
    assert ours == {"toolcell:tool/kv@0.1.0#set"}


def test_nothing_is_left_behind_but_the_component(tool_folder, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    folder = tool_folder(SOURCE, ["kv.set"])
    stages = []
    made = build(folder, progress=stages.append)
    assert stages == ["lint", "stage", "compile", "done"]
    assert made.component == folder / "build" / COMPONENT
    assert {path.name for path in folder.rglob("*")} == {
        "build",
        "sample.py",
        COMPONENT,
        "tool.toml",
    }
    assert list(scratch.iterdir()) == []


def test_the_module_sees_nothing_of_the_machine_while_it_is_built(tool_folder, monkeypatch):
    monkeypatch.setenv("TOOLCELL_TEST_SECRET", "secret")
    source = """
import os, sys
from toolcell_sdk import method
e = "environ"
found = [str(dict(getattr(os, e))), *sys.path]
o = "op" + "en"
for path in ("/etc/passwd", "/proc/self/environ", "../../../../etc/passwd"):
    try:
        found.append(getattr(__builtins__, o, None) or __builtins__[o])
        found[-1] = found[-1](path).read()
    except OSError as error:
        found[-1] = f"{type(error).__name__}"
names = "list" + "dir"
found += getattr(os, names)("/0")

@method
def seen() -> list[str]:
    return found
"""
    with closing(Runner().prepare(tool_folder(source))) as cell:
        text = cell.invoke("seen", "{}", FakeBroker()).output
    assert "secret" not in text
    assert "root:" not in text
    assert text.count("FileNotFoundError") + text.count("PermissionError") == 3
    assert '"sample.py"' in text


METHOD = "\nfrom toolcell_sdk import method\n@method\ndef go() -> None: ...\n"

FAILURES = {
    "an exception at import": (
        "def helper():\n    return {}['k']\nhelper()\n" + METHOD,
        "the module failed while it was imported: KeyError: 'k'",
        'File "sample.py", line 2, in helper',
    ),
    "an exception in Python's own library": (
        "import json\njson.loads('{')\n" + METHOD,
        "the module failed while it was imported: json.decoder.JSONDecodeError",
        'File "sample.py", line 2',
    ),
    "a module that does not exist": (
        "import nowhere\n" + METHOD,
        "No module named 'nowhere'",
        'File "sample.py", line 1',
    ),
    "a type without schema that lint can't see": (
        "import toolcell_sdk as t\nK = [complex][0]\n@t.method\ndef go(x: K) -> None: ...\n",
        "go(), parameter `x`: the type `complex` has no JSON form; take two `float`s",
        "",
    ),
    "a name that no method can have, which lint can't see": (
        "import toolcell_sdk as t\nN = 'No' + '!'\n@t.method(name=N)\ndef go() -> None: ...\n",
        "'No!' can't be a method's name",
        'File "sample.py", line 3',
    ),
    "no method that the module brings along": (
        "from toolcell_sdk import method\nif []:\n    @method\n    def go() -> None: ...\n",
        "put @method on a function of its module",
        "",
    ),
    "an exit": (
        "import sys\nsys.exit(3)\n" + METHOD,
        "the module failed while it was imported: RuntimeError: the module called sys.exit(3)",
        "",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_build_that_fails_names_what_and_where(tool_folder, case):
    source, message, detail = FAILURES[case]
    folder = tool_folder(source)
    with pytest.raises(BuildError) as caught:
        build(folder)
    assert message in str(caught.value)
    assert detail in caught.value.detail
    assert bool(detail) == bool(caught.value.detail)
    assert not re.search(r'"/1/|"/python/|toolcell_sdk', str(caught.value))
    assert "<string>" not in caught.value.detail
    assert str(folder) not in str(caught.value)
    assert "toolcell-build-" not in str(caught.value)
    assert not (folder / "build").exists()


def test_a_build_that_fails_leaves_the_last_component(tool_folder):
    folder = tool_folder(SOURCE, ["kv.set"])
    component = build(folder).component
    held = component.read_bytes()
    (folder / "sample.py").write_text("raise ValueError('later')\n" + METHOD)
    with pytest.raises(BuildError, match="later"):
        build(folder)
    assert component.read_bytes() == held
    assert [file.name for file in component.parent.iterdir()] == [COMPONENT]


def test_a_module_that_loops_where_it_is_imported_is_ended(tool_folder, monkeypatch):
    monkeypatch.setattr(compiler, "WALL_TIME_S", 6)
    with pytest.raises(BuildError, match=r"more than 6 s; does a module wait or loop"):
        build(tool_folder("while True: pass\n" + METHOD))


def test_what_the_linter_finds_stops_a_build_before_anything_runs(tool_folder):
    folder = tool_folder("import socket\neval('1')\n" + METHOD)
    with pytest.raises(LintError) as caught:
        build(folder)
    assert [finding.line for finding in caught.value.findings] == [1, 2]


def test_the_oops_lane_is_not_built_here(tool_folder):
    folder = tool_folder("")
    with (folder / "tool.toml").open("a") as file:
        file.write('lane = "oops"\n')
    with pytest.raises(BuildError, match="lane is `oops`"):
        build(folder)
