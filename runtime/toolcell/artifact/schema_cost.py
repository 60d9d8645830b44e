"""What it costs, at worst, to check one byte of a value against a schema.

Owns the figures and the sum. Publisher and caller may work together: a schema that is slow on a
value that is made for it would hold up the host (a check can't be interrupted and holds the
interpreter's lock). So each method's inputs and outputs are bounded in bytes by what its schema
costs. Used by `toolcell.artifact.schema`, once per artifact.

The figures are nanoseconds per byte on the slowest value found for a keyword (jsonschema-rs 0.60,
a shared 2-core x86-64 VM), rounded up. Typical values cost a tenth of it or less.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from toolcell.artifact.schema_policy import SEVERAL, named_target

__all__ = ["MAX_CHECK_MS", "MAX_COST_NS_PER_BYTE", "TooIntricate", "byte_limit", "worst_cost"]

MAX_CHECK_MS = 2000
"""The longest that one check of an input or output may take, by these figures."""
MAX_COST_NS_PER_BYTE = 50_000
"""A schema that costs more could check less than 40 KB: refused."""

_NODE = 5
_WHOLE_BOUND, _FRACTION_BOUND = 150, 250  # a bound against 1e300, against 1.5
_MULTIPLE = 250
_WHOLE_EQUAL, _FRACTION_EQUAL = 350, 600  # const and enum: 1 against 1.5, 1.25 against 7
_MIXED_ENUM = 1  # a string in an enum that holds numbers too: compared one by one
_UNIQUE = 1400  # 15 fractions, compared pair by pair; larger arrays are hashed
_DEPENDENT = 3
_NAME_PATTERN = 2
_PATTERN = 0.25
"""A pattern's share: per byte of its compiled size, with every state active."""

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_IN_PLACE = ("not", "if", "then", "else")
_MAX_VISITS = 20_000

_Group = Sequence[Mapping[str, Any]]


class TooIntricate(ValueError):
    """The parts of a schema combine in more ways than can be counted."""


def byte_limit(cost_ns_per_byte: float) -> int:
    """How many bytes may be checked at `cost_ns_per_byte` within :data:`MAX_CHECK_MS`."""
    return int(MAX_CHECK_MS * 1_000_000 / max(cost_ns_per_byte, 1))


def worst_cost(schema: Mapping[str, Any], pattern_size: Callable[[str], int]) -> float:
    """Nanoseconds per byte to check a value against `schema`, at worst.

    The sum over all schemas that apply to the same value, for the value where that is greatest.
    `pattern_size` tells the compiled size of a pattern. Raises :class:`TooIntricate`.
    """
    return _Sum(schema.get("$defs", {}), pattern_size).of([schema])


class _Sum:
    def __init__(self, definitions: Mapping[str, Any], pattern_size: Callable[[str], int]) -> None:
        self._definitions = definitions
        self._pattern_size = pattern_size
        self._known: dict[tuple[int, ...], float] = {}
        self._visits = 0

    def of(self, schemas: Sequence[Any]) -> float:
        """The greatest cost of a value, and of any part of it, to which all `schemas` apply."""
        group = [node for schema in schemas for node in self._in_place(schema)]
        self._visits += len(group) + 1
        if self._visits > _MAX_VISITS:
            raise TooIntricate("its parts combine in too many ways")
        # By identity: the schemas live as long as the manifest that holds them.
        key = tuple(sorted(map(id, group)))
        if key not in self._known:
            own = sum(map(self._own, group))
            parts = (self.of(part) for part in _parts(group) if part)
            self._known[key] = max(own, *parts, 0.0, 0.0)
        return self._known[key]

    def _in_place(self, schema: Any) -> Iterator[Mapping[str, Any]]:
        """`schema` and those in it that apply to the same value."""
        if not isinstance(schema, dict):
            return
        yield schema
        if "$ref" in schema:
            yield from self._in_place(self._definitions[named_target(schema["$ref"])])
        inner = [schema[keyword] for keyword in _IN_PLACE if keyword in schema]
        for keyword in SEVERAL - {"prefixItems"}:
            inner += schema.get(keyword, ())
        inner += schema.get("dependentSchemas", {}).values()
        for part in inner:
            yield from self._in_place(part)

    def _own(self, schema: Mapping[str, Any]) -> float:
        cost: float = _NODE
        for keyword in _BOUNDS:
            if keyword in schema:
                whole = isinstance(schema[keyword], int)
                cost += _WHOLE_BOUND if whole else _FRACTION_BOUND
        if "const" in schema:
            cost += max(map(_equality, _scalars(schema["const"])), default=0)
        if "enum" in schema:
            cost += _enum(schema["enum"])
        cost += _MULTIPLE if "multipleOf" in schema else 0
        cost += _UNIQUE if schema.get("uniqueItems") else 0
        cost += _DEPENDENT * len(schema.get("dependentRequired", ()))
        patterns = list(schema.get("patternProperties", ()))
        cost += _NAME_PATTERN * len(patterns)
        if "pattern" in schema:
            patterns.append(schema["pattern"])
        return cost + _PATTERN * sum(map(self._pattern_size, patterns))


def _parts(group: _Group) -> Iterator[list[Any]]:
    """The groups of schemas that apply to the parts of a value: items, properties, names."""
    contains = [node["contains"] for node in group if "contains" in node]
    longest = max((len(node.get("prefixItems", ())) for node in group), default=0)
    for index in range(longest + 1):
        yield [*contains, *(_item(node, index) for node in group)]
    yield [node["propertyNames"] for node in group if "propertyNames" in node]
    names = {name for node in group for name in node.get("properties", ())}
    for name in (*sorted(names), None):
        yield [schema for node in group for schema in _property(node, name)]


def _item(node: Mapping[str, Any], index: int) -> Any:
    heads = node.get("prefixItems", ())
    return heads[index] if index < len(heads) else node.get("items", True)


def _property(node: Mapping[str, Any], name: str | None) -> Iterator[Any]:
    """What applies to the property `name`, or to one that no schema names."""
    properties = node.get("properties", {})
    yield from node.get("patternProperties", {}).values()
    if name in properties:
        yield properties[name]
    else:
        yield node.get("additionalProperties", True)


def _enum(values: Sequence[Any]) -> float:
    costs = [_equality(value) for value in values]
    numbers = sum(costs)
    return numbers + _MIXED_ENUM * len(values) if numbers else 0


def _equality(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return _WHOLE_EQUAL if isinstance(value, int) else _FRACTION_EQUAL


def _scalars(value: Any) -> Iterator[Any]:
    """Every value in `value` that holds no others."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _scalars(each)
    elif isinstance(value, list):
        for each in value:
            yield from _scalars(each)
    else:
        yield value
