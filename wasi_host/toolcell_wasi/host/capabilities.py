"""toolcell:tool: the typed capability interfaces, each function a call of the broker.

Owns the translation between WIT records and the broker's parameters and results, and nothing of
policy: whether a call is granted, how often and how large, is the broker's to say. A refusal goes
back to the guest as a `fault` record; what ends the run (deadline, cancellation) passes through.
Source: `sdk/wit/toolcell.wit`.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcell.broker.interface import FileEntry, HttpResponse, Image
from toolcell.errors import CapabilityFault
from toolcell_wasi.cell import Cell
from toolcell_wasi.engine import Err, HostFunction
from toolcell_wasi.engine.wit import (
    BOOL,
    STRING,
    U16,
    U32,
    U64,
    Enumeration,
    ListOf,
    Option,
    Record,
    Result,
    WitType,
)

PACKAGE = "toolcell:tool"
PACKAGE_VERSION = "0.1.0"

FAULT = Record({"status": U16, "message": STRING, "detail": STRING})
_HEADERS = ListOf(Record({"name": STRING, "value": STRING}))
_HTTP_REQUEST = Record(
    {
        "method": STRING,
        "url": STRING,
        "headers": _HEADERS,
        "body": STRING,
        "credential": Option(STRING),
        "timeout-ms": Option(U32),
    }
)
_HTTP_RESPONSE = Record({"status": U16, "url": STRING, "headers": _HEADERS, "body": STRING})
_ENTRY = Record({"name": STRING, "kind": Enumeration(("file", "directory")), "size": U64})
_IMAGE = Record({"data": STRING, "width": U32, "height": U32, "format": STRING})
_LEVEL = Enumeration(("debug", "info", "warning", "error"))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _headers(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs]


def _http_params(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "method": request["method"],
        "url": request["url"],
        "headers": [(header["name"], header["value"]) for header in request["headers"]],
        "body": request["body"],
        "credential": request["credential"],
        "timeout_ms": request["timeout-ms"],
    }


def _http_response(response: HttpResponse) -> dict[str, Any]:
    return {
        "status": response.status,
        "url": response.url,
        "headers": _headers(response.headers),
        "body": _base64(response.body),
    }


def _entries(entries: list[FileEntry]) -> list[dict[str, Any]]:
    return [{"name": e.name, "kind": e.kind, "size": e.size} for e in entries]


def _image(image: Image) -> dict[str, Any]:
    return {
        "data": _base64(image.data),
        "width": image.width,
        "height": image.height,
        "format": image.format,
    }


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Capability:
    """One function of an interface. `name` is the broker's word for it, `fields` its parameters."""

    name: str
    params: tuple[WitType, ...]
    fields: tuple[str, ...]
    result: WitType | None = None
    lower: Callable[[Any], Any] = _same

    def host_function(self) -> HostFunction:
        """What serves the import."""
        return HostFunction(
            self._call, self.params, Result(self.result, FAULT), too_large=self._too_large
        )

    def _call(self, cell: Cell, *values: Any) -> Any:
        params = dict(zip(self.fields, values, strict=True))
        if self.name == "http.fetch":
            params = _http_params(params["request"])
        try:
            result = self.lower(cell.session.broker.call(self.name, **params))
        except CapabilityFault as fault:
            return _fault(fault.status, fault.message, fault.remedy)
        # A slow call may come back after the deadline: the run ends here, not at the next tick.
        cell.session.check()
        return result

    def _too_large(self, allowed: int, used: int) -> Any:
        return _fault(
            413, f"{self.name}: parameters of {used} bytes; max_message_bytes is {allowed}", ""
        )


def _fault(status: int, message: str, remedy: str) -> Err:
    return Err({"status": status, "message": message, "detail": remedy})


INTERFACES: Mapping[str, Mapping[str, Capability]] = {
    "kv": {
        "get": Capability("kv.get", (STRING,), ("key",), Option(STRING)),
        "set": Capability("kv.set", (STRING, STRING), ("key", "value")),
        "delete": Capability("kv.delete", (STRING,), ("key",), BOOL),
        "list": Capability("kv.list", (STRING,), ("prefix",), ListOf(STRING)),
    },
    "http": {
        "fetch": Capability(
            "http.fetch", (_HTTP_REQUEST,), ("request",), _HTTP_RESPONSE, _http_response
        ),
    },
    "files": {
        "read-text": Capability("fs.readText", (STRING,), ("path",), STRING),
        "write-text": Capability("fs.writeText", (STRING, STRING), ("path", "text")),
        "read-bytes": Capability("fs.readBytes", (STRING,), ("path",), STRING, _base64),
        "write-bytes": Capability("fs.writeBytes", (STRING, STRING), ("path", "data")),
        "list": Capability("fs.list", (STRING,), ("path",), ListOf(_ENTRY), _entries),
        "remove": Capability("fs.remove", (STRING,), ("path",)),
    },
    "images": {
        "resize": Capability(
            "images.resize",
            (STRING, U32, U32, STRING),
            ("data", "width", "height", "format"),
            _IMAGE,
            _image,
        ),
    },
    "log": {
        "emit": Capability("log.emit", (_LEVEL, STRING), ("level", "message")),
    },
}
"""Interface of the package -> function -> capability."""
