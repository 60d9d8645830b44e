"""Type hints as JSON: schema, reader and writer of each supported type agree."""

import base64
import enum
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell_sdk import Field, SchemaError
from toolcell_sdk.shapes import Mismatch, Resolver


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


@dataclass
class Point:
    x: int
    y: float = 0.5


@dataclass
class Line:
    ends: tuple[Point, Point]
    names: list[str] = field(default_factory=list)


class Options(TypedDict):
    depth: int
    label: NotRequired[str]


@dataclass
class Tree:
    children: "list[Tree]"


Metres = NewType("Metres", float)


def shape(hint: Any):
    return Resolver().resolve(hint)


ROUND_TRIPS = [
    (str, "ä\n", {"type": "string"}),
    (int, -7, {"type": "integer"}),
    (float, 2.5, {"type": "number"}),
    (bool, True, {"type": "boolean"}),
    (None, None, {"type": "null"}),
    (Any, {"a": [1, None]}, {}),
    (bytes, "AAH/", {"type": "string", "contentEncoding": "base64"}),
    (list[int], [1, 2], {"type": "array", "items": {"type": "integer"}}),
    (list, [1, "x"], {"type": "array", "items": {}}),
    (dict, {"a": 1}, {"type": "object", "additionalProperties": {}}),
    (
        dict[str, bool],
        {"a": True},
        {"type": "object", "additionalProperties": {"type": "boolean"}},
    ),
    (
        set[str],
        ["a", "b"],
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    ),
    (tuple[int, ...], [1, 2, 3], {"type": "array", "items": {"type": "integer"}}),
    (
        tuple[int, str],
        [1, "x"],
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "items": False,
            "minItems": 2,
            "maxItems": 2,
        },
    ),
    (Optional[int], None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
    (int | str, "x", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (Literal["a", 1], 1, {"enum": ["a", 1]}),
    (Colour, "red", {"enum": ["red", 2]}),
    (Metres, 3.5, {"type": "number"}),
    (
        Point,
        {"x": 1, "y": 2.0},
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.5}},
            "required": ["x"],
            "additionalProperties": False,
        },
    ),
    (
        Options,
        {"depth": 1},
        {
            "type": "object",
            "properties": {"depth": {"type": "integer"}, "label": {"type": "string"}},
            "required": ["depth"],
            "additionalProperties": False,
        },
    ),
]


@pytest.mark.parametrize(("hint", "value", "schema"), ROUND_TRIPS, ids=lambda v: str(v)[:30])
def test_a_type_has_its_schema_and_gives_back_what_it_was_given(hint, value, schema):
    found = shape(hint)
    assert found.schema == schema
    assert jsonschema_rs.is_valid(schema, value)
    assert found.encode(found.decode(value)) == value


def test_values_arrive_as_their_python_types():
    assert shape(bytes).decode("AAH/") == b"\x00\x01\xff"
    assert shape(Colour).decode(2) is Colour.BLUE
    assert shape(tuple[int, ...]).decode([1]) == (1,)
    assert shape(frozenset[int]).decode([1]) == frozenset({1})
    line = shape(Line).decode({"ends": [{"x": 1}, {"x": 2, "y": 3}]})
    assert line == Line((Point(1, 0.5), Point(2, 3)), [])


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, True),
        (int, 1.5),
        (float, True),
        (bool, 1),
        (str, None),
        (bytes, "not base64!"),
        (set[int], [1, 1]),
        (tuple[int, str], [1]),
        (Literal[1], True),
        (Colour, "green"),
        (Point, {"x": 1, "z": 2}),
        (Point, {"y": 2.0}),
        (Options, {"label": "x"}),
    ],
)
def test_another_value_is_refused(hint, value):
    with pytest.raises(Mismatch):
        shape(hint).decode(value)


def test_a_number_without_fraction_is_an_integer_as_the_schema_says():
    assert jsonschema_rs.is_valid({"type": "integer"}, 3.0)
    decoded = shape(int).decode(3.0)
    assert (decoded, type(decoded)) == (3, int)


def test_a_mismatch_names_the_place():
    with pytest.raises(Mismatch) as caught:
        shape(list[Line]).decode([{"ends": [{"x": 1}, {"x": "two"}]}])
    expected = "input[0].ends[1].x: expected an integer, got the string 'two'"
    assert caught.value.where("input") == expected


def test_a_union_blames_the_arm_that_was_meant():
    with pytest.raises(Mismatch) as caught:
        shape(Point | None).decode({"x": "one"})
    assert caught.value.where("input") == "input.x: expected an integer, got the string 'one'"


@pytest.mark.parametrize(
    ("hint", "good", "bad", "keyword"),
    [
        (Annotated[int, Field(ge=1)], 1, 0, "minimum"),
        (Annotated[int, Field(le=9)], 9, 10, "maximum"),
        (Annotated[float, Field(gt=0)], 0.1, 0, "exclusiveMinimum"),
        (Annotated[float, Field(lt=1)], 0.9, 1, "exclusiveMaximum"),
        (Annotated[int, Field(multiple_of=5)], 10, 11, "multipleOf"),
        (Annotated[str, Field(min_length=2)], "ab", "a", "minLength"),
        (Annotated[str, Field(max_length=2)], "ab", "abc", "maxLength"),
        (Annotated[str, Field(pattern="^[a-z]+$")], "ab", "A", "pattern"),
        (Annotated[list[int], Field(max_length=1)], [1], [1, 2], "maxItems"),
        (Annotated[dict[str, int], Field(min_length=1)], {"a": 1}, {}, "minProperties"),
    ],
)
def test_a_constraint_is_in_the_schema_and_is_checked(hint, good, bad, keyword):
    found = shape(hint)
    assert keyword in found.schema
    assert found.decode(good) == good
    assert not jsonschema_rs.is_valid(found.schema, bad)
    with pytest.raises(Mismatch):
        found.decode(bad)
    with pytest.raises(Mismatch):
        found.encode(bad)


def test_descriptions_and_examples_are_in_the_schema():
    hint = Annotated[str, "A name.", Field(examples=("Ada",))]
    assert shape(hint).schema == {"type": "string", "description": "A name.", "examples": ["Ada"]}


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (datetime, "take an ISO 8601 `str`"),
        (complex, "two `float`s"),
        (dict[int, str], "keys of a dict must be `str`"),
        (Tree, "contains itself"),
        (Literal[b"x"], "not a JSON scalar"),
        (Annotated[str, Field(ge=1)], "fits a number only"),
        (Annotated[int, Field(max_length=1)], "fit a string, an array or an object only"),
        (object(), "has no JSON form"),
        (type("Mine", (), {}), "has no JSON form"),
    ],
)
def test_a_type_without_a_json_form_is_refused_with_a_remedy(hint, words):
    with pytest.raises(SchemaError, match=words):
        shape(hint)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_are_refused_on_the_way_out(value):
    with pytest.raises(Mismatch, match="not a JSON number"):
        shape(float).encode(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "y", "depth", "label", "ends"]), inner, max_size=3)
    ),
    max_leaves=6,
)
HINTS = [hint for hint, _value, _schema in ROUND_TRIPS if hint is not bytes] + [Line]


@given(st.sampled_from(HINTS), JSON)
def test_the_reader_takes_exactly_what_the_schema_admits(hint, value):
    found = shape(hint)
    try:
        found.decode(value)
        taken = True
    except Mismatch:
        taken = False
    # Through text, as it comes to a cell: 1 and 1.0 differ there, True and 1 too.
    assert taken == jsonschema_rs.is_valid(found.schema, json.loads(json.dumps(value)))


@given(st.binary(max_size=50))
def test_bytes_cross_as_base64(data):
    assert shape(bytes).encode(data) == base64.b64encode(data).decode()
    assert shape(bytes).decode(shape(bytes).encode(data)) == data
