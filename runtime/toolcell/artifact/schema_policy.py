"""Which JSON Schemas a manifest may hold.

Owns the rules; compiles and checks nothing. A schema comes from a publisher and is run by the host
on whatever a caller or a tool sends, so it must not be able to fetch, to recurse, to branch without
bound or to backtrack. Used when an artifact is built and whenever one is opened.

What is left is a finite tree: references are local and never form a cycle, and the tree that is
written out in full has at most :data:`MAX_SUBSCHEMAS` nodes. What a check may cost is bounded by
`toolcell.artifact.schema_cost`. (JSON Schema 2020-12, https://json-schema.org/draft/2020-12.)
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolcell.artifact.strict_json import NotStrictJson, check_values
from toolcell.errors import ArtifactRejected

__all__ = [
    "DIALECT",
    "FORMATS",
    "MAX_PATTERN_LENGTH",
    "MAX_SUBSCHEMAS",
    "ONE",
    "SEVERAL",
    "check_schema",
    "named_target",
]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
MAX_SUBSCHEMAS = 1024
"""Nodes of the tree with every reference written out."""
MAX_LEVELS = 64
"""Levels of that tree, references included: it bounds our own recursion too."""
MAX_PATTERN_LENGTH = 256
MAX_PATTERNS = 64
MAX_ENUM = 1024

FORMATS = frozenset(
    {"date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}
)
"""Formats that are checked; each has a linear-time parser in jsonschema-rs."""

ONE = frozenset(
    {
        "additionalProperties",
        "propertyNames",
        "items",
        "contains",
        "not",
        "if",
        "then",
        "else",
    }
)
"""Keywords whose value is a schema."""
SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_PLAIN = frozenset(
    {
        "type",
        "const",
        "required",
        "minProperties",
        "maxProperties",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minContains",
        "maxContains",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "dependentRequired",
    }
)
_ANNOTATIONS = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "contentEncoding",
        "contentMediaType",
    }
)
_CHECKED = frozenset({"$ref", "$defs", "$schema", "enum", "pattern", "format"})
_ALLOWED = ONE | SEVERAL | _NAMED | _PLAIN | _ANNOTATIONS | _CHECKED

_REFERENCE = re.compile(r"#/\$defs/([A-Za-z0-9_.-]{1,100})")


def check_schema(schema: Any, where: str) -> None:
    """:class:`ArtifactRejected` (`schema`) unless `schema` keeps the rules.

    `where` names it in the message: `methods.profile.input`.
    """
    try:
        check_values(schema)
    except NotStrictJson as error:
        raise _rejected(where, str(error)) from None
    definitions = _Walk(schema, where).definitions
    _Unrolled(definitions, where).measure(schema)


def named_target(reference: str) -> str:
    """The name in `$defs` that `reference` points to, empty where it is no such reference."""
    found = _REFERENCE.fullmatch(reference)
    return found[1] if found else ""


class _Walk:
    """Looks at each schema that is written down, once."""

    def __init__(self, schema: Any, where: str) -> None:
        if not isinstance(schema, dict):
            raise _rejected(where, "it is not an object")
        self.where = where
        self.patterns = 0
        if schema.get("$schema", DIALECT) != DIALECT:
            raise _rejected(where, f"`$schema` is not `{DIALECT}`")
        found = schema.get("$defs", {})
        if not isinstance(found, dict):
            raise _rejected(where, "`$defs` is not an object")
        self.definitions: dict[str, Any] = found
        self._visit(schema, "", 0)
        for name, definition in self.definitions.items():
            if not named_target(f"#/$defs/{name}"):
                raise _rejected(where, f"`$defs` has a name that is not plain: {name[:60]!a}")
            self._visit(definition, f"/$defs/{name}", 1)

    def _visit(self, schema: Any, path: str, depth: int) -> None:
        if isinstance(schema, bool):
            return
        if depth > MAX_LEVELS:
            raise _rejected(self.where, f"it is nested deeper than {MAX_LEVELS} levels")
        if not isinstance(schema, dict):
            raise _rejected(self.where, f"{path or '/'} is neither an object nor true or false")
        for keyword in schema:
            at_root = keyword not in ("$defs", "$schema") or depth == 0
            if keyword not in _ALLOWED or not at_root:
                raise _rejected(
                    self.where,
                    f"{path or '/'} uses {keyword[:60]!a}, which is not among the keywords that "
                    "a tool may use (docs/artifacts.md)",
                )
        self._check_values(schema, path)
        for name, child in _children(schema, self.where, path):
            self._visit(child, f"{path}/{name}"[:200], depth + 1)

    def _check_values(self, schema: Mapping[str, Any], path: str) -> None:
        reference = schema.get("$ref")
        if reference is not None and (
            not isinstance(reference, str) or named_target(reference) not in self.definitions
        ):
            raise _rejected(
                self.where,
                f"{path}/$ref is {_named(reference)}; it can only be `#/$defs/NAME` with a "
                "NAME that is in `$defs` of the same schema",
            )
        self._check_enum(schema.get("enum", ()), path)
        self._check_divisor(schema, path)
        name = schema.get("format", "uri")
        if not isinstance(name, str) or name not in FORMATS:
            known = ", ".join(sorted(FORMATS))
            raise _rejected(self.where, f"{path}/format is not one of {known}")
        patterns = [schema["pattern"]] if "pattern" in schema else []
        named = schema.get("patternProperties", {})
        patterns += list(named) if isinstance(named, dict) else []
        self.patterns += len(patterns)
        if self.patterns > MAX_PATTERNS:
            raise _rejected(self.where, f"it has more than {MAX_PATTERNS} patterns")
        if any(not isinstance(p, str) or len(p) > MAX_PATTERN_LENGTH for p in patterns):
            raise _rejected(
                self.where,
                f"{path or '/'} has a pattern that is no text of at most {MAX_PATTERN_LENGTH} "
                "characters",
            )

    def _check_divisor(self, schema: Mapping[str, Any], path: str) -> None:
        divisor = schema.get("multipleOf", 1)
        # A fraction is divided exactly, digit by digit: up to 40 us for each value.
        if not isinstance(divisor, int) or isinstance(divisor, bool) or divisor < 1:
            raise _rejected(self.where, f"{path}/multipleOf is not a whole number above 0")

    def _check_enum(self, values: Any, path: str) -> None:
        # Objects in an enum are compared one by one: 256 of them take 13 us for each value.
        scalars = isinstance(values, (list, tuple)) and not any(
            isinstance(value, (dict, list)) for value in values
        )
        if not scalars or len(values) > MAX_ENUM:
            raise _rejected(
                self.where,
                f"{path}/enum is not a list of at most {MAX_ENUM} strings, numbers, booleans "
                "and nulls",
            )


class _Unrolled:
    """Measures the tree that the references span: its nodes and its levels."""

    def __init__(self, definitions: Mapping[str, Any], where: str) -> None:
        self._definitions = definitions
        self._where = where
        self._measured: dict[str, tuple[int, int]] = {}
        self._open: list[str] = []

    def measure(self, schema: Any, above: int = 0) -> tuple[int, int]:
        """Nodes and levels of `schema`, which is `above` levels deep; both checked as they grow."""
        if above > MAX_LEVELS:
            raise self._too("is nested deeper than", MAX_LEVELS, "levels")
        nodes, levels = 1, 0
        if isinstance(schema, dict):
            nodes += 1 if "pattern" in schema else 0
            children = [self.measure(part, above + 1) for _, part in self._children(schema)]
            if "$ref" in schema:
                children.append(self._definition(named_target(schema["$ref"]), above + 1))
            nodes += sum(size for size, _ in children)
            levels = max((height for _, height in children), default=0)
        if nodes > MAX_SUBSCHEMAS:
            raise self._too("has more than", MAX_SUBSCHEMAS, "subschemas")
        if above + levels > MAX_LEVELS:
            raise self._too("is nested deeper than", MAX_LEVELS, "levels")
        return nodes, levels + 1

    def _children(self, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        return _children(schema, self._where, "")

    def _definition(self, name: str, above: int) -> tuple[int, int]:
        if name in self._open:
            cycle = " -> ".join((*self._open[self._open.index(name) :], name))
            raise _rejected(self._where, f"`$defs` refer to each other in a circle: {cycle}")
        if name not in self._measured:
            self._open.append(name)
            self._measured[name] = self.measure(self._definitions[name], above)
            self._open.pop()
        return self._measured[name]

    def _too(self, relation: str, limit: int, unit: str) -> ArtifactRejected:
        return _rejected(
            self._where, f"with its references written out it {relation} {limit} {unit}"
        )


def _children(schema: Mapping[str, Any], where: str, path: str) -> Iterator[tuple[str, Any]]:
    """The schemas directly inside `schema`, `$defs` apart, each with its place."""
    for keyword, value in schema.items():
        if keyword in ONE:
            yield keyword, value
        elif keyword in SEVERAL:
            if not isinstance(value, list):
                raise _rejected(where, f"{path}/{keyword} is not a list")
            yield from ((f"{keyword}/{index}", each) for index, each in enumerate(value))
        elif keyword in _NAMED:
            if not isinstance(value, dict):
                raise _rejected(where, f"{path}/{keyword} is not an object")
            yield from ((f"{keyword}/{name}", each) for name, each in value.items())


def _named(value: Any) -> str:
    return f"{value[:100]!a}" if isinstance(value, str) else f"a {type(value).__name__}"


def _rejected(where: str, message: str) -> ArtifactRejected:
    return ArtifactRejected(
        f"the schema {where} can't be used: {message}",
        remedy="declare a simpler type for the method; deep or recursive parts can be `{}`",
        status=400,
        details={"reason": "schema", "schema": where},
    )
