"""`@method`: a function with type hints becomes a method of the tool.

Owns the registry and what a method is to the outside: name, description, schemas, a call with JSON
in and JSON out. Must never run the author's function but in `Method.call`. Used by the author's
module, `dispatch.py` and the test kit. Imported inside components: standard library only.
"""

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

from toolcell_sdk.errors import SchemaError
from toolcell_sdk.shapes import Resolver, Shape
from toolcell_sdk.shapes.records import Part, arguments

__all__ = ["Method", "Registry", "check_name", "collecting", "method", "registered"]

# The manifest's pattern for a method's name.
_NAME = re.compile(r"[a-z][a-zA-Z0-9_]{0,63}")
_MAX_DESCRIPTION_CHARACTERS = 4000
_NAMED_KINDS = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}

F = TypeVar("F", bound=Callable[..., Any])


class Method:
    """One method. Hints are read at the first use, so a class may be defined below its user."""

    def __init__(self, function: Callable[..., Any], name: str, description: str) -> None:
        self.function = function
        self.name = name
        self.description = description

    @functools.cached_property
    def _shapes(self) -> tuple[Shape, Shape]:
        function = self.function
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError as error:
            raise SchemaError(
                f"{self.name}(): a type hint names {error.name!r}, which is not defined"
            ) from None
        resolver = Resolver()
        parts = [
            self._part(resolver, parameter, hints)
            for parameter in inspect.signature(function).parameters.values()
        ]
        if "return" not in hints:
            raise SchemaError(
                f"{self.name}(): the return type is missing; write `-> None` if it returns nothing"
            )
        with _naming(f"{self.name}(), return type"):
            output = resolver.resolve(hints["return"])
        with _naming(f"{self.name}()"):
            given = arguments(parts)
        return given, output

    def _part(
        self, resolver: Resolver, parameter: inspect.Parameter, hints: dict[str, Any]
    ) -> Part:
        where = f"{self.name}(), parameter `{parameter.name}`"
        if parameter.kind not in _NAMED_KINDS:
            raise SchemaError(
                f"{where}: arguments come by name, so `*`, `**` and `/` can't be filled"
            )
        if parameter.name not in hints:
            raise SchemaError(f"{where}: the type hint is missing")
        with _naming(where):
            shape = resolver.resolve(hints[parameter.name])
        if parameter.default is inspect.Parameter.empty:
            return Part(parameter.name, shape, required=True)
        return Part(parameter.name, shape, required=False, default=parameter.default)

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the arguments: a closed object."""
        return self._shapes[0].schema

    @property
    def output_schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the result."""
        return self._shapes[1].schema

    def arguments(self, value: Any) -> dict[str, Any]:
        """The keyword arguments in `value`, parsed JSON. Raises :class:`Mismatch`."""
        decoded: dict[str, Any] = self._shapes[0].decode(value)
        return decoded

    def result(self, value: Any) -> Any:
        """What the function returned, as JSON-ready data. Raises :class:`Mismatch`."""
        return self._shapes[1].encode(value)

    def describe(self) -> dict[str, Any]:
        """The method as the manifest holds it."""
        return {
            "description": self.description,
            "input": self.input_schema,
            "output": self.output_schema,
        }


def check_name(name: str) -> None:
    """Raises `SchemaError` for a name that a manifest can't hold."""
    if not _NAME.fullmatch(name):
        raise SchemaError(
            f"{name!r:.80} can't be a method's name: a lower-case letter, then letters, digits and "
            f"`_`, at most 64; give another with @method(name=...)"
        )


class Registry:
    """The methods of one tool, by name, in the order of definition."""

    def __init__(self) -> None:
        self.methods: dict[str, Method] = {}

    def add(self, function: Callable[..., Any], name: str, description: str | None) -> None:
        """Raises `SchemaError` for a name that is taken or that a manifest can't hold."""
        check_name(name)
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise SchemaError(f"{name}(): a method returns its result; write a plain `def`")
        if name in self.methods:
            taken = self.methods[name].function
            raise SchemaError(f"the method `{name}` is defined twice; first in {_place(taken)}")
        if description is None:
            description = inspect.getdoc(function) or ""
        self.methods[name] = Method(function, name, description[:_MAX_DESCRIPTION_CHARACTERS])

    def describe(self) -> dict[str, dict[str, Any]]:
        """All methods as the manifest holds them. Resolves every hint, so it finds every error."""
        return {name: found.describe() for name, found in self.methods.items()}


_registries = [Registry()]


@contextmanager
def collecting() -> Iterator[Registry]:
    """Methods that are defined inside go to a registry of their own: one per tool in a process."""
    registry = Registry()
    _registries.append(registry)
    try:
        yield registry
    finally:
        _registries.remove(registry)


def registered() -> Registry:
    """Where `@method` puts a method now."""
    return _registries[-1]


@overload
def method(function: F, /) -> F: ...
@overload
def method(*, name: str | None = None, description: str | None = None) -> Callable[[F], F]: ...
def method(
    function: F | None = None, /, *, name: str | None = None, description: str | None = None
) -> F | Callable[[F], F]:
    """Makes a function callable from outside. It stays what it was for the module itself.

    Every parameter and the return value carry a type hint; the schema comes from them. `name`
    defaults to the function's, `description` to its docstring.
    """

    def register(target: F) -> F:
        registered().add(target, name or target.__name__, description)
        return target

    return register if function is None else register(function)


@contextmanager
def _naming(where: str) -> Iterator[None]:
    try:
        yield
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from None


def _place(function: Callable[..., Any]) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
