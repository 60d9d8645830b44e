"""What a schema costs at worst, and the bound on bytes that follows from it."""

import msgspec
import pytest
from artifact_maker import SCHEMA, manifest_fields

from toolcell.artifact.manifest import Manifest
from toolcell.artifact.schema import MethodSchemas
from toolcell.artifact.schema_cost import MAX_CHECK_MS, TooIntricate, byte_limit, worst_cost
from toolcell.artifact.validator import MAX_PATTERN_BYTES, pattern_size
from toolcell.errors import InvalidInput, ToolFault

COSTLY = {"type": "array", "items": {"type": "string", "pattern": "^(?:[a-z]{1,60}-){4}[0-9]+$"}}


def cost(schema: dict) -> float:
    return worst_cost(schema, pattern_size)


def schemas(input_schema: dict, output_schema: dict) -> MethodSchemas:
    methods = {"say": {"input": input_schema, "output": output_schema}}
    fields = manifest_fields(methods=methods, files={"tool.wasm": "0" * 64})
    return MethodSchemas(msgspec.convert(fields, Manifest))


@pytest.mark.parametrize(
    "schema",
    [
        {},
        SCHEMA,
        {"type": "integer", "minimum": 0, "maximum": 100},
        {"properties": {f"p{n}": {"type": "number", "minimum": 0.5} for n in range(300)}},
        {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        {"enum": [f"word-{n}" for n in range(1000)]},
        {"type": "object", "additionalProperties": {"type": "string", "format": "uri"}},
        {"type": "array", "uniqueItems": True},
    ],
)
def test_ordinary_schemas_admit_a_megabyte(schema):
    assert byte_limit(cost(schema)) > 1024 * 1024


def test_what_applies_to_one_value_adds_up_and_what_does_not_does_not():
    one = cost({"minimum": 0})
    both = cost({"allOf": [{"minimum": 0}, {"maximum": 9}]})
    apart = cost({"properties": {"a": {"minimum": 0}, "b": {"maximum": 9}}})
    assert both > 1.9 * one
    assert apart < 1.2 * one


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"items": {"const": 1}}, {"contains": {"const": 2}}]},
        {"allOf": [{"prefixItems": [{"const": 1}]}, {"items": {"const": 2}}]},
        {
            "allOf": [
                {"properties": {"a": {"const": 1}}},
                {"patternProperties": {"a": {"const": 2}}},
            ]
        },
        {"properties": {"a": {"const": 1}}, "patternProperties": {"^a$": {"const": 2}}},
        {"allOf": [{"properties": {"a": {"const": 1}}}, {"additionalProperties": {"const": 2}}]},
        {"if": {"const": 1}, "then": {"const": 2}},
        {"$ref": "#/$defs/x", "const": 1, "$defs": {"x": {"const": 2}}},
        {"dependentSchemas": {"a": {"const": 1}, "b": {"const": 2}}},
        {"items": {"oneOf": [{"const": 1}, {"not": {"const": 2}}]}},
    ],
)
def test_two_schemas_that_meet_at_one_value_are_found(schema):
    """Wherever they come from: two comparisons cost more than one."""
    assert cost(schema) > 1.9 * cost({"const": 1})


def test_parts_that_combine_without_end_are_given_up():
    wide = {f"p{n}": {} for n in range(30)}
    schema: dict = {}
    for _ in range(6):
        schema = {"properties": dict(wide), "patternProperties": {"p": schema, "q": {**schema}}}
    with pytest.raises(TooIntricate):
        cost(schema)


def test_a_pattern_is_measured_by_the_engine():
    assert pattern_size("^[a-z]+$") <= 1024
    assert pattern_size("^[a-z]{1,64}$") < pattern_size("^[a-z]{1,255}$") <= MAX_PATTERN_BYTES
    assert pattern_size("(?:[ab]{0,99}a){20}") > MAX_PATTERN_BYTES


def test_a_costly_schema_admits_fewer_bytes_and_says_so():
    checker = schemas(COSTLY, COSTLY)
    limit = byte_limit(cost(COSTLY))
    assert limit < 1024 * 1024
    assert checker.check_input("say", b'["a-b-c-d-1"]') == ["a-b-c-d-1"]
    raw = b'["' + b"a" * limit + b'"]'
    with pytest.raises(InvalidInput, match=f"{MAX_CHECK_MS} ms") as caught:
        checker.check_input("say", raw)
    assert caught.value.status == 413
    assert caught.value.details["limit"] == limit
    with pytest.raises(ToolFault) as caught_output:
        checker.check_output("say", raw)
    assert caught_output.value.status == 413
