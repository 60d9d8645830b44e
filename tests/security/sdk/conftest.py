"""A project of somebody who means harm."""

import pytest
from sdk_tools import write_tool


@pytest.fixture
def project(tmp_path):
    """`project(source, python_path=[…])`: a tool's folder."""

    def make(source="", **fields):
        return write_tool(tmp_path / "sample", source, **fields)

    return make
