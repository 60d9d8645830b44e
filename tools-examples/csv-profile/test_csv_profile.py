"""csv-profile on small tables with known answers, and on a real file."""

import csv
import statistics
from pathlib import Path

import pytest

from toolcell_sdk.testing import ToolTest

pytest_plugins = ["toolcell_sdk.testing.plugin"]

BIRD_STRIKES = Path(__file__).parent.parent / "data" / "bird-strikes.csv"


def columns(tool: ToolTest, text: str, **arguments: object) -> dict:
    """The columns of the profile of `text`, by name."""
    result = tool.call("profile", csv=text, **arguments)
    return {column["name"]: column for column in result["columns"]}


def test_a_real_file_of_10_000_rows(tool):
    with BIRD_STRIKES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    result = tool.call("profile", csv=BIRD_STRIKES.read_text(encoding="utf-8"))
    by_name = {column["name"]: column for column in result["columns"]}
    assert result["rows"] == len(rows) == 10_000
    assert result["ragged_rows"] == 0
    assert len(by_name) == 14
    speeds = [float(row["Speed IAS in knots"]) for row in rows if row["Speed IAS in knots"]]
    speed = by_name["Speed IAS in knots"]
    assert speed["type"] == "integer"
    assert speed["missing"] == 10_000 - len(speeds) == 2836
    assert speed["numbers"]["mean"] == pytest.approx(statistics.fmean(speeds))
    assert speed["numbers"]["stddev"] == pytest.approx(statistics.pstdev(speeds))
    assert speed["numbers"]["quantiles"]["p50"] == statistics.median(speeds)
    assert by_name["Flight Date"]["type"] == "date"
    assert by_name["Flight Date"]["earliest"] == "1990-01-08"
    damage = by_name["Effect Amount of damage"]
    assert damage["top"][0] == {"value": "None", "count": 8939}
    assert damage["missing"] == 0


def test_a_real_file_stays_within_the_default_memory(tool):
    tool.call("profile", csv=BIRD_STRIKES.read_text(encoding="utf-8"))
    tool.assert_memory_below(96 * 1024 * 1024)


def test_quantiles_are_those_of_the_standard_library(tool):
    values = [1, 2, 2, 3, 5, 8, 13, 21, 34.5]
    text = "x\n" + "\n".join(map(str, values))
    found = columns(tool, text)["x"]["numbers"]["quantiles"]
    expected = statistics.quantiles(values, n=20, method="inclusive")
    assert found["p05"] == pytest.approx(expected[0])
    assert found["p25"] == pytest.approx(expected[4])
    assert found["p95"] == pytest.approx(expected[18])


def test_types_are_told_apart(tool):
    text = (
        "int,num,bool,date,zip,mixed,none\n"
        "1,1.5,true,2024-02-29,00501,1,\n"
        "-2,2,false,2023-01-01,90210,x,NA\n"
    )
    kinds = {name: column["type"] for name, column in columns(tool, text).items()}
    assert kinds == {
        "int": "integer",
        "num": "number",
        "bool": "boolean",
        "date": "date",
        "zip": "text",
        "mixed": "text",
        "none": "empty",
    }


def test_a_date_that_does_not_exist_is_text(tool):
    assert columns(tool, "d\n2023-02-29\n")["d"]["type"] == "text"


def test_large_close_numbers_keep_their_deviation(tool):
    text = "x\n" + "\n".join(str(10**9 + i) for i in (1, 2, 3))
    assert columns(tool, text)["x"]["numbers"]["stddev"] == pytest.approx(0.816496580927726)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tool, delimiter):
    text = delimiter.join(["a", '"b, c"', "d"]) + "\n" + delimiter.join(["1", "2", "3"])
    result = tool.call("profile", csv=text)
    assert result["delimiter"] == delimiter
    assert [column["name"] for column in result["columns"]] == ["a", "b, c", "d"]


def test_ragged_rows_are_counted_and_short_ones_filled(tool):
    result = tool.call("profile", csv="a,b\n1\n1,2,3\n4,5\n")
    assert result["ragged_rows"] == 2
    assert result["columns"][1]["missing"] == 1


def test_a_block_of_short_rows_leaves_the_last_column_empty(tool):
    assert columns(tool, "a,b\n1\n2\n")["b"]["missing"] == 2


def test_without_a_header_columns_are_numbered_and_the_first_row_counts(tool):
    result = tool.call("profile", csv="1,2\n3,4\n", has_header=False)
    assert result["rows"] == 2
    assert [column["name"] for column in result["columns"]] == ["column 1", "column 2"]
    assert result["columns"][0]["numbers"]["minimum"] == 1


def test_names_that_occur_twice_are_numbered(tool):
    assert list(columns(tool, "a,a,\n1,2,3\n")) == ["a", "a (2)", "column 3"]


def test_a_byte_order_mark_is_no_part_of_a_name(tool):
    assert list(columns(tool, "\ufeffa,b\n1,2\n")) == ["a", "b"]


def test_top_values_are_in_one_order(tool):
    found = columns(tool, "x\nb\na\nc\nb\na\n", top=2)["x"]["top"]
    assert found == [{"value": "a", "count": 2}, {"value": "b", "count": 2}]


def test_a_header_alone_has_no_rows(tool):
    result = tool.call("profile", csv="a,b\n")
    assert result["rows"] == 0
    assert [column["type"] for column in result["columns"]] == ["empty", "empty"]


def test_empty_text_is_refused(tool):
    assert tool.fails("profile", csv="").status == 422
    assert tool.fails("profile", csv="\n\n").status == 400


def test_too_many_columns_are_refused_with_the_limit(tool):
    failed = tool.fails("profile", csv=",".join(map(str, range(1001))) + "\n")
    assert (failed.status, "1000" in failed.message) == (413, True)
