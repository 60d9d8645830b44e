"""Inputs and outputs against the schemas of a manifest."""

import json

import msgspec
import pytest
from artifact_maker import manifest_fields, refused

from toolcell.artifact.manifest import Manifest
from toolcell.artifact.schema import MethodSchemas
from toolcell.errors import InvalidInput, ToolFault, ToolNotFound


def schemas(input_schema: dict, output_schema: dict | None = None) -> MethodSchemas:
    methods = {"say": {"input": input_schema, "output": output_schema or {}}}
    fields = manifest_fields(methods=methods, files={"tool.wasm": "0" * 64})
    return MethodSchemas(msgspec.convert(fields, Manifest))


ROWS = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "when": {"type": "string", "format": "date-time"},
        "unit": {"enum": ["mm", "inch"]},
        "limit": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        "shape": {
            "oneOf": [
                {"type": "object", "required": ["radius"]},
                {"type": "object", "required": ["width"]},
            ]
        },
        "tags": {"contains": {"const": "x"}},
        "free": {},
        "strict": {"not": {"type": "null"}},
        "pair": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    },
    "patternProperties": {"^n_": {"type": "number"}},
    "propertyNames": {"maxLength": 8},
    "additionalProperties": False,
    "if": {"required": ["when"]},
    "then": {"required": ["unit"]},
    "$defs": {
        "row": {
            "type": "object",
            "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}},
            "required": ["name"],
        }
    },
}


@pytest.mark.parametrize(
    ("value", "path", "rule"),
    [
        ([], "$", 'not of type "object"'),
        ({"rows": [{"name": "a"}, {"name": "B"}]}, "$.rows[1].name", 'does not match "^[a-z]+$"'),
        ({"rows": [{}]}, "$.rows[0]", '"name" is a required property'),
        ({"when": "yesterday", "unit": "mm"}, "$.when", 'not a "date-time"'),
        ({"when": "2026-01-01T00:00:00Z"}, "$", '"unit" is a required property'),
        ({"unit": "parsec"}, "$.unit", "not one of"),
        ({"limit": 0}, "$.limit", "less than the minimum of 1"),
        ({"limit": "many"}, "$.limit", "fits none of 2 forms (anyOf)"),
        ({"shape": {}}, "$.shape", "fits none of 2 forms (oneOf)"),
        ({"shape": {"radius": 1, "width": 1}}, "$.shape", "fits 2 forms, and may fit only one"),
        ({"tags": ["y"]}, "$.tags", "contains"),
        ({"strict": None}, "$.strict", "not allowed"),
        ({"n_1": "one"}, "$.n_1", 'not of type "number"'),
        ({"pair": [1, 2]}, "$.pair[1]", 'not of type "string"'),
        ({"pair": [1, "a", 3]}, "$.pair[2]", "nothing is allowed here"),
        ({"n_too_long_name": 1}, "$.n_too_long_name~name", "longer than 8"),
        ({"we ird": 1}, "$", "'we ird' was unexpected"),
    ],
)
def test_a_mismatch_names_path_value_and_rule(value, path, rule):
    with pytest.raises(InvalidInput) as caught:
        schemas(ROWS).check_input("say", json.dumps(value).encode())
    error = caught.value
    assert error.status == 422
    assert error.details["path"] == path
    assert rule in error.details["rule"]
    assert f"at {path} = " in error.message


def test_what_fits_is_handed_back_decoded():
    value = {"rows": [{"name": "ada"}], "limit": None, "n_x": 0.5, "free": [1, {"a": 2}]}
    assert schemas(ROWS).check_input("say", json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"nul", b"[1,]", b"{'a': 1}", b"NaN", b"[Infinity]", b'{"a":1} x', b"\xff",
     b'"\xff"', b'"\\ud800"', b"1e999", b"\xef\xbb\xbf{}", b"9" * 5000],
)  # fmt: skip
def test_what_is_not_json_has_status_400(raw):
    with pytest.raises(InvalidInput) as caught:
        schemas({}).check_input("say", raw)
    assert caught.value.status == 400
    with pytest.raises(ToolFault) as caught_output:
        schemas({}).check_output("say", raw)
    assert caught_output.value.status == 500


@pytest.mark.parametrize(
    "raw", [b'{"a":1,"a":2}', b'[{"b":{"a":1, "a":1}}]', b'{"\\u0061":1,"a":2}']
)
def test_a_name_that_comes_twice_has_status_400(raw):
    with pytest.raises(InvalidInput, match="comes twice") as caught:
        schemas({}).check_input("say", raw)
    assert caught.value.status == 400


@pytest.mark.parametrize("depth", [128, 129, 600, 5000, 100_000])
def test_nesting_is_bounded(depth):
    raw = b"[" * depth + b"]" * depth
    if depth <= 128:
        assert schemas({}).check_input("say", raw) is not None
        return
    with pytest.raises(InvalidInput, match="nested deeper than 128") as caught:
        schemas({}).check_input("say", raw)
    assert caught.value.status == 400


def test_brackets_in_text_are_not_nesting():
    assert schemas({}).check_input("say", json.dumps(["[{" * 500, *[[]] * 200]).encode())


def test_an_input_over_the_bound_has_status_413():
    with pytest.raises(InvalidInput) as caught:
        schemas({}).check_input("say", b'"' + b"x" * 99 + b'"', max_bytes=100)
    assert caught.value.status == 413
    assert caught.value.details == {"limit": 100, "value": 101}


def test_an_unknown_method_names_the_known_ones():
    with pytest.raises(ToolNotFound, match="`say`") as caught:
        schemas({}).check_input("shout\x1b" * 50, b"{}")
    assert caught.value.status == 404
    assert "\x1b" not in caught.value.message
    with pytest.raises(ToolNotFound):
        schemas({}).check_output("shout", b"{}")


def test_an_output_off_its_schema_is_the_tools_fault():
    checker = schemas({}, {"type": "array", "items": {"type": "integer"}})
    assert checker.check_output("say", b"[1, 2]") == [1, 2]
    with pytest.raises(ToolFault) as caught:
        checker.check_output("say", b'[1, "two"]')
    assert caught.value.status == 500
    assert caught.value.details["path"] == "$[1]"


def test_a_value_in_a_message_is_short_and_printable():
    with pytest.raises(InvalidInput) as caught:
        schemas({"type": "integer"}).check_input("say", json.dumps("\x1b\u202e" * 9999).encode())
    assert len(caught.value.message) < 400
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()


def test_large_numbers_are_compared_exactly():
    checker = schemas({"type": "integer", "maximum": 2**63})
    assert checker.check_input("say", str(2**63).encode()) == 2**63
    with pytest.raises(InvalidInput, match="greater than the maximum"):
        checker.check_input("say", str(2**63 + 1).encode())


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63), 10**18, 0, 1.5e300, -1e-300])
def test_numbers_of_64_bits_are_fine(number):
    assert schemas({}).check_input("say", json.dumps([number]).encode()) == [number]


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30, 10**4000])
def test_whole_numbers_of_more_than_64_bits_have_status_400(number):
    with pytest.raises(InvalidInput, match="more than 64 bits") as caught:
        schemas({}).check_input("say", json.dumps({"a": [{"b": number}]}).encode())
    assert caught.value.status == 400


def test_where_items_must_be_unique_whole_numbers_have_53_bits():
    """Larger ones can be chosen so that they all hash alike."""
    checker = schemas({"properties": {"ids": {"uniqueItems": True}}})
    assert checker.check_input("say", b'{"ids":[9007199254740992]}')
    with pytest.raises(InvalidInput, match="more than 53 bits"):
        checker.check_input("say", b'{"ids":[9007199254740993]}')


@pytest.mark.parametrize("raw", [b"1e999", b'{"a": [-1e999]}', b"[1e400,1]", b"1E+309"])
def test_numbers_out_of_range_have_status_400(raw):
    with pytest.raises(InvalidInput, match="out of range") as caught:
        schemas({}).check_input("say", raw)
    assert caught.value.status == 400


def test_digits_in_a_text_and_long_fractions_are_no_large_numbers():
    raw = b'["' + b"1" * 500 + b'",0.' + b"3" * 500 + b"]"
    assert schemas({}).check_input("say", raw)[0] == "1" * 500


@pytest.mark.parametrize(
    "name", ["date", "date-time", "time", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"]
)
def test_formats_are_checked(name):
    with pytest.raises(InvalidInput, match=f'not a "{name}"'):
        schemas({"format": name}).check_input("say", b'"not one \\u0000 of these"')


def test_content_encoding_is_for_people():
    schema = {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}
    assert schemas(schema).check_input("say", b'"%%%"') == "%%%"


def test_a_broken_pattern_is_refused_when_the_artifact_is_made_ready():
    for pattern in ("(", "(?=a)b", "(a)\\1", "a{1000}{1000}{10}"):
        with refused("schema"):
            schemas({"pattern": pattern})
