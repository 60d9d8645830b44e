"""Reading the imports of a component."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.artifact.component import component_imports

PREAMBLE = b"\0asm\x0d\0\x01\0"


def section(number: int, body: bytes) -> bytes:
    return bytes([number, len(body)]) + body


def name(text: str, kind: int = 0) -> bytes:
    return bytes([kind, len(text)]) + text.encode()


INSTANCE = b"\x05\x00"


def test_imports_are_listed_in_their_order_and_other_sections_stepped_over():
    body = b"\x02" + name("wasi:io/poll@0.2.6") + INSTANCE + name("a:b/c") + INSTANCE
    raw = PREAMBLE + section(0, b"custom") + section(10, body) + section(7, b"types")
    raw += section(10, b"\x01" + name("run") + b"\x01\x07")
    assert component_imports(raw) == ["wasi:io/poll@0.2.6", "a:b/c", "run"]


@pytest.mark.parametrize(
    "kind", [b"\x00\x11\x02", b"\x01\x02", b"\x02\x00\x02", b"\x03\x00\x02", b"\x03\x01",
             b"\x04\x02", b"\x05\x80\x01"]
)  # fmt: skip
def test_every_kind_of_import_is_stepped_over(kind):
    body = b"\x02" + name("first") + kind + name("second") + INSTANCE
    assert component_imports(PREAMBLE + section(10, body)) == ["first", "second"]


def test_a_component_without_imports_has_an_empty_list():
    assert component_imports(PREAMBLE) == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0asm\x01\0\0\0",  # a core module
        b"#!/bin/sh",
        PREAMBLE + b"\x0a",
        PREAMBLE + b"\x0a\x05\x01",
        PREAMBLE + section(10, b"\xff\xff\xff\xff\xff\xff"),
        PREAMBLE + section(10, b"\x01" + name("x") + b"\x09\x00"),
        PREAMBLE + section(10, b"\x01\x00\x7fshort"),
        PREAMBLE + section(10, b"\x01\x00\x01\xff\x05\x00"),
    ],
)
def test_what_can_not_be_read_gives_none(raw):
    assert component_imports(raw) is None


@given(st.binary(max_size=300))
def test_hostile_bytes_never_raise(raw):
    component_imports(PREAMBLE + raw)
