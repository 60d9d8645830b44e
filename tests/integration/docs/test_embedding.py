"""docs/embedding.md: the program that it shows runs, and its lists are those of the code."""

import re
import typing
from pathlib import Path

import pytest

from toolcell import errors
from toolcell.result import Result
from toolcell.runtime import CallOptions

TEXT = (Path(__file__).parents[3] / "docs" / "embedding.md").read_text()


@pytest.mark.slow
def test_the_program_runs(shell):
    shell("toolcell new hello && toolcell build hello && toolcell keygen me --trust")
    shell("toolcell sign hello/build/hello-0.1.0.tool && toolcell publish hello/build/*.tool")
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (shell.folder / "program.py").write_text(program)
    assert shell("python program.py").endswith("Hello, Alan!\n")


def test_every_option_and_every_field_of_a_result_is_named():
    for name in typing.get_type_hints(CallOptions):
        assert f"`{name}`" in TEXT
    told_elsewhere = {"tool", "version", "method", "incidents"}
    for name in set(Result.__struct_fields__) - told_elsewhere:
        assert f"`{name}`" in TEXT, name


def test_every_error_code_and_status_is_in_the_table():
    kinds = [getattr(errors, name) for name in errors.__all__]
    codes = {kind.code for kind in kinds if hasattr(kind, "code")} - {"error", "capability_fault"}
    for code in codes:
        assert f"`{code}`" in TEXT, code
    for status in errors.Status:
        assert status == errors.Status.OK or f"| {int(status)} |" in TEXT, status
