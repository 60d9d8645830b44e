"""What is wrong with a value: the first place where it breaks its schema, and the rule.

Owns the search. It asks "is this part valid?" on the way down and never for a list of errors, so
it costs at most the depth of the value times one validation, whatever the schema (see
`toolcell.artifact.validator`). Runs only for a value that is known not to fit.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
from msgspec import Struct

from toolcell.artifact.schema_policy import ONE, SEVERAL, named_target
from toolcell.artifact.shown import shown
from toolcell.artifact.validator import compile_schema

__all__ = ["Mismatch", "explain"]

_MAX_VALUE = 80
_MAX_RULE = 240
_MAX_PATH = 200
_COMPOUND = ONE | SEVERAL | {"$ref", "$defs", "properties", "patternProperties", "dependentSchemas"}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}", re.ASCII)


class Mismatch(Struct, frozen=True):
    """Where (`$.rows[3].name`), what is there (shortened), and which rule it breaks."""

    path: str
    value: str
    rule: str

    def __str__(self) -> str:
        return f"{self.path} = {self.value}: {self.rule}"


def explain(schema: dict[str, Any], value: Any) -> Mismatch:
    """Why `value` does not fit `schema`, which keeps the rules of `schema_policy`."""
    return _Search(schema.get("$defs", {})).down(schema, value, "$")


class _Search:
    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._compiled: dict[int, jsonschema_rs.Draft202012Validator] = {}

    def down(self, schema: Any, value: Any, path: str) -> Mismatch:
        """The first mismatch at or below `value`."""
        if isinstance(schema, bool):
            return _mismatch(path, value, "nothing is allowed here")
        rule = self._broken_here(schema, value)
        if rule:
            return _mismatch(path, value, rule)
        for part, inner, step in self._parts(schema, value):
            if not self._is_valid(part, inner):
                return self.down(part, inner, path + step)
        return self._broken_choice(schema, value, path)

    def _broken_here(self, schema: dict[str, Any], value: Any) -> str:
        """The rule that `value` itself breaks, its parts aside."""
        plain = {name: rule for name, rule in schema.items() if name not in _COMPOUND}
        if schema.get("additionalProperties") is False:
            plain["additionalProperties"] = False
            for keyword in ("properties", "patternProperties"):
                plain[keyword] = dict.fromkeys(schema.get(keyword, {}), True)
        validator = compile_schema(plain)
        if validator.is_valid(value):
            return ""
        try:
            # No branches are left in this schema, so there is one error to make.
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return error.message
        return ""

    def _parts(self, schema: dict[str, Any], value: Any) -> Iterator[tuple[Any, Any, str]]:
        """Schemas that must hold for `value` or a part of it: schema, part, step of the path."""
        if "$ref" in schema:
            yield self._definitions[named_target(schema["$ref"])], value, ""
        for part in schema.get("allOf", ()):
            yield part, value, ""
        if "if" in schema:
            branch = "then" if self._is_valid(schema["if"], value) else "else"
            yield schema.get(branch, True), value, ""
        if isinstance(value, dict):
            yield from self._object_parts(schema, value)
        elif isinstance(value, list):
            heads = schema.get("prefixItems", ())
            rest = schema.get("items", True)
            for index, item in enumerate(value):
                yield heads[index] if index < len(heads) else rest, item, f"[{index}]"

    def _object_parts(
        self, schema: dict[str, Any], value: dict[str, Any]
    ) -> Iterator[tuple[Any, Any, str]]:
        properties = schema.get("properties", {})
        patterns = {
            pattern: compile_schema({"pattern": pattern})
            for pattern in schema.get("patternProperties", {})
        }
        for name, part in schema.get("dependentSchemas", {}).items():
            if name in value:
                yield part, value, ""
        for name, inner in value.items():
            if "propertyNames" in schema:
                yield schema["propertyNames"], name, _step(name) + "~name"
            matched = [each for each, found in patterns.items() if found.is_valid(name)]
            for pattern in matched:
                yield schema["patternProperties"][pattern], inner, _step(name)
            if name in properties:
                yield properties[name], inner, _step(name)
            elif not matched:
                yield schema.get("additionalProperties", True), inner, _step(name)

    def _broken_choice(self, schema: dict[str, Any], value: Any, path: str) -> Mismatch:
        """What is left: `anyOf`, `oneOf`, `not` and `contains`."""
        for keyword in ("anyOf", "oneOf"):
            branches = schema.get(keyword, ())
            fitting = [part for part in branches if self._is_valid(part, value)]
            if branches and not fitting:
                # `int | None` and the like: only one branch is for a value of this type.
                same_type = [part for part in branches if self._admits_type(part, value)]
                if len(same_type) == 1:
                    return self.down(same_type[0], value, path)
                return _mismatch(path, value, f"fits none of {len(branches)} forms ({keyword})")
            if keyword == "oneOf" and len(fitting) > 1:
                return _mismatch(path, value, f"fits {len(fitting)} forms, and may fit only one")
        if "not" in schema and self._is_valid(schema["not"], value):
            return _mismatch(path, value, "is of a form that is not allowed (not)")
        return _mismatch(path, value, "does not have the items that it must contain (contains)")

    def _admits_type(self, schema: Any, value: Any) -> bool:
        while isinstance(schema, dict) and "$ref" in schema and "type" not in schema:
            schema = self._definitions[named_target(schema["$ref"])]
        if not isinstance(schema, dict) or "type" not in schema:
            return True
        return compile_schema({"type": schema["type"]}).is_valid(value)

    def _is_valid(self, schema: Any, value: Any) -> bool:
        if isinstance(schema, bool):
            return schema
        # By identity: the schemas live as long as the manifest that holds them.
        validator = self._compiled.get(id(schema))
        if validator is None:
            validator = compile_schema({**schema, "$defs": self._definitions})
            self._compiled[id(schema)] = validator
        return validator.is_valid(value)


def _mismatch(path: str, value: Any, rule: str) -> Mismatch:
    return Mismatch(shown(path, _MAX_PATH), _shown(value), shown(rule, _MAX_RULE))


def _step(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return f".{name}"
    return f"[{json.dumps(shown(name, 60))}]"


def _shown(value: Any) -> str:
    """`value` for a message: short, one line, ASCII."""
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, str):
        return json.dumps(shown(value, _MAX_VALUE))
    return shown(json.dumps(value), _MAX_VALUE)
