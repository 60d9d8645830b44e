"""One column: counts of distinct values, and what follows from them."""

import math
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest

MAX_DISTINCT = 100_000
MAX_SHOWN_CHARACTERS = 200
QUANTILES = {"p05": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}

MISSING = frozenset({"", "NA", "N/A", "n/a", "NULL", "null", "NaN", "nan"})
BOOLEANS = frozenset({"true", "false", "True", "False", "TRUE", "FALSE", "yes", "no", "Yes", "No"})
# A leading zero makes a code, not a number: a ZIP such as 00501 is text.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]{5,15}(Z|[+-][0-9]{2}:?[0-9]{2})?)?")


@dataclass
class ValueCount:
    """A value, cut to 200 characters, and how often it occurs."""

    value: str
    count: int


@dataclass
class Numbers:
    """`stddev` is the population's. `quantiles` is null where not every value was kept."""

    minimum: float
    maximum: float
    mean: float
    stddev: float
    quantiles: dict[str, float] | None


@dataclass
class ColumnReport:
    """What a column holds. `type` is what all its values are that are not missing."""

    name: str
    type: str
    count: int
    missing: int
    distinct: int
    distinct_is_exact: bool
    top: list[ValueCount]
    numbers: Numbers | None = None
    earliest: str | None = None
    latest: str | None = None
    shortest: int | None = None
    longest: int | None = None


class Column:
    """Collects blocks of counts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self.overflow = 0
        self._kinds: dict[str, int] = {}
        self._total = 0.0
        self._squares = 0.0
        self._numbers = 0
        self._low = math.inf
        self._high = -math.inf

    def add(self, block: Counter[str]) -> None:
        """Adds the counts of one block of rows."""
        known = self.counts
        for value, count in block.items():
            if value not in known:
                if len(known) >= MAX_DISTINCT:
                    self.overflow += count
                    self._account(value, count)
                    continue
                known[value] = 0
            known[value] += count

    def report(self, top: int) -> ColumnReport:
        """The column's statistics, with its `top` most frequent values."""
        present = {value: n for value, n in self.counts.items() if value.strip() not in MISSING}
        for value, count in present.items():
            self._account(value, count)
        kept = sum(present.values())
        # Most frequent first, then by value: one order for one input.
        common = nlargest(top, sorted(present.items()), key=lambda item: item[1])
        kind = self._kind()
        report = ColumnReport(
            name=self.name,
            type=kind,
            count=kept + self.overflow,
            missing=sum(self.counts.values()) - kept,
            distinct=len(present),
            distinct_is_exact=not self.overflow,
            top=[ValueCount(value[:MAX_SHOWN_CHARACTERS], n) for value, n in common],
        )
        if kind in {"integer", "number"}:
            report.numbers = self._summary(present)
        elif kind == "date":
            report.earliest = min(present)
            report.latest = max(present)
        elif kind == "text":
            report.shortest = min(map(len, present))
            report.longest = max(map(len, present))
        return report

    def _account(self, value: str, count: int) -> None:
        kind, number = _parse(value.strip())
        self._kinds[kind] = self._kinds.get(kind, 0) + count
        if number is not None:
            # Shifted by the first number: the squares of large, close figures would cancel out.
            if not self._numbers:
                self._shift = number
            delta = number - self._shift
            self._numbers += count
            self._total += delta * count
            self._squares += delta * delta * count
            self._low = min(self._low, number)
            self._high = max(self._high, number)

    def _kind(self) -> str:
        kinds = set(self._kinds)
        if not kinds:
            return "empty"
        if len(kinds) == 1:
            return kinds.pop()
        return "number" if kinds == {"integer", "number"} else "text"

    def _summary(self, present: dict[str, int]) -> Numbers:
        mean_delta = self._total / self._numbers
        variance = max(0.0, self._squares / self._numbers - mean_delta * mean_delta)
        return Numbers(
            minimum=self._low,
            maximum=self._high,
            mean=self._shift + mean_delta,
            stddev=math.sqrt(variance),
            quantiles=None if self.overflow else _quantiles(present, self._numbers),
        )


def _parse(value: str) -> tuple[str, float | None]:
    if _INTEGER.fullmatch(value):
        return "integer", float(value)
    if _NUMBER.fullmatch(value):
        number = float(value)
        return ("number", number) if math.isfinite(number) else ("text", None)
    if value in BOOLEANS:
        return "boolean", None
    if _DATE.fullmatch(value) and _is_date(value):
        return "date", None
    return "text", None


def _is_date(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _quantiles(present: dict[str, int], total: int) -> dict[str, float]:
    """By linear interpolation between the two values around each rank (R-7)."""
    ordered = sorted((float(value), count) for value, count in present.items())
    ranks = {name: fraction * (total - 1) for name, fraction in QUANTILES.items()}
    return {
        name: _at(ordered, int(rank)) * (1 - rank % 1) + _at(ordered, math.ceil(rank)) * (rank % 1)
        for name, rank in ranks.items()
    }


def _at(ordered: list[tuple[float, int]], position: int) -> float:
    for value, count in ordered:
        position -= count
        if position < 0:
            return value
    return ordered[-1][0]
