"""Tools for tests of the SDK: a project's folder, made from a few lines."""

from pathlib import Path
from typing import Any

ID = "11111111-2222-4333-8444-555555555555"


def write_tool(folder: Path, source: str = "", toml: str = "", **fields: Any) -> Path:
    """A project in `folder` whose module `sample` is `source`; `fields` go to `[tool]`."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"id": ID, "name": folder.name, "version": "0.1.0", "module": "sample", **fields}
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    (folder / "tool.toml").write_text("[tool]\n" + "\n".join(lines) + "\n" + toml)
    (folder / "sample.py").write_text(source)
    return folder


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    return f"[{', '.join(_toml(item) for item in value)}]"
