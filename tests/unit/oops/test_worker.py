"""The SDK's worker, over a real socket, against a host that is played by hand."""

import json
import socket
import sys
import threading
from contextlib import contextmanager

import pytest

from toolcell_sdk import transport
from toolcell_sdk.methods import collecting
from toolcell_sdk.worker.connection import Connection, ConnectionLost
from toolcell_sdk.worker.serve import serve

CONTEXT = {"correlation_id": "c", "tool_id": "t", "version": "1.0.0", "policy_digest": "p"}
MODULE = """
from toolcell_sdk import CapabilityError, ToolError, kv, method

@method
def double(n: int) -> int:
    return 2 * n

@method
def store(value: str) -> str:
    kv.set("k", value)
    return kv.get("k")

@method
def refuse() -> None:
    raise ToolError("no such thing", status=404)

@method
def large(size: int) -> str:
    return "x" * size

@method
def swallow(value: str) -> int:
    try:
        kv.set("k", value)
    except CapabilityError as error:
        return error.status
    return 200
"""


class Host:
    """The other end of the socket."""

    def __init__(self, link):
        self._link = link
        self._reader = link.makefile("rb")

    def say(self, **message):
        self._link.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def hear(self):
        return json.loads(self._reader.readline())

    def init(self, limit=100_000):
        params = {"context": CONTEXT, "protocol": 1, "max_message_bytes": limit}
        self.say(id=1, method="toolcell.init", params=params)
        return self.hear()

    def invoke(self, name, **value):
        params = {"context": CONTEXT, "method": name, "input": value}
        self.say(id=2, method="toolcell.invoke", params=params)
        return self.hear()


@contextmanager
def worker(tmp_path, monkeypatch, source=MODULE):
    """A worker that serves the module `source`, and the host that it serves."""
    name = f"served_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    ours, theirs = socket.socketpair()
    before = transport._current[-1]
    ended = []

    def body():
        try:
            with collecting():
                serve(Connection(theirs), name, str(tmp_path))
        except ConnectionLost as lost:
            ended.append(str(lost))

    thread = threading.Thread(target=body)
    thread.start()
    try:
        with ours:
            yield Host(ours)
            ours.shutdown(socket.SHUT_RDWR)
    finally:
        thread.join(10)
        theirs.close()
        transport.install(before)
        sys.modules.pop(name, None)
    assert ended


@pytest.fixture
def host(tmp_path, monkeypatch):
    with worker(tmp_path, monkeypatch) as made:
        yield made


def test_it_is_ready_and_serves(host):
    assert host.init()["result"] == {"protocol": 1, "worker": "toolcell_sdk"}
    assert host.invoke("double", n=21) == {"jsonrpc": "2.0", "id": 2, "result": {"output": 42}}


def test_a_capability_call_carries_the_context_and_takes_the_answer(host):
    host.init()
    request = host.invoke("store", value="v")
    assert request["method"] == "kv.set"
    assert request["params"] == {"context": CONTEXT, "arguments": {"key": "k", "value": "v"}}
    host.say(id=request["id"], result=None)
    request = host.hear()
    assert request["method"] == "kv.get"
    host.say(id=request["id"], result="v")
    assert host.hear()["result"] == {"output": "v"}


def test_a_refusal_is_the_tool_s_to_handle_and_else_its_fault(host):
    host.init()
    refusal = {"code": 403, "message": "kv.set: not granted", "data": {}}
    request = host.invoke("swallow", value="v")
    host.say(id=request["id"], error=refusal)
    assert host.hear()["result"] == {"output": 403}
    request = host.invoke("store", value="v")
    host.say(id=request["id"], error=refusal)
    fault = host.hear()["error"]
    assert (fault["code"], fault["message"]) == (403, "kv.set: not granted")


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [("nope", {}, 404), ("double", {"n": "x"}, 422), ("double", {}, 422), ("refuse", {}, 404)],
)
def test_faults_have_the_statuses_of_a_component(host, name, value, status):
    host.init()
    assert host.invoke(name, **value)["error"]["code"] == status


def test_a_result_that_the_host_would_not_take_is_a_fault(host):
    host.init(limit=1000)
    error = host.invoke("large", size=2000)["error"]
    assert error["code"] == 413
    assert "max_message_bytes is 1000" in error["message"]


def test_a_call_that_the_host_would_not_take_is_a_capability_error(host):
    host.init(limit=1000)
    assert host.invoke("swallow", value="x" * 2000)["result"] == {"output": 413}


def test_it_describes_its_methods(host):
    host.init()
    host.say(id=2, method="toolcell.describe", params={"context": CONTEXT})
    methods = host.hear()["result"]["output"]["methods"]
    assert set(methods) == {"double", "store", "refuse", "large", "swallow"}
    assert methods["double"]["output"] == {"type": "integer"}


@pytest.mark.parametrize(
    ("source", "word"),
    [("1 / 0", "ZeroDivisionError"), ("raise SystemExit(3)", "sys.exit"), ("import nope", "nope")],
)
def test_a_module_that_fails_is_told_instead_of_ready(tmp_path, monkeypatch, source, word):
    with worker(tmp_path, monkeypatch, source) as host:
        error = host.init()["error"]
    assert error["code"] == 500
    assert word in error["message"]
