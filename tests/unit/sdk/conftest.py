"""What the SDK's tests share: a tool's folder, made from a few lines."""

from pathlib import Path

import pytest

ID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def tool_folder(tmp_path):
    """`tool_folder(source, capabilities=[...])`: a project in a folder of its own."""

    def make(source: str = "", name: str = "sample", toml: str = "", **fields) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        values = {"id": ID, "name": name, "version": "0.1.0", "module": "sample", **fields}
        lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
        (folder / "tool.toml").write_text("[tool]\n" + "\n".join(lines) + "\n" + toml)
        (folder / "sample.py").write_text(source)
        return folder

    return make


def _toml(value) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
