"""Lowering and lifting: what goes in comes out, and nothing is copied beyond the budget."""

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell_wasi.engine import Err, ValueTooLarge, capi
from toolcell_wasi.engine.values import MAX_VALUES, Lifter
from toolcell_wasi.engine.wit import (
    BOOL,
    BYTES,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Enumeration,
    ListOf,
    Option,
    Record,
    Result,
)

NO_CONTEXT = 0


def through(kind, value, max_bytes=1 << 20):
    """Lowers `value`, lifts it again and frees it."""
    raw = kind.lower(value, NO_CONTEXT)
    buffer = ctypes.create_string_buffer(raw, len(raw))
    try:
        return Lifter(NO_CONTEXT, max_bytes).one(ctypes.addressof(buffer))
    finally:
        capi.value_delete(ctypes.addressof(buffer))


@given(st.text())
def test_a_string_comes_back_as_it_was(text):
    assert through(STRING, text) == text.encode("utf-8", "replace").decode()


@given(st.binary(min_size=1))
def test_bytes_come_back_as_they_were(data):
    assert through(BYTES, data) == data


@pytest.mark.parametrize(("kind", "bits"), [(BOOL, 1), (U8, 8), (U16, 16), (U32, 32), (U64, 64)])
def test_a_number_keeps_its_bounds(kind, bits):
    assert through(kind, 0) == 0
    assert through(kind, 2**bits - 1) == 2**bits - 1
    with pytest.raises(ValueError, match=kind.text):
        kind.lower(2**bits, NO_CONTEXT)


@given(st.lists(st.text(), min_size=1, max_size=20), st.none() | st.integers(0, 2**32 - 1))
def test_nested_types_come_back_as_they_were(names, number):
    kind = Record({"names": ListOf(STRING), "number": Option(U32)})
    value = {"names": names, "number": number}
    assert through(Result(kind, STRING), value) == {
        "names": [name.encode("utf-8", "replace").decode() for name in names],
        "number": number,
    }


def test_the_error_case_of_a_result_is_an_err():
    assert through(Result(U32, STRING), Err("no")) == Err("no")
    assert through(Result(), Err()) == Err(None)


def test_an_enum_refuses_a_case_that_it_does_not_have():
    with pytest.raises(ValueError, match="warning"):
        Enumeration(("debug", "info")).lower("warning", NO_CONTEXT)


def test_a_lone_surrogate_does_not_reach_the_guest():
    assert through(STRING, "a\ud800b") == "a?b"


@pytest.mark.parametrize("kind", [STRING, BYTES])
def test_a_value_over_the_budget_is_refused_before_it_is_copied(kind):
    value = "x" * 1001 if kind is STRING else b"x" * 1001
    with pytest.raises(ValueTooLarge) as refused:
        through(kind, value, max_bytes=1000)
    assert (refused.value.allowed, refused.value.used) == (1000, 1001)


def test_the_budget_is_for_all_parts_together():
    with pytest.raises(ValueTooLarge):
        through(ListOf(STRING), ["x" * 400] * 3, max_bytes=1000)


def test_a_list_of_too_many_values_is_refused():
    with pytest.raises(ValueTooLarge, match="values"):
        through(ListOf(U32), [1] * (MAX_VALUES + 1))
