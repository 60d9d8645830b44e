"""From a type hint to a `Shape`: the walk over a type.

Owns which types are supported; a type that is not raises `SchemaError` with what to use instead,
and `toolcell_sdk.method` adds the function and the parameter. Standard library only.
"""

import dataclasses
import enum
import types
import typing
from typing import Any

from toolcell_sdk.errors import SchemaError
from toolcell_sdk.shapes import containers, records, scalars
from toolcell_sdk.shapes.base import Field, Shape
from toolcell_sdk.shapes.constraints import constrained
from toolcell_sdk.shapes.records import Part

__all__ = ["Resolver", "unsupported"]

_QUALIFIERS = {typing.Required, typing.NotRequired, getattr(typing, "ReadOnly", None)}
_SUPPORTED = (
    "str, int, float, bool, None, bytes, list, dict[str, T], tuple, set, Optional, Union, Literal, "
    "Enum, dataclass, TypedDict, Any"
)
_INSTEAD = {
    "datetime": "take an ISO 8601 `str`",
    "date": "take an ISO 8601 `str`",
    "Decimal": "take a `str`",
    "Path": "take a `str`",
    "UUID": "take a `str`",
    "complex": "take two `float`s",
    "Callable": "JSON carries no functions",
}


class Resolver:
    """Resolves hints. Each record's schema is written out where it is used."""

    def __init__(self) -> None:
        self._open: list[type] = []

    def resolve(self, hint: Any) -> Shape:
        """The shape of `hint`, with forward references already evaluated."""
        if hint is Any or hint is object:
            return scalars.ANY
        if isinstance(hint, (type, types.NoneType)) and hint in scalars.SCALARS:
            return scalars.SCALARS[hint]
        origin = typing.get_origin(hint)
        if origin is not None:
            args = typing.get_args(hint)
            # `typing.List` on its own has an origin and no arguments; `tuple[()]` has none either.
            bare = not args and origin is not tuple
            return self.resolve(origin) if bare else self._generic(hint, origin, args)
        if isinstance(hint, typing.NewType):
            return self.resolve(hint.__supertype__)
        if hasattr(hint, "__value__"):  # PEP 695: type Name = ...
            return self.resolve(hint.__value__)
        if isinstance(hint, type):
            return self._class(hint)
        raise _unsupported(hint)

    def _generic(self, hint: Any, origin: Any, args: tuple[Any, ...]) -> Shape:
        if origin is typing.Annotated:
            return self._annotated(args)
        if origin in {typing.Union, types.UnionType}:
            return containers.union([self.resolve(arm) for arm in args])
        if origin is typing.Literal:
            return self._literal(args)
        if origin in _QUALIFIERS:
            return self.resolve(args[0])
        if origin is tuple:
            return self._tuple(args)
        if origin is list:
            return containers.array(self.resolve(args[0]))
        if origin in {set, frozenset}:
            return containers.unique_array(self.resolve(args[0]), origin)
        if origin is dict:
            if args[0] is not str:
                raise SchemaError("the keys of a dict must be `str`: JSON has no others")
            return containers.mapping(self.resolve(args[1]))
        if isinstance(origin, type) and origin.__module__ == "collections.abc":
            raise SchemaError(f"`{origin.__name__}` is an interface: write `list` or `dict`")
        raise _unsupported(hint)

    def _annotated(self, args: tuple[Any, ...]) -> Shape:
        shape = self.resolve(args[0])
        for extra in args[1:]:
            if isinstance(extra, str):
                shape = constrained(shape, Field(description=extra))
            elif isinstance(extra, Field):
                shape = constrained(shape, extra)
        return shape

    def _literal(self, values: tuple[Any, ...]) -> Shape:
        for value in values:
            if not isinstance(value, (str, int, bool, type(None))):
                raise SchemaError(f"the literal {value!r} is not a JSON scalar")
        return scalars.literal(values)

    def _tuple(self, args: tuple[Any, ...]) -> Shape:
        if len(args) == 2 and args[1] is Ellipsis:
            return containers.array(self.resolve(args[0]), tuple)
        return containers.fixed_array([self.resolve(arg) for arg in args if arg != ()])

    def _class(self, kind: type) -> Shape:
        if kind is list:
            return containers.array(scalars.ANY)
        if kind is tuple:
            return containers.array(scalars.ANY, tuple)
        if kind is dict:
            return containers.mapping(scalars.ANY)
        if kind in {set, frozenset}:
            return containers.unique_array(scalars.ANY, kind)
        if issubclass(kind, enum.Enum):
            return scalars.enumeration(kind)
        if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
            return self._record(kind)
        raise _unsupported(kind)

    def _record(self, kind: type) -> Shape:
        if kind in self._open:
            raise SchemaError(
                f"`{kind.__name__}` contains itself: a manifest's schema is a finite tree; take "
                "`Any` at that place, or a list of rows that name their parent"
            )
        self._open.append(kind)
        try:
            if typing.is_typeddict(kind):
                return records.typed_dict(kind.__name__, self._typed_dict_parts(kind))
            return records.data_class(kind, self._dataclass_parts(kind))
        finally:
            self._open.pop()

    def _dataclass_parts(self, kind: type) -> list[Part]:
        hints = typing.get_type_hints(kind, include_extras=True)
        parts = []
        for field in dataclasses.fields(kind):
            if not field.init:
                continue
            shape = self._part(kind, field.name, hints[field.name])
            default: Any = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            if default is dataclasses.MISSING:
                parts.append(Part(field.name, shape, required=True))
            else:
                parts.append(Part(field.name, shape, required=False, default=default))
        return parts

    def _typed_dict_parts(self, kind: Any) -> list[Part]:
        hints = typing.get_type_hints(kind, include_extras=True)
        return [
            Part(name, self._part(kind, name, hint), required=name in kind.__required_keys__)
            for name, hint in hints.items()
        ]

    def _part(self, kind: type, name: str, hint: Any) -> Shape:
        try:
            return self.resolve(hint)
        except SchemaError as error:
            raise SchemaError(f"{kind.__name__}.{name}: {error}") from None


def unsupported(name: str) -> str:
    """What is said of a type that goes by `name` and is none of the supported."""
    instead = _INSTEAD.get(name, f"the supported types are {_SUPPORTED}")
    return f"the type `{name}` has no JSON form; {instead}"


def _unsupported(hint: Any) -> SchemaError:
    return SchemaError(unsupported(getattr(hint, "__name__", None) or str(hint)))
