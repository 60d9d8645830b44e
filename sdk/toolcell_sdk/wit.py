"""The WIT world of one tool: what every tool has, and the capabilities that it declares.

Owns the table from a capability's name to its WIT function. A function that a tool does not
declare is left out of its interface, so the component can't even name it: what a tool may touch is
in its binary, to the single function. Called by `build.py`.
"""

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["CAPABILITIES", "write_world"]

CAPABILITIES: dict[str, tuple[str, str]] = {
    "kv.get": ("kv", "get"),
    "kv.set": ("kv", "set"),
    "kv.delete": ("kv", "delete"),
    "kv.list": ("kv", "list"),
    "http.fetch": ("http", "fetch"),
    "fs.readText": ("files", "read-text"),
    "fs.writeText": ("files", "write-text"),
    "fs.readBytes": ("files", "read-bytes"),
    "fs.writeBytes": ("files", "write-bytes"),
    "fs.list": ("files", "list"),
    "fs.remove": ("files", "remove"),
    "images.resize": ("images", "resize"),
    "log.emit": ("log", "emit"),
}
"""Capability to (interface, function) of the package `toolcell:tool`."""

WORLD = "cell"
"""Name of the generated world. It never reaches the component."""

_INTERFACE = re.compile(r"interface ([a-z-]+) \{")
_FUNCTION = re.compile(r"\s+%?([a-z][a-z-]*): func\(.*;")
_PACKAGE = re.compile(r"^package (toolcell:tool)@([0-9.]+);", re.MULTILINE)


def package_text() -> str:
    """The WIT package as shipped: inside the wheel, or beside the package in a checkout."""
    here = Path(__file__).parent
    for folder in (here / "wit", here.parent / "wit"):
        if (folder / "toolcell.wit").is_file():
            return (folder / "toolcell.wit").read_text(encoding="utf-8")
    raise FileNotFoundError("toolcell.wit is missing from the installed toolcell_sdk")


def write_world(folder: Path, capabilities: Iterable[str]) -> None:
    """Writes the WIT folder for a tool that declares `capabilities`."""
    functions = {CAPABILITIES[name] for name in capabilities}
    package = package_text()
    match = _PACKAGE.search(package)
    assert match is not None, "toolcell.wit names its package"
    name, version = match.groups()
    interfaces = sorted({interface for interface, _function in functions})
    lines = [
        "package local:tool;",
        f"world {WORLD} {{",
        f"    include {name}/tool@{version};",
        *(f"    import {name}/{interface}@{version};" for interface in interfaces),
        "}",
    ]
    (folder / "deps").mkdir(parents=True)
    (folder / "deps" / "toolcell.wit").write_text(narrowed(package, functions), encoding="utf-8")
    (folder / "world.wit").write_text("\n".join(lines) + "\n", encoding="utf-8")


def narrowed(package: str, functions: set[tuple[str, str]]) -> str:
    """The package with only these functions in the capability interfaces."""
    known = set(CAPABILITIES.values())
    interface = ""
    kept: list[str] = []
    comments: list[str] = []
    for line in package.splitlines():
        if line.lstrip().startswith("///"):
            comments.append(line)
            continue
        if match := _INTERFACE.match(line):
            interface = match[1]
        match = _FUNCTION.match(line)
        function = (interface, match[1]) if match else None
        if function not in known or function in functions:
            kept += [*comments, line]
        comments = []
    return "\n".join(kept) + "\n"
