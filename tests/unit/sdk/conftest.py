"""What the SDK's tests share: a tool's folder, made from a few lines."""

import pytest
from sdk_tools import write_tool


@pytest.fixture
def tool_folder(tmp_path):
    """`tool_folder(source, capabilities=[...])`: a project in a folder of its own."""

    def make(source="", name="sample", toml="", **fields):
        return write_tool(tmp_path / name, source, toml, **fields)

    return make
