"""The test kit: a tool runs against a fake broker, natively or in its cell.

    def test_greets(tool):
        assert tool.call("greet", name="Ada") == "Hello, Ada!"

`toolcell test` gives tests the fixtures `tool` (a `ToolTest`) and `broker` (its `FakeBroker`).
Capabilities that `tool.toml` does not declare are refused, as in a cell. Nothing here sleeps.
"""

from toolcell_sdk.testing.broker import Call, FakeBroker
from toolcell_sdk.testing.runner import CellRun, CellRunner, PreparedCell
from toolcell_sdk.testing.session import run_tests
from toolcell_sdk.testing.tool import ToolFailed, ToolTest

__all__ = [
    "Call",
    "CellRun",
    "CellRunner",
    "FakeBroker",
    "PreparedCell",
    "ToolFailed",
    "ToolTest",
    "run_tests",
]
