"""`files`: files under `/scratch`, gone when the invocation ends.

Capabilities: `fs.readText`, `fs.writeText`, `fs.readBytes`, `fs.writeBytes`, `fs.list`,
`fs.remove`.
"""

import builtins
from dataclasses import dataclass
from typing import Literal

from toolcell_sdk import transport
from toolcell_sdk.capabilities.arguments import from_base64, text, to_base64

__all__ = ["Entry", "list", "read_bytes", "read_text", "remove", "write_bytes", "write_text"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder. `size` is in bytes, 0 for a folder."""

    name: str
    kind: Literal["file", "directory"]
    size: int


def read_text(path: str) -> str:
    """The file as UTF-8 text. Raises `CapabilityError` 404 where there is none."""
    content: str = transport.call("fs.readText", {"path": text("fs.readText", "path", path)})
    return content


def write_text(path: str, content: str) -> None:
    """Writes the file, replacing it; makes the folders above it."""
    arguments = {
        "path": text("fs.writeText", "path", path),
        "text": text("fs.writeText", "text", content),
    }
    transport.call("fs.writeText", arguments)


def read_bytes(path: str) -> bytes:
    """The file as bytes. Raises `CapabilityError` 404 where there is none."""
    return from_base64(transport.call("fs.readBytes", {"path": text("fs.readBytes", "path", path)}))


def write_bytes(path: str, content: bytes) -> None:
    """Writes the file, replacing it; makes the folders above it."""
    arguments = {
        "path": text("fs.writeBytes", "path", path),
        "data": to_base64("fs.writeBytes", "data", content),
    }
    transport.call("fs.writeBytes", arguments)


def list(path: str = "/scratch") -> builtins.list[Entry]:  # noqa: A001 - the capability's name
    """What is in the folder, sorted by name."""
    entries = transport.call("fs.list", {"path": text("fs.list", "path", path)})
    return [Entry(entry["name"], entry["kind"], entry["size"]) for entry in entries]


def remove(path: str) -> None:
    """Removes a file, or a folder with all that is in it."""
    transport.call("fs.remove", {"path": text("fs.remove", "path", path)})
