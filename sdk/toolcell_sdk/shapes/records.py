"""Shapes with named parts: dataclasses, TypedDicts, and the arguments of a method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolcell_sdk.errors import SchemaError
from toolcell_sdk.shapes.base import Mismatch, Shape, expected

__all__ = ["MISSING", "Part", "arguments", "data_class", "object_schema", "typed_dict"]

MISSING: Any = object()
"""No default, or a default that the schema does not show."""


@dataclass(frozen=True, slots=True)
class Part:
    """One property. `default` is a Python value, shown in the schema as JSON."""

    name: str
    shape: Shape
    required: bool
    default: Any = MISSING


def object_schema(parts: Sequence[Part]) -> dict[str, Any]:
    """A closed object: an unknown property is an error, never silence."""
    properties = {}
    for part in parts:
        schema = part.shape.schema
        if part.default is not MISSING:
            schema = {**schema, "default": _default(part)}
        properties[part.name] = schema
    result: dict[str, Any] = {"type": "object", "properties": properties}
    required = [part.name for part in parts if part.required]
    if required:
        result["required"] = required
    result["additionalProperties"] = False
    return result


def _default(part: Part) -> Any:
    try:
        return part.shape.encode(part.default)
    except Mismatch as mismatch:
        raise SchemaError(
            f"the default of `{part.name}` does not fit its type: {mismatch.problem}"
        ) from None


def _decoded(parts: Sequence[Part], value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise expected("an object", value)
    by_name = {part.name: part for part in parts}
    result = {}
    for name, item in value.items():
        part = by_name.get(name)
        if part is None:
            raise Mismatch(f"unknown property `{name}` (known: {', '.join(by_name) or 'none'})")
        try:
            result[name] = part.shape.decode(item)
        except Mismatch as mismatch:
            raise mismatch.within(name) from None
    for part in parts:
        if part.required and part.name not in result:
            raise Mismatch(f"`{part.name}` is missing")
    return result


def _encoded(part: Part, item: Any) -> Any:
    try:
        return part.shape.encode(item)
    except Mismatch as mismatch:
        raise mismatch.within(part.name) from None


def arguments(parts: Sequence[Part]) -> Shape:
    """The keyword arguments of a method: decoded only."""
    return Shape(
        object_schema(parts),
        lambda value: _decoded(parts, value),
        lambda value: {part.name: _encoded(part, value[part.name]) for part in parts},
        "the arguments",
    )


def data_class(kind: type, parts: Sequence[Part]) -> Shape:
    """A dataclass: an instance inside, an object outside."""

    def decode(value: Any) -> Any:
        fields = _decoded(parts, value)
        try:
            return kind(**fields)
        except ValueError as error:  # the author's own __post_init__
            raise Mismatch(str(error)) from None

    def encode(value: Any) -> Any:
        if not isinstance(value, kind):
            raise expected(f"a {kind.__name__}", value)
        return {part.name: _encoded(part, getattr(value, part.name)) for part in parts}

    return Shape(object_schema(parts), decode, encode, f"a {kind.__name__}")


def typed_dict(name: str, parts: Sequence[Part]) -> Shape:
    """A TypedDict: a dict on both sides."""
    by_name = {part.name: part for part in parts}

    def encode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise expected("a dict", value)
        for key in value:
            if key not in by_name:
                raise Mismatch(f"unknown key {key!r} (known: {', '.join(by_name)})")
        for part in parts:
            if part.required and part.name not in value:
                raise Mismatch(f"the key `{part.name}` is missing")
        return {key: _encoded(by_name[key], item) for key, item in value.items()}

    return Shape(object_schema(parts), lambda value: _decoded(parts, value), encode, f"a {name}")
