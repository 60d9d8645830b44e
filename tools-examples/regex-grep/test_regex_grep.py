"""regex-grep on small texts; the ceiling on CPU time needs the cell."""

import pytest

pytest_plugins = ["toolcell_sdk.testing.plugin"]

TEXT = "alpha\nbeta\ngamma\ndelta\n"


def numbers(result: dict) -> list[int]:
    """The line numbers of the matches."""
    return [match["line"]["number"] for match in result["matches"]]


def test_matching_lines_with_their_spans(tool):
    result = tool.call("grep", pattern="a.?a", text="banana\nxyz\n")
    assert result == {
        "lines": 2,
        "total": 1,
        "matches": [
            {
                "line": {"number": 1, "text": "banana"},
                "spans": [[1, 4]],
                "before": [],
                "after": [],
            }
        ],
    }


def test_context_stops_at_the_ends(tool):
    result = tool.call("grep", pattern="alpha|gamma", text=TEXT, context=1)
    around = [
        ([line["text"] for line in match["before"]], [line["text"] for line in match["after"]])
        for match in result["matches"]
    ]
    assert around == [([], ["beta"]), (["beta"], ["delta"])]


def test_inverted(tool):
    assert numbers(tool.call("grep", pattern="ta$", text=TEXT, invert=True)) == [1, 3]


def test_case_can_be_ignored(tool):
    assert numbers(tool.call("grep", pattern="BETA", text=TEXT)) == []
    assert numbers(tool.call("grep", pattern="BETA", text=TEXT, ignore_case=True)) == [2]


def test_more_matches_are_counted_than_shown(tool):
    result = tool.call("grep", pattern="a", text=TEXT, max_matches=1)
    assert (result["total"], len(result["matches"])) == (4, 1)


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "*", "(?P<a>x)(?P<a>y)", "a{99999999999}"])
def test_a_malformed_pattern_is_named(tool, pattern):
    failed = tool.fails("grep", pattern=pattern, text="x")
    assert failed.status == 422
    assert "not a regular expression" in failed.message


def test_a_pattern_has_a_limit(tool):
    assert tool.fails("grep", pattern="a" * 501, text="x").status == 422


def test_a_catastrophic_pattern_is_ended_by_the_ceiling(tool):
    if not tool.in_cell:
        pytest.skip("only a cell has a ceiling on CPU time: `toolcell test --cell`")
    assert tool.fails("grep", pattern="(a+)+$", text="a" * 60 + "b").status == 408
    assert numbers(tool.call("grep", pattern="a", text="a")) == [1]
