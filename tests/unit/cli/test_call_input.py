"""`toolcell run`: input from its options, by HTTPie's convention, and what TOOL may be."""

import base64
import json

import click
import pytest
from click.testing import CliRunner

from toolcell.cli import call_input as module
from toolcell.cli.call_input import call_input
from toolcell.cli.run import run_command


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a text, a JSON and a binary file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("5\n")
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "picture").write_bytes(b"\xff\0")
    return tmp_path


@pytest.mark.parametrize(
    ("argument", "fields"),
    [
        ("x=5", {"x": "5"}),
        ("x=true", {"x": "true"}),
        ("x=", {"x": ""}),
        ("x=a=b", {"x": "a=b"}),
        ("x=a:=b", {"x": "a:=b"}),
        ("x:=5", {"x": 5}),
        ('x:="@text"', {"x": "@text"}),
        ('x:={"a": [null]}', {"x": {"a": [None]}}),
        ("x=@text", {"x": "5\n"}),
        ("x:=@text", {"x": 5}),
        ("x:=@list.json", {"x": [1, 2]}),
        ("x=@list.json", {"x": "[1, 2]"}),
    ],
)
def test_an_argument_is_text_unless_it_says_json(folder, argument, fields):
    assert json.loads(call_input("{}", [argument])) == fields


def test_a_file_of_any_bytes_is_base64(folder):
    given = json.loads(call_input('{"a": 1}', ["b=2"], ["c=picture"]))
    assert given == {"a": 1, "b": "2", "c": base64.b64encode(b"\xff\0").decode()}


def test_an_input_without_arguments_is_left_to_the_runtime(folder):
    assert call_input("not JSON") == b"not JSON"
    assert call_input("@text") == b"5\n"


@pytest.mark.parametrize(
    ("text", "arguments", "files", "words"),
    [
        ("{}", ["x=@nowhere"], [], "--arg x=@nowhere: No such file or directory"),
        ("{}", ["x:=@nowhere"], [], "--arg x:=@nowhere: No such file or directory"),
        ("{}", [], ["x=nowhere"], "--bytes x=nowhere: No such file or directory"),
        ("@nowhere", [], [], "--input @nowhere: No such file or directory"),
        ("{}", ["x=@."], [], "--arg x=@.: Is a directory"),
        ("{}", ["x=@a\0b"], [], "not the name of a file"),
        ("{}", ["x=@picture"], [], "not UTF-8 text .*; --bytes x=FILE takes any bytes"),
        ("{}", ["x:=five"], [], "--arg x:=five: not JSON .*; x=TEXT takes text as it is"),
        ("{}", ["x:="], [], "--arg x:=: not JSON"),
        ("{}", ["x:=" + "[" * 100_000], [], "nested too deeply"),
        ("{}", ["x"], [], "write NAME=TEXT, NAME:=JSON, NAME=@FILE or NAME:=@FILE"),
        ("{}", ["=5"], [], "write NAME=TEXT"),
        ("{}", [":=5"], [], "write NAME=TEXT"),
        ("{}", [], ["x"], "--bytes x: write NAME=FILE"),
        ("{}", [], ["x="], "--bytes x=: write NAME=FILE"),
        ("[]", ["x=5"], [], "need an --input that is a JSON object"),
        ("[", [], ["x=text"], "need an --input that is a JSON object"),
    ],
)
def test_a_wrong_one_is_told_under_its_own_option(folder, text, arguments, files, words):
    with pytest.raises(click.UsageError, match=words):
        call_input(text, arguments, files)


def test_a_file_that_is_too_large_is_not_read_to_its_end(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_INPUT_BYTES", 5)
    for arguments, files, option in (
        (["x=@list.json"], [], "--arg x=@list.json"),
        ([], ["x=list.json"], "--bytes x=list.json"),
    ):
        with pytest.raises(click.UsageError, match=f"{option}: has more than 5 bytes"):
            call_input("{}", arguments, files)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("./folder", "that is a folder: build it first (`toolcell build ./folder`)"),
        ("hello@", "TOOL@RANGE"),
        ("hello@ ", "TOOL@RANGE"),
        ("@1.0", "TOOL@RANGE"),
        ("", "TOOL@RANGE"),
    ],
)
def test_what_can_be_no_tool_is_wrong_usage(folder, tool, words):
    (folder / "folder").mkdir()
    done = CliRunner().invoke(run_command, [tool, "go"])
    assert done.exit_code == 2
    assert words in done.output
