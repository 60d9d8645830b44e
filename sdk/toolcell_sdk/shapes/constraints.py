"""What `Annotated[T, Field(...)]` adds to a shape: schema keywords, and the checks behind them."""

import functools
import operator
import re
from collections.abc import Callable
from typing import Any

from toolcell_sdk.errors import SchemaError
from toolcell_sdk.shapes.base import Field, Mismatch, Shape

__all__ = ["constrained"]

_Check = Callable[[Any], str]
"""A problem, or the empty string."""
_Compare = Callable[[float, float], bool]

_LENGTH_KEYWORDS = {
    "string": ("minLength", "maxLength", "characters"),
    "array": ("minItems", "maxItems", "items"),
    "object": ("minProperties", "maxProperties", "properties"),
}


def constrained(shape: Shape, field: Field) -> Shape:
    """`shape` with the constraints of `field`. They apply to the JSON side of a value."""
    schema = dict(shape.schema)
    checks: list[_Check] = []
    if field.description:
        schema["description"] = field.description
    if field.examples:
        schema["examples"] = list(field.examples)
    _bounds(field, schema, checks)
    _lengths(field, schema, checks)
    if field.pattern is not None:
        _pattern(field.pattern, schema, checks)
    if not checks:
        return Shape(schema, shape.decode, shape.encode, shape.described)

    def check(value: Any) -> Any:
        for problem_of in checks:
            if problem := problem_of(value):
                raise Mismatch(problem)
        return value

    return Shape(
        schema,
        # Type first: a check assumes it.
        lambda value: _checked_in(shape, check, value),
        lambda value: check(shape.encode(value)),
        shape.described,
    )


def _checked_in(shape: Shape, check: Callable[[Any], Any], value: Any) -> Any:
    decoded = shape.decode(value)
    check(value)
    return decoded


def _bounds(field: Field, schema: dict[str, Any], checks: list[_Check]) -> None:
    bounds: list[tuple[str, float | None, str, _Compare]] = [
        ("minimum", field.ge, "at least", operator.ge),
        ("exclusiveMinimum", field.gt, "more than", operator.gt),
        ("maximum", field.le, "at most", operator.le),
        ("exclusiveMaximum", field.lt, "less than", operator.lt),
        ("multipleOf", field.multiple_of, "a multiple of", lambda value, limit: value % limit == 0),
    ]
    for keyword, limit, words, holds in bounds:
        if limit is None:
            continue
        if schema.get("type") not in {"integer", "number"}:
            raise SchemaError(f"{keyword} ({limit:g}) fits a number only")
        schema[keyword] = limit
        checks.append(functools.partial(_bound, limit, words, holds))


def _bound(limit: float, words: str, holds: _Compare, value: float) -> str:
    return "" if holds(value, limit) else f"{value} is not {words} {limit:g}"


def _lengths(field: Field, schema: dict[str, Any], checks: list[_Check]) -> None:
    low, high = field.min_length, field.max_length
    if low is None and high is None:
        return
    keywords = _LENGTH_KEYWORDS.get(schema.get("type", ""))
    if keywords is None:
        raise SchemaError("min_length and max_length fit a string, an array or an object only")
    minimum, maximum, unit = keywords
    if low is not None:
        schema[minimum] = low
    if high is not None:
        schema[maximum] = high

    def check(value: Any) -> str:
        if low is not None and len(value) < low:
            return f"has {len(value)} {unit}; the least is {low}"
        if high is not None and len(value) > high:
            return f"has {len(value)} {unit}; the limit is {high}"
        return ""

    checks.append(check)


def _pattern(pattern: str, schema: dict[str, Any], checks: list[_Check]) -> None:
    if schema.get("type") != "string":
        raise SchemaError(f"the pattern {pattern!r} fits a string only")
    compiled = re.compile(pattern)
    schema["pattern"] = pattern
    checks.append(
        lambda value: "" if compiled.search(value) else f"{value!r:.80} does not match {pattern!r}"
    )
