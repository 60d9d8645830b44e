"""Checks inputs and outputs of a tool's methods against the schemas in its manifest.

Owns the compiled validators of one manifest and the errors of a mismatch. Made once per artifact,
used on every call: a small input costs about a microsecond. The rules on schemas are in
`toolcell.artifact.schema_policy`, the search for what is wrong in `toolcell.artifact.explain`.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import jsonschema_rs
from msgspec import Struct

from toolcell.artifact.explain import explain
from toolcell.artifact.manifest import Manifest
from toolcell.artifact.schema_cost import (
    MAX_CHECK_MS,
    MAX_COST_NS_PER_BYTE,
    TooIntricate,
    byte_limit,
    worst_cost,
)
from toolcell.artifact.schema_policy import check_schema
from toolcell.artifact.shown import shown
from toolcell.artifact.strict_json import NotStrictJson, decode_json
from toolcell.artifact.validator import compile_schema, pattern_size
from toolcell.errors import ArtifactRejected, InvalidInput, ToolFault, ToolNotFound

__all__ = ["MAX_INPUT_BYTES", "MethodSchemas", "check_schemas"]

MAX_INPUT_BYTES: Final = 2 * 1024 * 1024
"""Default bound of an input: `max_message_bytes` of the policy class `safe-default`."""


def check_schemas(manifest: Manifest) -> None:
    """:class:`ArtifactRejected` where a method's schema breaks the rules. Compiles nothing."""
    for name, method in manifest.methods.items():
        check_schema(method.input, f"methods.{name}.input")
        check_schema(method.output, f"methods.{name}.output")


class _Check(Struct, frozen=True):
    """Whether a value fits, how many bytes of text it may come from, and its whole numbers."""

    is_valid: Callable[[Any], bool]
    max_bytes: int
    bits: Literal[64, 53]


class MethodSchemas:
    """The validators of every method of `manifest`. Immutable; thread-safe.

    :class:`ArtifactRejected` (`schema`) where a schema can't be used.
    """

    def __init__(self, manifest: Manifest) -> None:
        check_schemas(manifest)
        self._manifest = manifest
        self._checks = {
            name: (
                _made_ready(method.input, f"methods.{name}.input"),
                _made_ready(method.output, f"methods.{name}.output"),
            )
            for name, method in manifest.methods.items()
        }

    def check_input(self, method: str, raw: bytes, max_bytes: int = MAX_INPUT_BYTES) -> Any:
        """The value of the JSON text `raw`, which fits `method`'s input schema.

        :class:`ToolNotFound` for an unknown method; :class:`InvalidInput` with status 413 over
        `max_bytes`, 400 where it is not strict JSON, 422 against the schema: then the message
        names the path, the value there (shortened) and the rule.
        """
        checks = self._checks.get(method)
        if checks is None:
            raise self._unknown(method)
        if len(raw) > max_bytes:
            raise InvalidInput(
                f"the input of `{method}` has {len(raw)} bytes; the limit is {max_bytes}",
                remedy="send less, or raise `max_message_bytes` in the policy",
                status=413,
                details={"limit": max_bytes, "value": len(raw)},
            )
        check = checks[0]
        if len(raw) > check.max_bytes:
            raise InvalidInput(
                f"the input of `{method}` has {len(raw)} bytes; its schema is so costly to check "
                f"that the limit is {check.max_bytes} (at most {MAX_CHECK_MS} ms)",
                remedy="send less at once; the tool's author can use simpler patterns and bounds",
                status=413,
                details={"limit": check.max_bytes, "value": len(raw)},
            )
        try:
            value = decode_json(raw, check.bits)
        except NotStrictJson as error:
            raise InvalidInput(
                f"the input of `{method}` is not valid JSON: {error}",
                remedy="send one JSON text (RFC 8259), without duplicate names or NaN",
                status=400,
            ) from None
        if not check.is_valid(value):
            found = explain(self._manifest.methods[method].input, value)
            raise InvalidInput(
                f"the input of `{method}` does not fit its schema at {found}",
                remedy="see the schema: `toolcell inspect " + self._manifest.name + "`",
                details={"path": found.path, "rule": found.rule},
            )
        return value

    def check_output(self, method: str, raw: bytes) -> Any:
        """The value of the JSON text `raw`, which fits `method`'s output schema.

        :class:`ToolFault` (status 500) where it is not strict JSON or does not fit: the tool
        broke its own promise. Size is the lane's concern, unless the schema is costly: then 413.
        """
        checks = self._checks.get(method)
        if checks is None:
            raise self._unknown(method)
        check = checks[1]
        if len(raw) > check.max_bytes:
            raise ToolFault(
                f"`{method}` returned {len(raw)} bytes; its schema is so costly to check that the "
                f"limit is {check.max_bytes} (at most {MAX_CHECK_MS} ms)",
                remedy="this is a defect of the tool: tell its author",
                status=413,
                details={"limit": check.max_bytes, "value": len(raw)},
            )
        try:
            value = decode_json(raw, check.bits)
        except NotStrictJson as error:
            raise ToolFault(
                f"`{method}` returned something that is not valid JSON: {error}",
                remedy="this is a defect of the tool: tell its author",
            ) from None
        if not check.is_valid(value):
            found = explain(self._manifest.methods[method].output, value)
            raise ToolFault(
                f"the output of `{method}` does not fit its schema at {found}",
                remedy="this is a defect of the tool: tell its author",
                details={"path": found.path, "rule": found.rule},
            )
        return value

    def _unknown(self, method: str) -> ToolNotFound:
        known = ", ".join(f"`{name}`" for name in sorted(self._checks))
        return ToolNotFound(
            f"tool `{self._manifest.name}` {self._manifest.version} has no method "
            f"{method[:64]!a}; it has {known}",
            remedy="call one of those",
            details={"methods": sorted(self._checks)},
        )


def _made_ready(schema: dict[str, Any], where: str) -> _Check:
    try:
        validator = compile_schema(schema)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        first_line = shown(str(error).partition("\n")[0])
        raise ArtifactRejected(
            f"the schema {where} can't be used: {first_line}",
            remedy="patterns are those of the Rust `regex` crate: no look-around, no references",
            status=400,
            details={"reason": "schema", "schema": where},
        ) from None
    return _Check(validator.is_valid, byte_limit(_cost(schema, where)), _whole_number_bits(schema))


def _whole_number_bits(schema: Any) -> Literal[64, 53]:
    """53 where array items must be unique: jsonschema-rs hashes whole numbers as fractions, so
    up to 2,048 larger ones share a hash, and 2 MB of those take it two minutes.
    """
    if isinstance(schema, dict):
        if schema.get("uniqueItems") is True:
            return 53
        return min((_whole_number_bits(each) for each in schema.values()), default=64)
    if isinstance(schema, list):
        return min(map(_whole_number_bits, schema), default=64)
    return 64


def _cost(schema: dict[str, Any], where: str) -> float:
    try:
        cost = worst_cost(schema, pattern_size)
    except TooIntricate as error:
        raise _too_costly(where, str(error)) from None
    if cost > MAX_COST_NS_PER_BYTE:
        raise _too_costly(
            where,
            f"checking a value may take {cost:.0f} ns per byte; the limit is "
            f"{MAX_COST_NS_PER_BYTE}",
        )
    return cost


def _too_costly(where: str, why: str) -> ArtifactRejected:
    return ArtifactRejected(
        f"the schema {where} can't be used: {why}",
        remedy="use `maxLength` rather than `{1,255}` in a pattern, `minimum` and `maximum` "
        "rather than a list of numbers, and fewer alternatives",
        status=400,
        details={"reason": "schema", "schema": where},
    )
