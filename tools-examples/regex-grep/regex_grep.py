"""regex-grep: lines that match."""

import re
from dataclasses import dataclass
from typing import Annotated

from toolcell_sdk import Field, ToolError, method

MAX_SHOWN_CHARACTERS = 500


@dataclass
class Line:
    """A line by number, from 1; cut to 500 characters."""

    number: int
    text: str


@dataclass
class Match:
    """A matching line. `spans` are [start, end) of each match in it, in characters."""

    line: Line
    spans: list[tuple[int, int]]
    before: list[Line]
    after: list[Line]


@dataclass
class Result:
    """`total` counts all matching lines; `matches` holds the first `max_matches` of them."""

    lines: int
    total: int
    matches: list[Match]


@method
def grep(
    pattern: Annotated[
        str, Field(description="A regular expression of Python's re.", max_length=500)
    ],
    text: str,
    ignore_case: bool = False,
    invert: bool = False,
    context: Annotated[int, Field(description="Lines around a match.", ge=0, le=10)] = 0,
    max_matches: Annotated[int, Field(ge=0, le=1000)] = 100,
) -> Result:
    """Finds the lines that match (or, inverted, those that don't)."""
    try:
        expression = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(f"not a regular expression: {error}", status=422) from None
    lines = text.splitlines()
    total = 0
    matches = []
    for index, line in enumerate(lines):
        if (expression.search(line) is not None) == invert:
            continue
        total += 1
        if len(matches) < max_matches:
            spans = [] if invert else [found.span() for found in expression.finditer(line)]
            before = _lines(lines, max(0, index - context), index)
            after = _lines(lines, index + 1, index + 1 + context)
            matches.append(Match(_line(lines, index), spans, before, after))
    return Result(len(lines), total, matches)


def _lines(lines: list[str], start: int, end: int) -> list[Line]:
    return [_line(lines, index) for index in range(start, min(end, len(lines)))]


def _line(lines: list[str], index: int) -> Line:
    return Line(index + 1, lines[index][:MAX_SHOWN_CHARACTERS])
