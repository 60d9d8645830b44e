"""Messages of a worker: what is one, and what ends the run."""

import json

import pytest

from toolcell.errors import LimitExceeded, ToolFault
from toolcell_oops.rpc.message import Answer, CapabilityRequest, LineBuffer, decode

CONTEXT = {"correlation_id": "c", "tool_id": "t", "version": "1.0.0", "policy_digest": "p"}
REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "kv.get",
    "params": {"context": CONTEXT, "arguments": {"key": "k"}},
}
ANSWER = {"jsonrpc": "2.0", "id": 2, "result": {"output": [1]}}


def line(message) -> bytes:
    return json.dumps(message).encode()


def without(message, key) -> dict:
    return {name: value for name, value in message.items() if name != key}


def test_a_request_and_an_answer_are_told_apart():
    request = decode(line(REQUEST))
    assert isinstance(request, CapabilityRequest)
    assert request.params.arguments == {"key": "k"}
    answer = decode(line(ANSWER))
    assert isinstance(answer, Answer)
    assert bytes(answer.result) == b'{"output": [1]}'


@pytest.mark.parametrize(
    "message",
    [
        pytest.param([REQUEST], id="a batch"),
        pytest.param(without(REQUEST, "id"), id="a notification"),
        pytest.param({**REQUEST, "id": None}, id="a null id"),
        pytest.param({**REQUEST, "id": 1.5}, id="a fraction as id"),
        pytest.param({**REQUEST, "id": "x" * 65}, id="an endless id"),
        pytest.param({**REQUEST, "jsonrpc": "1.0"}, id="another version"),
        pytest.param(without(REQUEST, "jsonrpc"), id="no version"),
        pytest.param({**REQUEST, "extra": 1}, id="an unknown field"),
        pytest.param({**REQUEST, "method": ""}, id="no method"),
        pytest.param({**REQUEST, "params": {"arguments": {}}}, id="no context"),
        pytest.param(
            {**REQUEST, "params": {"context": CONTEXT, "arguments": []}}, id="arguments by position"
        ),
        pytest.param({**ANSWER, "error": {"code": 1, "message": ""}}, id="result and error"),
        pytest.param(without(ANSWER, "result"), id="neither"),
        pytest.param({**without(ANSWER, "result"), "error": {"code": "x"}}, id="a malformed error"),
        pytest.param("text", id="a string"),
    ],
)
def test_what_is_no_message_of_the_protocol_is_malformed(message):
    with pytest.raises(ToolFault) as caught:
        decode(line(message))
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":2,"result":NaN}',
        b'{"jsonrpc":"2.0","id":2,"id":3,"result":1}',
        b'{"jsonrpc":"2.0","id":2,"result":{"a":1,"a":2}}',
        b'{"jsonrpc":"2.0","id":2,"result":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":2,"result":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"jsonrpc":"2.0","id":2,"result":1} {"jsonrpc":"2.0","id":2,"result":2}',
    ],
)
def test_bytes_that_could_be_read_in_two_ways_are_malformed(raw):
    with pytest.raises(ToolFault) as caught:
        decode(raw)
    assert caught.value.status == 400


def test_lines_come_out_as_they_went_in_however_they_are_cut():
    buffer = LineBuffer(100)
    found = []
    for byte in b"one\ntwo\n\nthree":
        buffer.feed(bytes([byte]))
        while (each := buffer.line()) is not None:
            found.append(each)
    assert found == [b"one", b"two", b""]


@pytest.mark.parametrize("data", [b"x" * 100 + b"\n", b"x" * 101])
def test_a_line_over_the_limit_is_too_large_whole_or_not(data):
    buffer = LineBuffer(100)
    buffer.feed(data)
    with pytest.raises(LimitExceeded) as caught:
        buffer.line()
    assert (caught.value.limit, caught.value.status) == ("max_message_bytes", 413)


def test_a_line_at_the_limit_is_not():
    buffer = LineBuffer(100)
    buffer.feed(b"x" * 99 + b"\n")
    assert buffer.line() == b"x" * 99
