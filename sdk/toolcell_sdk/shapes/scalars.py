"""Shapes without parts: text, numbers, booleans, null, bytes, literals, enumerations."""

import base64
import binascii
import enum
import math
from typing import Any

from toolcell_sdk.shapes.base import Mismatch, Shape, expected, json_type

__all__ = ["ANY", "SCALARS", "enumeration", "literal"]


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    # JSON Schema: a number with a zero fraction is an integer, so 3.0 passes the host's check.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, (bool, enum.Enum)):
        return int(value)
    raise expected("an integer", value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise expected("a number", value)
    if not math.isfinite(value):
        raise Mismatch(f"{value} is not a JSON number: return None for it")
    return float(value)


def _number_out(value: Any) -> float | int:
    _number(value)
    return value  # type: ignore[no-any-return]  # an int stays an int: 3, not 3.0


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise expected("a string", value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise expected("a boolean", value)


def _null(value: Any) -> None:
    if value is not None:
        raise expected("null", value)


def _bytes_in(value: Any) -> bytes:
    try:
        return base64.b64decode(_string(value), validate=True)
    except (binascii.Error, ValueError):
        raise Mismatch("not base64 (RFC 4648 section 4, padded)") from None


def _bytes_out(value: Any) -> str:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise expected("bytes", value)
    return base64.b64encode(value).decode("ascii")


def _same(value: Any) -> Any:
    return value


ANY = Shape({}, _same, _same, "any JSON value")

SCALARS: dict[Any, Shape] = {
    str: Shape({"type": "string"}, _string, _string, "a string"),
    int: Shape({"type": "integer"}, _integer, _integer, "an integer"),
    float: Shape({"type": "number"}, _number, _number_out, "a number"),
    bool: Shape({"type": "boolean"}, _boolean, _boolean, "a boolean"),
    type(None): Shape({"type": "null"}, _null, _null, "null"),
    None: Shape({"type": "null"}, _null, _null, "null"),
    bytes: Shape(
        {"type": "string", "contentEncoding": "base64"}, _bytes_in, _bytes_out, "base64 text"
    ),
}


def _key(value: Any) -> tuple[type, Any]:
    """What two JSON scalars have in common when they are equal: 1 is 1.0 and is not true."""
    if not isinstance(value, (str, int, float, type(None))):
        return (type(value), None)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return (type(value), value)


def literal(values: tuple[Any, ...]) -> Shape:
    """One of the given JSON scalars. Types are told apart: `Literal[1]` is not true."""
    allowed = {_key(value): value for value in values}

    def check(value: Any) -> Any:
        key = _key(value)
        if key not in allowed:
            raise expected(f"one of {', '.join(repr(v) for v in values)}", value)
        return allowed[key]

    return Shape({"enum": list(values)}, check, check, "one of the literals")


def enumeration(kind: type[enum.Enum]) -> Shape:
    """A member of `kind`, carried as its value."""
    by_value = {_key(member.value): member for member in kind}
    values = [member.value for member in kind]

    def decode(value: Any) -> enum.Enum:
        key = _key(value)
        if key not in by_value:
            raise expected(f"one of {', '.join(repr(v) for v in values)}", value)
        return by_value[key]

    def encode(value: Any) -> Any:
        if not isinstance(value, kind):
            raise Mismatch(f"expected a {kind.__name__}, got {json_type(value)}")
        return value.value

    return Shape({"enum": values}, decode, encode, f"a {kind.__name__}")
