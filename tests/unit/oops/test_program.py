"""Entry points: what a plain program's command line becomes, and what is refused."""

import hashlib
import json

import pytest

from toolcell.artifact.manifest import Manifest, Method
from toolcell.errors import ArtifactRejected, InvalidInput, ToolFault
from toolcell_oops.program import (
    MAX_ARGUMENT_BYTES,
    MAX_PROGRAM_BYTES,
    PlainMethod,
    PlainProgram,
    decode_program,
)

JQ = {
    "schema": "toolcell.program/1",
    "kind": "plain",
    "program": "bin/jq",
    "methods": {
        "filter": {"arguments": ["-c", "{filter}"], "stdin": "document", "stdout": "json-lines"}
    },
}


def manifest(*files, methods=("filter",)) -> Manifest:
    digest = hashlib.sha256(b"").hexdigest()
    return Manifest(
        id="00000000-0000-0000-0000-000000000000",
        name="t",
        version="1.0.0",
        lane="oops",
        entry_point="program.json",
        methods={name: Method(input={}, output={}) for name in methods},
        files=dict.fromkeys(("program.json", *files), digest),
    )


def decode(document, *files, **options):
    return decode_program(json.dumps(document).encode(), manifest(*files, **options))


def plain(**method) -> PlainProgram:
    return PlainProgram(program="bin/x", methods={"go": PlainMethod(**method)})


def test_a_filter_and_a_document_become_argv_and_stdin():
    program = decode(JQ, "bin/jq")
    value = {"filter": ".a | length", "document": {"a": [1]}}
    assert program.command("filter", value) == (["-c", ".a | length"], b'{"a":[1]}')


@pytest.mark.parametrize(
    ("template", "value", "expected"),
    [
        ("--indent={n}", {"n": 2}, ["--indent=2"]),
        ("{n}", {"n": 1.5}, ["1.5"]),
        ("{yes}", {"yes": True}, ["true"]),
        ("{gone}", {}, []),
        ("{gone}", {"gone": None}, []),
        ("--x={gone}", {}, ["--x="]),
        ("{a}-{b}", {"a": "-p", "b": "q"}, ["-p-q"]),
        ("{a}", {"a": "{b}", "b": "no"}, ["{b}"]),
        ("{a}", {"a": "$(reboot); `x` | y"}, ["$(reboot); `x` | y"]),
    ],
)
def test_places_are_filled_once_and_no_shell_ever_looks(template, value, expected):
    assert plain(arguments=(template,)).command("go", value)[0] == expected


def test_a_value_can_t_become_an_option():
    with pytest.raises(InvalidInput, match="option"):
        plain(arguments=("{a}",)).command("go", {"a": "--rawfile"})


def test_a_value_can_t_hold_what_argv_can_t():
    with pytest.raises(InvalidInput, match="NUL"):
        plain(arguments=("{a}",)).command("go", {"a": "x\0y"})
    with pytest.raises(InvalidInput) as caught:
        plain(arguments=("{a}",)).command("go", {"a": "x" * (MAX_ARGUMENT_BYTES + 1)})
    assert caught.value.status == 413


def test_stdin_is_nothing_the_input_a_field_or_a_text():
    value = {"a": "ü", "b": [1]}
    assert plain().command("go", value)[1] == b""
    assert plain(stdin="*").command("go", value)[1] == '{"a":"ü","b":[1]}'.encode()
    assert plain(stdin="b").command("go", value)[1] == b"[1]"
    assert plain(stdin="a", stdin_form="text").command("go", value)[1] == "ü".encode()
    with pytest.raises(InvalidInput):
        plain(stdin="b", stdin_form="text").command("go", value)


@pytest.mark.parametrize(
    ("form", "stdout", "expected"),
    [
        ("json", b' {"a": 1}\n', b'{"a": 1}'),
        ("json-lines", b'1\n{"a":2}\n', b'[1,{"a":2}]'),
        ("json-lines", b"", b"[]"),
        ("text", "é\n".encode(), '"é\\n"'.encode()),
        ("text", b"", b'""'),
    ],
)
def test_stdout_becomes_the_result(form, stdout, expected):
    assert plain(stdout=form).result("go", stdout) == expected


@pytest.mark.parametrize(
    ("form", "stdout"),
    [("json", b""), ("json", b"1 2"), ("json", b"{"), ("json-lines", b"1\nx"), ("text", b"\xff")],
)
def test_other_output_is_a_fault(form, stdout):
    with pytest.raises(ToolFault):
        plain(stdout=form).result("go", stdout)


@pytest.mark.parametrize(
    "document",
    [
        {**JQ, "more": 1},
        {**JQ, "kind": "other"},
        {**JQ, "program": "bin/other"},
        {**JQ, "program": "../bin/sh"},
        {**JQ, "methods": {"other": {}}},
        {**JQ, "methods": {}},
        {**JQ, "environment": {"lower": "x"}},
        {**JQ, "environment": {"A": "x\0"}},
        {"kind": "worker"},
        {"kind": "worker", "module": "m", "program": "bin/jq"},
        {"kind": "worker", "module": "os.path"},
        {"kind": "worker", "module": "not_there"},
        [],
    ],
)
def test_an_entry_point_that_does_not_fit_is_rejected(document):
    with pytest.raises(ArtifactRejected) as caught:
        decode(document, "bin/jq")
    assert caught.value.details["reason"] == "entry_point"


def test_an_endless_entry_point_is_rejected_unread():
    with pytest.raises(ArtifactRejected) as caught:
        decode_program(b" " * (MAX_PROGRAM_BYTES + 1), manifest())
    assert caught.value.status == 413


def test_a_module_may_be_a_file_or_a_package():
    for place in ("app/m.py", "app/m/__init__.py"):
        assert decode({"kind": "worker", "module": "m"}, place, methods=("go",)).module == "m"
