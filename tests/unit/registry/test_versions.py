"""Versions and ranges."""

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.errors import ConfigError
from toolcell.registry.versions import parse_range, parse_version

IN_ORDER = """
0.0.3 0.0.4 0.2.3 0.2.9 0.3.0
1.0.0-a1 1.0.0-a2 1.0.0-a10 1.0.0-b1 1.0.0-rc1 1.0.0
1.2.0-rc1 1.2.0 1.2.3 1.2.10 1.3.0-a1 1.3.0 2.0.0-b1 2.0.0
""".split()  # noqa: SIM905


def test_versions_are_ordered_by_figures_then_stage():
    shuffled = random.Random(7).sample(IN_ORDER, len(IN_ORDER))
    assert sorted(shuffled, key=parse_version) == IN_ORDER


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        ("1.2.3", "1.2.3"),
        ("=1.2.3", "1.2.3"),
        ("==1.2.3", "1.2.3"),
        ("v1.2.3", "1.2.3"),
        ("1.2", "1.2.0 1.2.3 1.2.10"),
        ("1.2.x", "1.2.0 1.2.3 1.2.10"),
        ("1.2.*", "1.2.0 1.2.3 1.2.10"),
        ("1", "1.0.0 1.2.0 1.2.3 1.2.10 1.3.0"),
        ("^1.2", "1.2.0 1.2.3 1.2.10 1.3.0"),
        ("^1.2.3", "1.2.3 1.2.10 1.3.0"),
        ("^0.2.3", "0.2.3 0.2.9"),
        ("^0.0.3", "0.0.3"),
        ("^0.0", "0.0.3 0.0.4"),
        ("^0", "0.0.3 0.0.4 0.2.3 0.2.9 0.3.0"),
        ("~1.2", "1.2.0 1.2.3 1.2.10"),
        ("~1.2.3", "1.2.3 1.2.10"),
        ("~1", "1.0.0 1.2.0 1.2.3 1.2.10 1.3.0"),
        (">=1.2.3,<2", "1.2.3 1.2.10 1.3.0"),
        (">= 1.2.3 , < 2", "1.2.3 1.2.10 1.3.0"),
        (">1.2", "1.3.0 2.0.0"),
        (">1.2.3 <2", "1.2.10 1.3.0"),
        ("<=1.2 >=1", "1.0.0 1.2.0 1.2.3 1.2.10"),
        ("<=1.2.3 >=1.2", "1.2.0 1.2.3"),
        (">=1 !=1.2 <2", "1.0.0 1.3.0"),
        (">=1 !=1.2.3 <1.3", "1.0.0 1.2.0 1.2.10"),
        ("1.2.0-rc1", "1.2.0-rc1"),
        ("^1.2.0-rc1", "1.2.0-rc1 1.2.0 1.2.3 1.2.10 1.3.0"),
        (">=1.0.0-a2 <1.0.0", "1.0.0-a2 1.0.0-a10 1.0.0-b1 1.0.0-rc1"),
        ("<2.0.0 >=1.3.0", "1.3.0"),
        ("9", ""),
    ],
)
def test_a_range_admits(text, admitted):
    wanted = parse_range(text)
    assert [v for v in IN_ORDER if wanted.admits(parse_version(v))] == admitted.split()


@pytest.mark.parametrize("text", ["", "*", "x", "  "])
def test_no_range_admits_every_release_and_no_prerelease(text):
    wanted = parse_range(text)
    assert [v for v in IN_ORDER if wanted.admits(parse_version(v))] == [
        v for v in IN_ORDER if "-" not in v
    ]


@pytest.mark.parametrize(
    "text",
    ["1.2.3.4", "^", ">=", "abc", "1..2", ",", "1,,2", "1.2.3-dev", "1.2.3x", "||", "1 || 2",
     "1 - 2", "1.2.3\n\x00", "^^1", "1.2.3-", "-1", "1" * 10, "\u0661.0.0", ">=1,<2" * 50],
)  # fmt: skip
def test_what_is_no_range_is_an_error_that_shows_how_to_write_one(text):
    with pytest.raises(ConfigError) as caught:
        parse_range(text)
    assert caught.value.remedy
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("text", ["", "1", "1.2", "1.2.3.4", "v1.2.3", "1.2.3-dev1", "1.2.3\n"])
def test_what_is_no_version_is_an_error(text):
    with pytest.raises(ConfigError):
        parse_version(text)


@given(st.text(max_size=40))
def test_any_text_is_a_range_or_a_clear_error(text):
    with contextlib.suppress(ConfigError):
        parse_range(text)


FIGURES = st.tuples(*[st.integers(0, 30)] * 3)


@given(FIGURES, FIGURES)
def test_caret_and_tilde_agree_with_their_definition(base, other):
    text = ".".join(map(str, base))
    version = parse_version(".".join(map(str, other)))
    leading = next((i for i, figure in enumerate(base) if figure), 2)
    caret = other >= base and other[: leading + 1] == base[: leading + 1]
    assert parse_range(f"^{text}").admits(version) is caret
    tilde = other >= base and other[:2] == base[:2]
    assert parse_range(f"~{text}").admits(version) is tilde
