"""The component's side: the WIT export, and the transport over the WIT imports.

Runs only inside a component, where componentize-py generates `wit_world`: the tool's world, which
holds the capabilities that `tool.toml` declares and no others. Loaded by the entry module that
`toolcell_sdk.build` writes. Standard library only.
"""

import importlib
import json
import linecache
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import wit_world.exports as exports  # type: ignore[import-not-found]
from componentize_py_types import Err  # type: ignore[import-not-found]
from wit_world.imports import types  # type: ignore[import-not-found]

from toolcell_sdk import transport
from toolcell_sdk.dispatch import Dispatcher
from toolcell_sdk.errors import CapabilityError, Fault
from toolcell_sdk.methods import registered

__all__ = ["Guest", "seal"]

SOURCE_ROOT = "/0"
"""Where componentize-py shows the tool's own source to the interpreter."""

MAX_KEPT_SOURCE_BYTES = 1024 * 1024
"""Source text that is kept in the snapshot, so that a traceback can quote its lines."""


def _interface(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"wit_world.imports.{name}")
    except ImportError:
        return None


# Resolved while the snapshot is taken: a component can't import later.
_kv, _http, _files, _images, _log = map(_interface, ("kv", "http", "files", "images", "log"))


def _fetch(http: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    headers = [http.Header(name, value) for name, value in arguments["headers"]]
    answer = http.fetch(http.Request(**{**arguments, "headers": headers}))
    return {
        "status": answer.status,
        "url": answer.url,
        "headers": [[header.name, header.value] for header in answer.headers],
        "body": answer.body,
    }


def _listing(files: Any, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": entry.name, "kind": entry.kind.name.lower(), "size": entry.size}
        for entry in files.list(arguments["path"])
    ]


def _resize(images: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    made = images.resize(**arguments)
    return {"data": made.data, "width": made.width, "height": made.height, "format": made.format}


def _emit(log: Any, arguments: dict[str, Any]) -> None:
    log.emit(log.Level[arguments["level"].upper()], arguments["message"])


_Way = Callable[[Any, dict[str, Any]], Any]
_WAYS: dict[str, tuple[ModuleType | None, str, _Way]] = {
    "kv.get": (_kv, "get", lambda kv, a: kv.get(a["key"])),
    "kv.set": (_kv, "set", lambda kv, a: kv.set(a["key"], a["value"])),
    "kv.delete": (_kv, "delete", lambda kv, a: kv.delete(a["key"])),
    "kv.list": (_kv, "list", lambda kv, a: kv.list(a["prefix"])),
    "http.fetch": (_http, "fetch", _fetch),
    "fs.readText": (_files, "read_text", lambda files, a: files.read_text(a["path"])),
    "fs.writeText": (_files, "write_text", lambda files, a: files.write_text(a["path"], a["text"])),
    "fs.readBytes": (_files, "read_bytes", lambda files, a: files.read_bytes(a["path"])),
    "fs.writeBytes": (
        _files,
        "write_bytes",
        lambda files, a: files.write_bytes(a["path"], a["data"]),
    ),
    "fs.list": (_files, "list", _listing),
    "fs.remove": (_files, "remove", lambda files, a: files.remove(a["path"])),
    "images.resize": (_images, "resize", _resize),
    "log.emit": (_log, "emit", _emit),
}


class WitTransport:
    """Capability calls over the component's imports."""

    def call(self, capability: str, arguments: dict[str, Any]) -> Any:
        interface, function, way = _WAYS[capability]
        if interface is None or not hasattr(interface, function):
            raise CapabilityError(
                403,
                f"{capability} is not in `capabilities` of tool.toml, so the component has no "
                "import for it; add it there and build again",
                capability,
            )
        try:
            return way(interface, arguments)
        except Err as error:
            fault = error.value
            raise CapabilityError(fault.status, fault.message, capability) from None


_dispatcher = Dispatcher(registered(), source_root=SOURCE_ROOT)


class Guest(exports.Guest):  # type: ignore[misc]
    """The world's export `guest`."""

    def invoke(self, method: str, input: str) -> str:  # noqa: A002 - the WIT's name
        """Runs one method. A fault goes out as the WIT record, never as a trap."""
        try:
            return _dispatcher.invoke(method, input)
        except Fault as fault:
            raise Err(types.Fault(fault.status, fault.message, fault.detail)) from None


def seal(description: str) -> None:
    """Ends the set-up, just before the snapshot: resolves the hints, and writes what was found.

    `description` is the file that gets the methods as JSON; the builder reads it. So schemas come
    from the component itself, and the author's module never runs outside a sandbox.
    """
    transport.install(WitTransport())
    methods = registered().describe()
    _keep_source()
    Path(description).write_text(json.dumps({"methods": methods}), encoding="utf-8")


def _keep_source() -> None:
    room = MAX_KEPT_SOURCE_BYTES
    for path in sorted(Path(SOURCE_ROOT).rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        room -= len(text)
        if room < 0:
            return
        # Without a date: `linecache` would look for the file, and drop it.
        linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
