"""Shapes with parts of one kind: arrays, tuples, sets, string-keyed objects, and unions."""

from collections.abc import Callable
from typing import Any

from toolcell_sdk.shapes.base import Converter, Mismatch, Shape, expected

__all__ = ["array", "fixed_array", "mapping", "union", "unique_array"]


def _each(convert: Converter, items: Any) -> list[Any]:
    result = []
    for index, item in enumerate(items):
        try:
            result.append(convert(item))
        except Mismatch as mismatch:
            raise mismatch.within(index) from None
    return result


def array(item: Shape, make: Callable[[Any], Any] = list) -> Shape:
    """`list[T]` and, with `make=tuple`, `tuple[T, ...]`."""

    def decode(value: Any) -> Any:
        if not isinstance(value, list):
            raise expected("an array", value)
        return make(_each(item.decode, value))

    def encode(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise expected("a list or a tuple", value)
        return _each(item.encode, value)

    return Shape({"type": "array", "items": item.schema}, decode, encode, "an array")


def unique_array(item: Shape, make: Callable[[Any], Any]) -> Shape:
    """`set[T]` and `frozenset[T]`; written in sorted order where the items have one."""

    def decode(value: Any) -> Any:
        if not isinstance(value, list):
            raise expected("an array", value)
        result = make(_each(item.decode, value))
        if len(result) != len(value):
            raise Mismatch("expected an array without duplicates")
        return result

    def encode(value: Any) -> Any:
        if not isinstance(value, (set, frozenset)):
            raise expected("a set", value)
        items = _each(item.encode, value)
        try:
            return sorted(items)
        except TypeError:
            return items

    schema = {"type": "array", "items": item.schema, "uniqueItems": True}
    return Shape(schema, decode, encode, "an array without duplicates")


def fixed_array(items: list[Shape]) -> Shape:
    """`tuple[A, B]`: as many items as it has types."""
    count = len(items)

    def parts(value: Any, ways: list[Converter]) -> list[Any]:
        result = []
        for index, (way, item) in enumerate(zip(ways, value, strict=True)):
            try:
                result.append(way(item))
            except Mismatch as mismatch:
                raise mismatch.within(index) from None
        return result

    def decode(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != count:
            raise expected(f"an array of {count} items", value)
        return tuple(parts(value, [item.decode for item in items]))

    def encode(value: Any) -> Any:
        if not isinstance(value, tuple) or len(value) != count:
            raise expected(f"a tuple of {count} items", value)
        return parts(value, [item.encode for item in items])

    schema = {
        "type": "array",
        "prefixItems": [item.schema for item in items],
        "items": False,
        "minItems": count,
        "maxItems": count,
    }
    return Shape(schema, decode, encode, f"an array of {count} items")


def mapping(value_shape: Shape) -> Shape:
    """`dict[str, T]`."""

    def each(convert: Converter, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise expected("an object", value)
        result = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise Mismatch(f"the key {key!r} is not a string")
            try:
                result[key] = convert(item)
            except Mismatch as mismatch:
                raise mismatch.within(key) from None
        return result

    return Shape(
        {"type": "object", "additionalProperties": value_shape.schema},
        lambda value: each(value_shape.decode, value),
        lambda value: each(value_shape.encode, value),
        "an object",
    )


def union(arms: list[Shape]) -> Shape:
    """The first arm that takes the value, in the order of the hint."""
    described = " or ".join(arm.described for arm in arms)

    def first(ways: list[Converter], value: Any) -> Any:
        deepest: Mismatch | None = None
        for way in ways:
            try:
                return way(value)
            except Mismatch as mismatch:
                # The arm that got furthest is the one that was meant.
                if deepest is None or len(mismatch.path) > len(deepest.path):
                    deepest = mismatch
        if deepest is not None and deepest.path:
            raise deepest
        raise expected(described, value)

    decoders = [arm.decode for arm in arms]
    encoders = [arm.encode for arm in arms]
    return Shape(
        {"anyOf": [arm.schema for arm in arms]},
        lambda value: first(decoders, value),
        lambda value: first(encoders, value),
        described,
    )
