"""What the SDK's integration tests share: a tool's folder, made from a few lines."""

import pytest
from sdk_tools import write_tool


@pytest.fixture
def tool_folder(tmp_path):
    """`tool_folder(source, ["kv.get"])`: a project in a folder of its own."""

    def make(source, capabilities=()):
        return write_tool(tmp_path / "sample", source, capabilities=capabilities)

    return make
