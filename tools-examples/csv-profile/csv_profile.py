"""csv-profile: what is in the columns of a CSV.

Reads the text once, in blocks of rows; a column is kept as its distinct values and their counts, so
a value is parsed once however often it occurs.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Annotated, Literal

from column import Column, ColumnReport

from toolcell_sdk import Field, ToolError, method

BLOCK_ROWS = 2000
MAX_COLUMNS = 1000
MAX_FIELD_CHARACTERS = 1_000_000
DELIMITERS = ",;\t|"


@dataclass
class Profile:
    """The whole of it. `ragged_rows` have more or fewer fields than the header."""

    rows: int
    ragged_rows: int
    delimiter: str
    columns: list[ColumnReport]


@method
def profile(
    csv: Annotated[str, Field(description="The text of the file.", min_length=1)],
    delimiter: Literal["auto", ",", ";", "\t", "|"] = "auto",
    has_header: bool = True,
    top: Annotated[int, Field(description="Most frequent values to list.", ge=0, le=50)] = 5,
) -> Profile:
    """Profiles each column of a CSV."""
    chosen = _guess_delimiter(csv) if delimiter == "auto" else delimiter
    rows = _rows(csv, chosen)
    first = next(rows, None)
    if first is None:
        raise ToolError("the CSV has no rows", status=400)
    if len(first) > MAX_COLUMNS:
        raise ToolError(f"{len(first)} columns; the limit is {MAX_COLUMNS}", status=413)
    names = _names(first, has_header)
    columns = [Column(name) for name in names]
    count = ragged = 0
    while block := list(islice(rows, BLOCK_ROWS)):
        count += len(block)
        ragged += sum(len(row) != len(columns) for row in block)
        _add_block(columns, block)
    if not has_header:
        count += 1
        _add_block(columns, [first])
    return Profile(count, ragged, chosen, [column.report(top) for column in columns])


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), delimiter=delimiter)
    try:
        # An empty line is no row.
        yield from (row for row in reader if row)
    except csv.Error as error:
        raise ToolError(f"line {reader.line_num} is not valid CSV: {error}", status=400) from None


def _guess_delimiter(text: str) -> str:
    line = text.removeprefix("\ufeff").partition("\n")[0]
    unquoted = "".join(line.split('"')[::2])
    return max(DELIMITERS, key=unquoted.count)


def _names(first: list[str], has_header: bool) -> list[str]:
    if not has_header:
        return [f"column {number}" for number in range(1, len(first) + 1)]
    seen: Counter[str] = Counter()
    names = []
    for position, raw in enumerate(first, 1):
        name = raw.strip() or f"column {position}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def _add_block(columns: list[Column], block: list[list[str]]) -> None:
    values_by_column = list(zip_longest(*block, fillvalue=""))
    for column, values in zip(columns, values_by_column, strict=False):
        column.add(Counter(values))
    # Where every row of a block is short, the last columns have no value in it.
    for column in columns[len(values_by_column) :]:
        column.add(Counter({"": len(block)}))
