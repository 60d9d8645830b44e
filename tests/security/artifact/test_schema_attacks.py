"""Schemas are a publisher's text that the host runs on a caller's text: both may be hostile.

No test here measures seconds. Where an attack is one on time, the bound is a count, or the attack
would take minutes and the test would never end.
"""

import json
import tracemalloc

import jsonschema_rs
import msgspec
import pytest
from artifact_maker import manifest_fields, refused, unsigned

from toolcell.artifact.explain import explain
from toolcell.artifact.manifest import Manifest
from toolcell.artifact.schema import MethodSchemas
from toolcell.artifact.schema_policy import MAX_LEVELS, MAX_SUBSCHEMAS, check_schema
from toolcell.artifact.validator import compile_schema
from toolcell.errors import InvalidInput


def schemas(input_schema: dict) -> MethodSchemas:
    methods = {"say": {"input": input_schema, "output": {}}}
    fields = manifest_fields(methods=methods, files={"tool.wasm": "0" * 64})
    return MethodSchemas(msgspec.convert(fields, Manifest))


def chain(length: int, width: int = 1) -> dict:
    """`$defs` in which each refers `width` times to the next: width ** length nodes."""
    definitions = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * width} for n in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{length}": {"type": "string"}}}


def nested(levels: int) -> dict:
    schema: dict = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


HOSTILE = {
    "fetch over http": {"$ref": "http://169.254.169.254/latest/meta-data"},
    "fetch a file": {"$ref": "file:///etc/passwd"},
    "refer to nothing": {"$ref": "#/$defs/missing"},
    "refer by pointer": {"$ref": "#/properties/a", "properties": {"a": {}}},
    "refer to itself": {"$ref": "#"},
    "refer to a number": {"$ref": 7},
    "refer to nesting": {"$ref": [[[["x"]]]]},
    "change the base": {"$id": "http://evil.example/"},
    "anchor": {"$anchor": "a"},
    "dynamic": {"$dynamicRef": "#a"},
    "vocabulary": {"$vocabulary": {}},
    "old dialect": {"$schema": "http://json-schema.org/draft-04/schema#"},
    "unevaluated": {"unevaluatedProperties": False},
    "unknown keyword": {"x-evil": 1},
    "unknown keyword below": {"properties": {"a": {"items": {"\x1b[2J": 1}}}},
    "definitions below": {"properties": {"a": {"$defs": {}}}},
    "circle of one": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "circle of two": {"$defs": {"a": {"not": {"$ref": "#/$defs/b"}},
                      "b": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
    "circle through the value": {"$defs": {"t": {"properties": {"l": {"$ref": "#/$defs/t"},
                                 "r": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"},
    "billion laughs": chain(40, 2),
    "long chain": chain(MAX_LEVELS),
    "deep": nested(MAX_LEVELS + 1),
    "wide": {"anyOf": [{"const": n} for n in range(MAX_SUBSCHEMAS)]},
    "divide by a fraction": {"multipleOf": 0.01},
    "divide by nothing": {"multipleOf": 0},
    "huge bound": {"maximum": 10**30},
    "huge constant": {"const": {"a": [10**400]}},
    "many numbers": {"enum": list(range(1000))},
    "many fractions below": {"items": {"allOf": [{"const": n + 0.25} for n in range(100)]}},
    "pattern with a huge count": {"pattern": "(?:[ab]{0,99}a){20}[cd]"},
    "many patterns at one place": {"allOf": [{"pattern": f"[ab]{{{n}}}"} for n in range(150, 199)]},
    "objects in an enum": {"enum": [{"a": 1}]},
    "huge enum": {"enum": list(range(1025))},
    "many patterns": {"allOf": [{"pattern": "a"}] * 65},
    "long pattern": {"pattern": "a" * 257},
    "long pattern of names": {"patternProperties": {"a" * 257: {}}},
    "pattern that is no text": {"pattern": 1},
    "unknown format": {"format": "regex"},
    "format that is no text": {"format": ["uri"]},
    "schema that is no schema": {"items": 1},
    "list that is no list": {"anyOf": {}},
    "names that are no names": {"properties": []},
    "definitions that are none": {"$defs": []},
    "definition that is none": {"$defs": {"a": 1}},
    "name that is not plain": {"$defs": {"a/b": {}}},
    "wrong type": {"type": "integr"},
    "wrong bound": {"maxLength": -1},
    "wrong bound below": {"properties": {"a": {"minimum": "many"}}},
}  # fmt: skip


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_schema_is_refused(schema):
    with refused("schema") as caught:
        schemas(schema)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_it_can_not_be_built_into_an_artifact_either(schema):
    with refused("schema"):
        unsigned(methods={"say": {"input": {}, "output": schema}})


def test_references_within_the_bounds_are_fine():
    checker = schemas(chain(5, 2))
    assert checker.check_input("say", b'"x"') == "x"
    with pytest.raises(InvalidInput, match='not of type "string"'):
        checker.check_input("say", b"1")


def test_a_definition_that_is_used_often_counts_each_time():
    definitions = {"row": {"properties": {f"p{n}": {} for n in range(100)}}}
    uses = {f"u{n}": {"$ref": "#/$defs/row"} for n in range(11)}
    with refused("schema"):
        schemas({"properties": uses, "$defs": definitions})


def test_nothing_is_fetched_even_if_the_rules_let_a_reference_through():
    """The second defence: retrieval is off in the validator itself."""
    with pytest.raises(jsonschema_rs.ValidationError, match="Retrieval is disabled"):
        compile_schema({"$ref": "http://127.0.0.1:9/schema"})


CATASTROPHIC = "^(([a-z])+.)+[A-Z]([a-z])+$"
"""OWASP's example. A backtracking engine takes 2 ** 30 steps and more on the text below."""


@pytest.mark.parametrize("pattern", [CATASTROPHIC, "^(a|aa)+$", "^(a+)+$", "(.*)(.*)(.*)[^!]$"])
def test_a_pattern_that_would_backtrack_takes_linear_time(pattern):
    checker = schemas({"pattern": pattern, "maxLength": 2_000_000})
    raw = json.dumps("a" * 100_000 + "\n!").encode()
    with pytest.raises(InvalidInput, match="does not match"):
        checker.check_input("say", raw)


BRANCHES = {
    "anyOf": [
        {"items": {"items": {"type": "string", "title": str(n)}}, "type": "array"}
        for n in range(64)
    ]
}


@pytest.mark.slow
def test_a_failed_choice_does_not_collect_the_errors_of_every_branch():
    """64 branches x 100,000 items: jsonschema-rs's own error takes gigabytes (see validator.py)."""
    checker = schemas(BRANCHES)
    raw = json.dumps([[1]] * 100_000, separators=(",", ":")).encode()
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="fits none of 64 forms"):
        checker.check_input("say", raw)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 1024 * 1024


def test_what_the_library_would_have_collected_grows_with_branches_times_items():
    """The attack on `validate`, at a size that is safe: 8 branches x 50 items are 400 errors."""
    few = {"anyOf": BRANCHES["anyOf"][:8]}
    with pytest.raises(jsonschema_rs.ValidationError) as caught:
        compile_schema(few).validate([[1]] * 50)
    assert sum(len(errors) for errors in caught.value.kind.context) == 400


@pytest.mark.slow
def test_nested_choices_are_explained_without_exponential_work():
    schema: dict = {"const": 1}
    for n in range(30):
        schema = {"oneOf": [schema, {"type": "string", "title": str(n)}]}
    with pytest.raises(InvalidInput, match="1 was expected"):
        schemas(schema).check_input("say", b"2")


def test_an_explanation_of_a_long_list_compiles_each_schema_once(monkeypatch):
    compiled = []
    monkeypatch.setattr(
        "toolcell.artifact.explain.compile_schema",
        lambda schema: compiled.append(schema) or compile_schema(schema),
    )
    schema = {"items": {"type": "integer"}}
    found = explain(schema, [1] * 5000 + ["x"])
    assert found.path == "$[5000]"
    assert len(compiled) < 6


def test_the_walk_itself_does_not_recurse_without_bound():
    deep: dict = {"type": "string"}
    for _ in range(5000):
        deep = {"not": deep}
    with refused("schema"):
        check_schema(deep, "methods.say.input")
