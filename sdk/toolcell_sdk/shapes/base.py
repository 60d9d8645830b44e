"""What a type is to the outside: `Shape`; and how a value can fail to have it: `Mismatch`.

Owns no type in particular (`scalars.py`, `containers.py`, `records.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Converter", "Field", "Mismatch", "Shape", "json_type"]

Converter = Callable[[Any], Any]

_SHOWN_CHARACTERS = 60


class Mismatch(Exception):
    """A value that does not have its shape. Containers add to `path` on the way out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str | int] = []

    def within(self, step: str | int) -> "Mismatch":
        """The same mismatch, one container further out."""
        self.path.insert(0, step)
        return self

    def where(self, root: str) -> str:
        """`root.rows[3].name: expected a string, got 5`."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return f"{root}{''.join(steps)}: {self.problem}"


def expected(what: str, got: Any) -> Mismatch:
    """`expected WHAT, got the integer 5`; a long value is cut."""
    text = repr(got) if isinstance(got, (str, int, float)) else ""
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "…"
    return Mismatch(f"expected {what}, got {json_type(got)}{' ' if text else ''}{text}")


def json_type(value: Any) -> str:
    """What a value is in JSON's terms, or its Python type."""
    names = {
        bool: "the boolean",
        int: "the integer",
        float: "the number",
        str: "the string",
        list: "an array",
        dict: "an object",
        type(None): "null",
    }
    return names.get(type(value), type(value).__name__)


@dataclass(frozen=True, slots=True)
class Shape:
    """A type: its JSON Schema (2020-12), `decode` from JSON and `encode` to it.

    Both raise :class:`Mismatch`. `described` names the shape in messages.
    """

    schema: dict[str, Any]
    decode: Converter
    encode: Converter
    described: str = "a value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Constraints and a description, for `Annotated[str, Field(max_length=80)]`.

    Bounds are inclusive but for `gt` and `lt`. Lengths count characters of a string, items of an
    array or properties of an object. `pattern` is searched, as JSON Schema does: anchor it.
    """

    description: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    examples: tuple[Any, ...] = field(default=())
