"""The linter on methods: what would stop the build is found in the same words, by file and line."""

import pytest

from toolcell_sdk.errors import SchemaError
from toolcell_sdk.lint import lint
from toolcell_sdk.testing import ToolTest

IMPORTS = """
import collections, dataclasses, datetime, decimal, enum, pathlib, typing, uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, List, Literal, NamedTuple, Optional, TypedDict
from toolcell_sdk import Field, method
"""

REFUSED = [
    ("@method\ndef go(x) -> None: ...", "go(), parameter `x`: the type hint is missing"),
    ("@method\ndef go(x: int): ...", "go(): the return type is missing"),
    ("@method\ndef go(*x: int) -> None: ...", "go(), parameter `x`: arguments come by name"),
    ("@method\ndef go(**x: int) -> None: ...", "go(), parameter `x`: arguments come by name"),
    ("@method\ndef go(x: int, /) -> None: ...", "go(), parameter `x`: arguments come by name"),
    ("@method\ndef go(x: complex) -> None: ...", "go(), parameter `x`: the type `complex`"),
    ("@method\ndef go() -> datetime.date: ...", "go(), return type: the type `date`"),
    ("@method\ndef go(x: list[complex | None]) -> None: ...", "the type `complex`"),
    ("@method\ndef go(x: Optional[decimal.Decimal]) -> None: ...", "the type `Decimal`"),
    ("@method\ndef go(x: 'dict[str, uuid.UUID]') -> None: ...", "the type `UUID`"),
    ("@method\ndef go(x: Annotated[pathlib.Path, 'a']) -> None: ...", "the type `Path`"),
    ("@method\ndef go(x: collections.deque[int]) -> None: ...", "the type `deque`"),
    ("@method\ndef go(x: dict[int, str]) -> None: ...", "the keys of a dict must be `str`"),
    ("class A: ...\n@method\ndef go(x: A) -> None: ...", "the type `A` has no JSON form"),
    ("class A(NamedTuple):\n    x: int\n@method\ndef go(x: A) -> None: ...", "the type `A`"),
    (
        "@dataclass\nclass A:\n    when: datetime.date\n@method\ndef go() -> list[A]: ...",
        "go(), return type: A.when: the type `date` has no JSON form",
    ),
    (
        "class A(TypedDict):\n    n: complex\n@method\ndef go(a: A) -> None: ...",
        "go(), parameter `a`: A.n: the type `complex` has no JSON form",
    ),
    ("@method(name='Go')\ndef go() -> None: ...", "'Go' can't be a method's name"),
    ("@method\nasync def go() -> None: ...", "a method returns its result"),
    ("@method\ndef go() -> int:\n    yield 1", "a method returns its result"),
    (
        "@method\ndef go() -> None: ...\n@method(name='go')\ndef other() -> None: ...",
        "the method `go` is defined twice; first in",
    ),
]


@pytest.mark.parametrize(("source", "words"), REFUSED)
def test_what_would_stop_the_build_is_found_before(tool_folder, source, words):
    folder = tool_folder(IMPORTS + source)
    (one,) = lint(folder)
    assert (one.path, one.rule, one.severity) == ("sample.py", "method", "error")
    assert words in str(one)
    assert one.remedy
    assert one.line > IMPORTS.count("\n")
    with ToolTest(folder) as tool, pytest.raises(SchemaError) as caught:
        tool.call("go")
    assert words.partition(";")[0] in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "@method\ndef go(a: str, b: bytes = b'', *, c: float | None = None) -> None: ...",
        "@method\ndef go(a: List[int], b: Literal['complex'], c: List) -> dict[str, Any]: ...",
        "@method\ndef go(a: Annotated[int, Field(ge=1)], b: tuple[int, ...]) -> set[str]: ...",
        "@method\ndef go(a: tuple[()], b: tuple, c: object) -> frozenset[int]: ...",
        "class A(enum.Enum):\n    X = 1\n@method\ndef go(a: A) -> None: ...",
        "@dataclass\nclass A:\n    x: ClassVar[complex] = 1j\n@method\ndef go(a: 'A') -> A: ...",
        "@dataclass\nclass A:\n    x: complex = field(init=False)\n@method\ndef go() -> A: ...",
        "complex = str\n@method\ndef go(a: complex) -> None: ...",
        "Id = typing.NewType('Id', str)\n@method\ndef go(a: Id) -> None: ...",
        "def helper(*a, **b): yield 1\n@method\ndef go() -> None: ...",
        "@method\ndef go() -> int:\n    return sum(x for x in [1])",
        "def go(a: int) -> None: ...\nmethod(go)",
    ],
)
def test_what_can_be_built_is_left_alone(tool_folder, source):
    folder = tool_folder(IMPORTS + source)
    assert lint(folder) == []
    with ToolTest(folder) as tool:
        tool.fails("no-such-method")


def test_a_tool_without_a_method_is_found(tool_folder):
    (one,) = lint(tool_folder("from toolcell_sdk import method\ndef go() -> None: ...\n"))
    assert str(one) == (
        "tool.toml:1: the tool has no method; put @method on a function of its module [method]"
    )


def test_a_method_may_lie_in_any_module_of_the_tool_or_in_what_it_vendors(tool_folder):
    folder = tool_folder("import other")
    (folder / "other.py").write_text(
        "import toolcell_sdk as t\n@t.method()\ndef go() -> None: ...\n"
    )
    assert lint(folder) == []
    vendoring = tool_folder("import vendored", name="second", python_path=["vendor"])
    (vendoring / "vendor").mkdir()
    assert lint(vendoring) == []


def test_one_mistake_in_a_shared_class_is_told_once_a_method(tool_folder):
    source = "@dataclass\nclass A:\n    n: complex\n@method\ndef go(a: A, b: list[A]) -> A: ...\n"
    assert len(lint(tool_folder(IMPORTS + source))) == 1


def test_a_class_that_contains_itself_and_a_hint_that_is_no_expression_end(tool_folder):
    source = "@dataclass\nclass A:\n    a: 'A'\n@method\ndef go(a: A, b: '1 +') -> None: ...\n"
    (one,) = lint(tool_folder(IMPORTS + source))
    assert "the hint '1 +' is no type" in one.message
