"""The linter: what a cell refuses is found by file and line, under whatever name it goes."""

import pytest

from toolcell_sdk.lint import MAX_MODULE_BYTES, LintError, lint
from toolcell_sdk.sources import author_files

ALL = ["kv.get", "kv.set"]


METHOD = "\nfrom toolcell_sdk import method\n@method\ndef go() -> None: ...\n"


@pytest.fixture
def tool_folder(tool_folder):
    """A project with a method after its source: without one nothing can be built."""

    def make(source="", **fields):
        return tool_folder(source + METHOD, **fields)

    return make


@pytest.fixture
def found(tool_folder):
    """`found(source)`: (line, rule) of each finding, in order."""

    def run(source: str, **fields):
        return [(one.line, one.rule) for one in lint(tool_folder(source, **fields))]

    return run


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("import os; os.system('x')", "process"),
        ("import os as o; o.system('x')", "process"),
        ("from os import system", "process"),
        ("from os import system as s", "process"),
        ("import os; run = os.popen; run('x')", "process"),
        ("import os; a, b = os, 1; a.fork()", "process"),
        ("import os; (o := os).execv('a', [])", "process"),
        ("import os; getattr(os, 'system')('x')", "process"),
        ("import os; vars(os)['system']('x')", "process"),
        ("import os; os.__dict__['system']('x')", "process"),
        ("import os, sys; sys.modules['os'].system('x')", "process"),
        ("import subprocess", "process"),
        ("import subprocess as sp", "process"),
        ("from subprocess import run", "process"),
        ("import multiprocessing.pool", "process"),
        ("import socket", "network"),
        ("import urllib.request", "network"),
        ("from urllib import request", "network"),
        ("from http import client", "network"),
        ("import requests", "network"),
        ("import ctypes", "native"),
        ("import numpy.linalg", "native"),
        ("import bz2", "compression"),
        ("eval('1')", "dynamic-code"),
        ("x = [exec]", "dynamic-code"),
        ("compile('1', '', 'eval')", "dynamic-code"),
        ("import builtins; builtins.eval('1')", "dynamic-code"),
        ("__builtins__.eval('1')", "dynamic-code"),
        ("__import__('os')", "dynamic-code"),
        ("import importlib; importlib.import_module('json')", "dynamic-code"),
        ("open('x')", "files"),
        ("import io; io.open('x')", "files"),
        ("import os; os.listdir('/')", "files"),
        ("from pathlib import Path; Path('x').read_text()", "files"),
        ("import pathlib; (pathlib.Path('x') / 'y').write_text('z')", "files"),
        ("from pathlib import Path\ndef f(p: Path): p.unlink()", "files"),
        ("from pathlib import Path; p = Path('x').parent; p.mkdir()", "files"),
        ("from pathlib import Path; Path.home()", "files"),
        ("import tempfile", "files"),
        ("import os; os.environ['X']", "environment"),
        ("import os; os.environ.get('X')", "environment"),
        ("from os import environ", "environment"),
        ("import os; os.getenv('X')", "environment"),
        ("input()", "stdin"),
        ("import sys; sys.stdin.read()", "stdin"),
        ("import threading; threading.Thread(target=print)", "threads"),
        ("import asyncio; asyncio.run(None)", "threads"),
        ("from concurrent.futures import ThreadPoolExecutor", "threads"),
        ("import os; os._exit(1)", "exit"),
        ("def f():\n  import json", "lazy-import"),
        ("f = lambda: __import__('json')", "dynamic-code"),
        ("import random; r = random.Random()", "baked-state"),
        ("import time; T = time.time()", "baked-state"),
        ("from datetime import datetime; T = datetime.now()", "baked-state"),
        ("import time; time.sleep(1)", "baked-state"),
        ("def f(:", "syntax"),
        ("x = 1\0", "syntax"),
    ],
)
def test_what_a_cell_refuses_is_found(found, source, rule):
    assert rule in {name for _line, name in found(source)}


@pytest.mark.parametrize(
    "source",
    [
        "import os; os.path.join('a', 'b'); os.sep",
        "import re; re.compile('x')",
        "import json, math, datetime, urllib.parse, html.parser",
        "from pathlib import Path; Path('a').with_suffix('.b').name",
        "from pathlib import PurePosixPath; PurePosixPath('a') / 'b'",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import socket",
        "import typing as t\nif t.TYPE_CHECKING:\n    import subprocess",
        "def open(x): return x\nopen('x')",
        "def f(input: str): return input",
        "class C:\n    def eval(self): return self.eval()",
        "import time\ndef f(): return time.time()",
        "import random\ndef f(): return random.random()",
        "def walk(box): box.read_text(); box.open()",
        "import threading; lock = threading.Lock()",
        "import http; http.HTTPStatus.OK",
        "print('x')",
    ],
)
def test_what_a_cell_can_do_is_left_alone(found, source):
    assert found(source) == []


def test_a_finding_says_where_what_and_what_instead(tool_folder):
    (one,) = lint(tool_folder("\nimport os\n\ndef f():\n    os.system('x')\n"))
    assert str(one) == (
        "sample.py:5: `os.system` starts or ends a process; do the work in the tool: a cell is "
        "one process [process]"
    )
    assert (one.column, one.severity) == (5, "error")


def test_each_place_is_reported_once_and_in_order(found):
    source = "import os\nos.system('a'); os.system('b')\neval('c')\n"
    assert found(source) == [(2, "process"), (2, "process"), (3, "dynamic-code")]


@pytest.mark.parametrize(
    "source",
    [
        "from toolcell_sdk import kv\nkv.set('a', 'b')",
        "from toolcell_sdk import kv as store\nstore.set('a', 'b')",
        "from toolcell_sdk.capabilities import kv\nkv.set('a', 'b')",
        "from toolcell_sdk.capabilities.kv import set as put",
        "import toolcell_sdk\ntoolcell_sdk.kv.set('a', 'b')",
    ],
)
def test_a_capability_that_is_not_declared_is_an_error(tool_folder, source):
    (one,) = lint(tool_folder(source))
    assert one.severity == "error"
    assert 'add "kv.set" to `capabilities` in tool.toml' in str(one)


def test_a_capability_that_is_not_used_is_a_warning(tool_folder):
    source = "from toolcell_sdk import kv\nkv.get('a')"
    (one,) = lint(tool_folder(source, capabilities=ALL))
    assert (one.path, one.severity) == ("tool.toml", "warning")
    assert "`kv.set` is declared and not used" in one.message


def test_every_module_of_the_tool_is_read_and_no_test(tool_folder):
    folder = tool_folder("import helper, package")
    (folder / "helper.py").write_text("eval('1')")
    (folder / "package" / "deep").mkdir(parents=True)
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "deep" / "module.py").write_text("import socket")
    (folder / "test_sample.py").write_text("import socket")
    (folder / "conftest.py").write_text("import socket")
    (folder / "notes").mkdir()
    (folder / "notes" / "loose.py").write_text("import socket")
    assert {one.path for one in lint(folder)} == {"helper.py", "package/deep/module.py"}


def test_vendored_code_is_not_judged(tool_folder):
    folder = tool_folder("import vendored_package", python_path=["vendor"])
    (folder / "vendor" / "vendored_package").mkdir(parents=True)
    (folder / "vendor" / "__init__.py").write_text("eval('1')")
    assert lint(folder) == []


def test_a_module_that_can_not_be_read_is_a_finding_and_no_crash(tool_folder):
    folder = tool_folder("x = " + "(" * 5000 + ")" * 5000)
    assert [one.rule for one in lint(folder)] == ["syntax"]
    (folder / "sample.py").write_text("#" * (MAX_MODULE_BYTES + 1))
    assert [one.rule for one in lint(folder)] == ["size"]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("json", "a module of Python's own"),
        ("compression", "a module of Python's own"),
        ("class", "a keyword of Python"),
        ("wit_world", "every build brings along"),
    ],
)
def test_a_module_that_something_else_is_imported_in_the_place_of(tool_folder, module, words):
    folder = tool_folder(module=module)
    (folder / f"{module}.py").write_text(METHOD)
    (one,) = lint(folder)
    assert (one.path, one.rule) == (f"{module}.py", "module-name")
    assert words in one.message
    assert f"rename it, to `tool_{module}` for example, and write that as `module`" in one.remedy


def test_a_helper_is_judged_by_its_name_and_what_lies_in_a_package_is_not(tool_folder):
    folder = tool_folder("import package.json, email")
    for package in ("package", "email"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("")
        (folder / package / "json.py").write_text("")
    assert [(one.path, one.rule) for one in lint(folder)] == [("email/__init__.py", "module-name")]


def test_the_error_of_a_build_lists_every_finding(tool_folder):
    error = LintError(lint(tool_folder("eval('1')\nimport socket\n")))
    assert [finding.line for finding in error.findings] == [1, 2]
    assert str(error).count("\n") == 1


def test_the_files_of_a_tool_are_sorted(tool_folder):
    from toolcell_sdk.project import load_project

    folder = tool_folder()
    for name in ("b.py", "a.py"):
        (folder / name).write_text("")
    names = [path.name for path in author_files(load_project(folder))]
    assert names == ["a.py", "b.py", "sample.py"]
