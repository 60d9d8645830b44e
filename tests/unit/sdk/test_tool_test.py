"""The test kit runs a tool as a cell would: JSON in, JSON out, a fresh module, its own registry."""

import dataclasses
import sys

import pytest

from toolcell_sdk.errors import Fault, SchemaError
from toolcell_sdk.testing import CellRun, FakeBroker, ToolFailed, ToolTest
from toolcell_sdk.testing.runner import RUNNER_VARIABLE, runner_from_environment

SOURCE = """
from toolcell_sdk import kv, method

seen = []

@method
def echo(data: bytes, n: int = 0) -> list[int]:
    seen.append(n)
    return list(data) + seen

@method
def count(key: str) -> int:
    value = int(kv.get(key) or 0) + 1
    kv.set(key, str(value))
    return value

@method
def fail() -> None:
    raise ValueError("no")
"""


def test_calls_go_in_and_come_out_as_json(tool_folder):
    with ToolTest(tool_folder(SOURCE)) as tool:
        assert tool.call("echo", data=b"\x01\x02", n=7) == [1, 2, 7]
        assert tool.call_text("echo", '{"data": ""}') == "[7,0]"


def test_dataclasses_enums_and_sets_can_be_arguments(tool_folder):
    @dataclasses.dataclass
    class Point:
        x: int

    source = """
from toolcell_sdk import method
from typing import Any
@method
def same(value: Any) -> Any: return value
"""
    with ToolTest(tool_folder(source)) as tool:
        assert tool.call("same", value=[Point(1), {2, 1}]) == [{"x": 1}, [1, 2]]
        with pytest.raises(TypeError, match="object has no JSON form"):
            tool.call("same", value=object())


def test_the_broker_grants_what_is_declared(tool_folder):
    with ToolTest(tool_folder(SOURCE, capabilities=["kv.get", "kv.set"])) as tool:
        assert [tool.call("count", key="a") for _ in range(2)] == [1, 2]
        assert tool.broker.kv.values == {"a": "2"}
    with ToolTest(tool_folder(SOURCE, capabilities=["kv.get"])) as tool:
        assert tool.fails("count", key="a").status == 403


def test_a_fault_is_an_assertion_error_with_the_authors_traceback(tool_folder):
    with ToolTest(tool_folder(SOURCE)) as tool:
        with pytest.raises(ToolFailed, match="fail failed with 500: ValueError: no") as caught:
            tool.call("fail")
        assert 'File "sample.py", line 19, in fail' in caught.value.detail
        assert tool.fails("fail").message == "ValueError: no"
        with pytest.raises(AssertionError, match=r"echo was to fail and returned \[0\]"):
            tool.fails("echo", data=b"")


def test_each_tool_test_has_a_fresh_module_and_leaves_none(tool_folder):
    folder = tool_folder(SOURCE)
    path = list(sys.path)
    for _ in range(2):
        with ToolTest(folder) as tool:
            assert tool.call("echo", data=b"", n=1) == [1]
    assert "sample" not in sys.modules
    assert sys.path == path


def test_two_tools_may_have_modules_of_one_name(tool_folder):
    one = tool_folder("from toolcell_sdk import method\n@method\ndef a() -> int: return 1\n", "one")
    two = tool_folder("from toolcell_sdk import method\n@method\ndef a() -> int: return 2\n", "two")
    with ToolTest(one) as first, ToolTest(two) as second:
        assert (first.call("a"), second.call("a")) == (1, 2)


def test_vendored_modules_are_found(tool_folder):
    source = """
from toolcell_sdk import method
from dependency import VALUE
@method
def value() -> int: return VALUE
"""
    folder = tool_folder(source, python_path=["vendor"])
    (folder / "vendor").mkdir()
    (folder / "vendor" / "dependency.py").write_text("VALUE = 5\n")
    with ToolTest(folder) as tool:
        assert tool.call("value") == 5


def test_a_type_without_schema_is_found_at_the_first_call(tool_folder):
    source = "from toolcell_sdk import method\n@method\ndef a(x: complex) -> None: ...\n"
    with ToolTest(tool_folder(source)) as tool, pytest.raises(SchemaError, match="`complex`"):
        tool.call("a")


class FakeCell:
    """A prepared cell that reports what it is told to."""

    def __init__(self, run: CellRun) -> None:
        self.run = run
        self.calls = []

    def invoke(self, method, text, transport):
        self.calls.append((method, text, transport))
        return self.run

    def close(self) -> None: ...


def test_in_a_cell_fuel_and_memory_are_asserted(tool_folder):
    cell = FakeCell(CellRun(output="1", fuel=100, memory_peak_bytes=2000))
    broker = FakeBroker()
    tool = ToolTest(tool_folder(SOURCE), broker, cell=cell)
    with pytest.raises(AssertionError, match="nothing was called yet"):
        tool.assert_fuel_below(1)
    assert tool.call("anything", a=1) == 1
    assert cell.calls == [("anything", '{"a": 1}', broker)]
    tool.assert_fuel_below(101)
    tool.assert_memory_below(2001)
    with pytest.raises(AssertionError, match="used 100 fuel; it was to stay below 100"):
        tool.assert_fuel_below(100)
    with pytest.raises(AssertionError, match="used 2000 bytes; it was to stay below 2000"):
        tool.assert_memory_below(2000)


def test_a_fault_of_the_cell_is_a_failed_tool(tool_folder):
    cell = FakeCell(CellRun(fault=Fault(408, "limit exceeded: cpu_time_ms")))
    assert ToolTest(tool_folder(), cell=cell).fails("x").status == 408


def test_natively_fuel_and_memory_skip_the_test(tool_folder):
    with ToolTest(tool_folder(SOURCE)) as tool:
        tool.call("echo", data=b"")
        for check in (tool.assert_fuel_below, tool.assert_memory_below):
            with pytest.raises(pytest.skip.Exception, match="toolcell test --cell"):
                check(1)


def test_the_environment_names_the_runner(monkeypatch):
    monkeypatch.setenv(RUNNER_VARIABLE, "")
    assert runner_from_environment() is None
    monkeypatch.setenv(RUNNER_VARIABLE, "builtins:dict")
    assert runner_from_environment() == {}
    monkeypatch.setenv(RUNNER_VARIABLE, "builtins")
    with pytest.raises(ValueError, match=r"must be `package\.module:callable`"):
        runner_from_environment()
