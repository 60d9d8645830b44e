"""The same source in its cell: capabilities over WIT, faults instead of traps, fresh randomness."""

import base64
import io
from contextlib import closing

import pytest
from PIL import Image
from sdk_tools import write_tool

from toolcell.cell_runner import Runner
from toolcell_sdk.testing import FakeBroker, ToolTest
from toolcell_sdk.wit import CAPABILITIES

pytestmark = pytest.mark.slow

SOURCE = """
import random, secrets, sys, uuid
from dataclasses import dataclass
from toolcell_sdk import CapabilityError, files, http, images, kv, log, method

@dataclass
class Row:
    name: str
    values: tuple[int, ...]

@method
def echo(row: Row, data: bytes = b"") -> list[Row | bytes]:
    return [row, data]

@method
def everything(picture: bytes) -> list[str]:
    kv.set("a", "ä")
    out = [str(kv.get("a")), str(kv.get("b")), ",".join(kv.list("a")), str(kv.delete("a"))]
    files.write_text("/scratch/t", "text")
    files.write_bytes("/scratch/b", bytes(range(256)))
    out += [files.read_text("/scratch/t"), files.read_bytes("/scratch/b").hex()]
    out += [f"{entry.name}:{entry.kind}:{entry.size}" for entry in files.list()]
    files.remove("/scratch/t")
    answer = http.fetch("https://a/", headers={"X": "y"}, body=b"\\xff", timeout_ms=100)
    out += [str(answer.status), answer.header("z"), answer.body.hex()]
    small = images.resize(picture, 4, 4)
    out += [f"{small.width}x{small.height}"]
    log.info("done")
    return out

@method
def refused() -> str:
    try:
        http.fetch("https://elsewhere/")
    except CapabilityError as error:
        return f"{error.status} {error.capability}"

@method
def refused_and_let_through() -> None:
    http.fetch("https://elsewhere/")

@method
def chance() -> list[str]:
    return [str(random.random()), str(uuid.uuid4()), secrets.token_hex(8), str(random.gauss())]

@method
def raises() -> None:
    def inner():
        raise ValueError("the author's own words")
    inner()

@method
def leaves() -> None:
    sys.exit(3)

@method
def recurses(n: int = 0) -> int:
    return recurses(n + 1)

@method
def hogs() -> int:
    held = []
    while True:
        held.append(bytearray(1 << 20))

@method
def returns_nonsense() -> int:
    return "nonsense"

@method
def prints() -> None:
    print("out")
    print("err", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    """The tool above, built once."""
    root = tmp_path_factory.mktemp("tool")
    folder = write_tool(root / "sample", SOURCE, capabilities=CAPABILITIES)
    with closing(Runner().prepare(folder)) as prepared:
        yield folder, prepared


@pytest.fixture(params=["native", "cell"])
def tool(request, cell):
    """The tool, natively and in its cell: what a test says holds in both."""
    folder, prepared = cell
    with ToolTest(folder, FakeBroker(), cell=prepared if request.param == "cell" else None) as it:
        yield it


def test_structured_values_go_in_and_come_out(tool):
    row = {"name": "ä", "values": [1, 2]}
    assert tool.call("echo", row=row, data=b"\xff\x00") == [row, "/wA="]
    failed = tool.fails("echo", row={"name": "x", "values": ["y"]})
    assert failed.status == 422


def test_every_capability_works(tool):
    picture = io.BytesIO()
    Image.new("RGB", (8, 4)).save(picture, "PNG")
    tool.broker.http.respond("https://a/", b"\xfe", status=201, headers={"Z": "z"})
    assert tool.call("everything", picture=picture.getvalue()) == [
        *("ä", "None", "a", "True"),
        *("text", bytes(range(256)).hex()),
        *("b:file:256", "t:file:4"),
        *("201", "z", "fe"),
        "4x2",
    ]
    assert {call.capability for call in tool.broker.calls()} == set(CAPABILITIES)
    (fetched,) = tool.broker.calls("http.fetch")
    assert (fetched.arguments["timeout_ms"], fetched.arguments["credential"]) == (100, None)
    assert base64.b64decode(fetched.arguments["body"]) == b"\xff"
    assert [list(pair) for pair in fetched.arguments["headers"]] == [["X", "y"]]
    assert tool.broker.log.lines == [("info", "done")]


def test_a_refusal_is_an_exception_that_a_tool_may_catch(tool):
    assert tool.call("refused") == "403 http.fetch"


def test_a_refusal_that_is_let_through_keeps_its_status_and_says_where(tool):
    failed = tool.fails("refused_and_let_through")
    assert failed.status == 403
    assert "in refused_and_let_through" in failed.detail


def test_chance_is_not_baked_into_the_component(tool):
    first, second = tool.call("chance"), tool.call("chance")
    assert len({*first, *second}) == 8


def test_an_exception_is_a_fault_with_the_authors_own_lines(tool):
    failed = tool.fails("raises")
    assert (failed.status, failed.message) == (500, "ValueError: the author's own words")
    assert 'File "sample.py"' in failed.detail
    assert 'raise ValueError("the author\'s own words")' in failed.detail
    assert "toolcell_sdk" not in failed.detail


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("leaves", "the tool called sys.exit(3)"),
        ("recurses", "RecursionError: maximum recursion depth exceeded"),
        ("returns_nonsense", "expected an integer, got the string 'nonsense'"),
    ],
)
def test_what_would_end_a_process_is_a_fault(tool, method, message):
    failed = tool.fails(method)
    assert failed.status == 500
    assert message in failed.message


def test_a_tool_that_takes_all_memory_ends_and_the_next_call_is_well(cell):
    folder, prepared = cell
    with ToolTest(folder, FakeBroker(), cell=prepared) as tool:
        assert tool.fails("hogs").status == 500
        assert tool.last.memory_peak_bytes <= 128 * 1024 * 1024
        assert tool.call("echo", row={"name": "x", "values": []})[0]["name"] == "x"


def test_what_is_printed_is_kept_apart(cell):
    _folder, prepared = cell
    run = prepared.invoke("prints", "{}", FakeBroker())
    assert (run.stdout, run.stderr) == ("out\n", "err\n")
