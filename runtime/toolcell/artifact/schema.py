"""Checks inputs and outputs of a tool's methods against the schemas in its manifest.

Owns the compiled validators of one manifest and the errors of a mismatch. Made once per artifact,
used on every call: a small input costs about a microsecond. The rules on schemas are in
`toolcell.artifact.schema_policy`, the search for what is wrong in `toolcell.artifact.explain`.
"""

from typing import Any, Final

import jsonschema_rs

from toolcell.artifact.explain import explain
from toolcell.artifact.manifest import Manifest
from toolcell.artifact.schema_policy import check_schema
from toolcell.artifact.shown import shown
from toolcell.artifact.strict_json import NotStrictJson, decode_json
from toolcell.artifact.validator import compile_schema
from toolcell.errors import ArtifactRejected, InvalidInput, ToolFault, ToolNotFound

__all__ = ["MAX_INPUT_BYTES", "MethodSchemas", "check_schemas"]

MAX_INPUT_BYTES: Final = 2 * 1024 * 1024
"""Default bound of an input: `max_message_bytes` of the policy class `safe-default`."""


def check_schemas(manifest: Manifest) -> None:
    """:class:`ArtifactRejected` where a method's schema breaks the rules. Compiles nothing."""
    for name, method in manifest.methods.items():
        check_schema(method.input, f"methods.{name}.input")
        check_schema(method.output, f"methods.{name}.output")


class MethodSchemas:
    """The validators of every method of `manifest`. Immutable; thread-safe.

    :class:`ArtifactRejected` (`schema`) where a schema can't be used.
    """

    def __init__(self, manifest: Manifest) -> None:
        check_schemas(manifest)
        self._manifest = manifest
        self._validators = {
            name: (
                _compiled(method.input, f"methods.{name}.input"),
                _compiled(method.output, f"methods.{name}.output"),
            )
            for name, method in manifest.methods.items()
        }

    def check_input(self, method: str, raw: bytes, max_bytes: int = MAX_INPUT_BYTES) -> Any:
        """The value of the JSON text `raw`, which fits `method`'s input schema.

        :class:`ToolNotFound` for an unknown method; :class:`InvalidInput` with status 413 over
        `max_bytes`, 400 where it is not strict JSON, 422 against the schema: then the message
        names the path, the value there (shortened) and the rule.
        """
        validators = self._validators.get(method)
        if validators is None:
            raise self._unknown(method)
        if len(raw) > max_bytes:
            raise InvalidInput(
                f"the input of `{method}` has {len(raw)} bytes; the limit is {max_bytes}",
                remedy="send less, or raise `max_message_bytes` in the policy",
                status=413,
                details={"limit": max_bytes, "value": len(raw)},
            )
        try:
            value = decode_json(raw)
        except NotStrictJson as error:
            raise InvalidInput(
                f"the input of `{method}` is not valid JSON: {error}",
                remedy="send one JSON text (RFC 8259), without duplicate names or NaN",
                status=400,
            ) from None
        if not validators[0].is_valid(value):
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
        broke its own promise. Size is the lane's concern.
        """
        validators = self._validators.get(method)
        if validators is None:
            raise self._unknown(method)
        try:
            value = decode_json(raw)
        except NotStrictJson as error:
            raise ToolFault(
                f"`{method}` returned something that is not valid JSON: {error}",
                remedy="this is a defect of the tool: tell its author",
            ) from None
        if not validators[1].is_valid(value):
            found = explain(self._manifest.methods[method].output, value)
            raise ToolFault(
                f"the output of `{method}` does not fit its schema at {found}",
                remedy="this is a defect of the tool: tell its author",
                details={"path": found.path, "rule": found.rule},
            )
        return value

    def _unknown(self, method: str) -> ToolNotFound:
        known = ", ".join(f"`{name}`" for name in sorted(self._validators))
        return ToolNotFound(
            f"tool `{self._manifest.name}` {self._manifest.version} has no method "
            f"{method[:64]!a}; it has {known}",
            remedy="call one of those",
            details={"methods": sorted(self._validators)},
        )


def _compiled(schema: dict[str, Any], where: str) -> jsonschema_rs.Draft202012Validator:
    try:
        return compile_schema(schema)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        first_line = shown(str(error).partition("\n")[0])
        raise ArtifactRejected(
            f"the schema {where} can't be used: {first_line}",
            remedy="patterns are those of the Rust `regex` crate: no look-around, no references",
            status=400,
            details={"reason": "schema", "schema": where},
        ) from None
