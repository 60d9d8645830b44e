"""The life of a worker: Init, Ready, Invoke, capability calls, Result, Shutdown.

Owns the order of the messages and the transport over them. What a method does is `dispatch.py`'s.
Called by `__main__.py`.
"""

import importlib
import sys
import threading
from typing import Any

from toolcell_sdk import transport
from toolcell_sdk.dispatch import Dispatcher
from toolcell_sdk.errors import CapabilityError, Fault
from toolcell_sdk.methods import registered
from toolcell_sdk.worker.connection import Connection, ConnectionLost, MessageTooLarge

__all__ = ["PROTOCOL", "serve"]

PROTOCOL = 1
JSONRPC = "2.0"


class RpcTransport:
    """Capability calls as requests to the host. One at a time, whatever threads a tool has."""

    def __init__(self, connection: Connection, context: dict[str, Any]) -> None:
        self._connection = connection
        self._context = context
        self._lock = threading.Lock()
        self._next = 1

    def call(self, capability: str, arguments: dict[str, Any]) -> Any:
        with self._lock:
            number = self._next
            self._next += 1
            request = {
                "jsonrpc": JSONRPC,
                "id": number,
                "method": capability,
                "params": {"context": self._context, "arguments": arguments},
            }
            try:
                self._connection.send(request)
            except MessageTooLarge as error:
                raise CapabilityError(413, f"{capability}: {error}", capability) from None
            answer = self._connection.receive()
        if answer.get("id") != number:
            raise ConnectionLost("an answer to another question")
        refusal = answer.get("error")
        if refusal is not None:
            raise CapabilityError(refusal["code"], refusal["message"], capability)
        return answer["result"]


def serve(connection: Connection, module: str, source_root: str) -> None:
    """Serves one host until it says Shutdown or goes away. Raises :class:`ConnectionLost` then."""
    init = connection.receive()
    context = init["params"]["context"]
    connection.max_bytes = init["params"]["max_message_bytes"]
    transport.install(RpcTransport(connection, context))
    dispatcher = Dispatcher(registered(), source_root=source_root, passes_through=(ConnectionLost,))
    try:
        # An exception of the author's module at its import is a fault like one in a method.
        dispatcher.guard(lambda: importlib.import_module(module))
    except Fault as fault:
        _answer_fault(connection, init["id"], fault)
    else:
        _answer(connection, init["id"], {"protocol": PROTOCOL, "worker": "toolcell_sdk"})
    while True:
        _serve_one(connection, dispatcher, connection.receive())


def _serve_one(connection: Connection, dispatcher: Dispatcher, request: dict[str, Any]) -> None:
    match request["method"]:
        case "toolcell.invoke":
            _invoke(connection, dispatcher, request)
        case "toolcell.describe":
            described = dispatcher.guard(registered().describe)
            _answer(connection, request["id"], {"output": {"methods": described}})
        case "toolcell.shutdown":
            raise ConnectionLost("the host said shutdown")
        case other:
            raise ConnectionLost(f"an unknown request: {other}")


def _invoke(connection: Connection, dispatcher: Dispatcher, request: dict[str, Any]) -> None:
    params = request["params"]
    try:
        output = dispatcher.invoke_value(params["method"], params["input"])
        _flush()
        # The output is JSON already: it goes into the message as it is.
        head = f'{{"jsonrpc":"{JSONRPC}","id":{request["id"]},"result":{{"output":'
        connection.send_line(f"{head}{output}}}}}\n".encode())
    except Fault as fault:
        _flush()
        _answer_fault(connection, request["id"], fault)
    except MessageTooLarge as error:
        _answer_fault(connection, request["id"], Fault(413, f"the result makes {error}"))


def _answer(connection: Connection, number: int, result: Any) -> None:
    connection.send({"jsonrpc": JSONRPC, "id": number, "result": result})


def _answer_fault(connection: Connection, number: int, fault: Fault) -> None:
    error = {"code": fault.status, "message": fault.message, "data": {"detail": fault.detail}}
    connection.send({"jsonrpc": JSONRPC, "id": number, "error": error})


def _flush() -> None:
    """What a tool printed belongs to its call. A tool may have replaced or closed its streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S112 - the author's own object
            continue
