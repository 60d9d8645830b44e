"""The order of the messages, from the host's side."""

import json

import pytest
from oops_sessions import make_session

from toolcell.errors import CallCancelled, LimitExceeded, ToolFault
from toolcell.lane import Request
from toolcell_oops.rpc.conversation import Conversation

READY = {"jsonrpc": "2.0", "id": 1, "result": {"protocol": 1, "worker": "w"}}
RESULT = {"jsonrpc": "2.0", "id": 2, "result": {"output": {"a": 1}}}
GRANT = ("kv.get", "kv.set")


def conversation(**fields) -> Conversation:
    session = make_session(**{"allowed_host_apis": GRANT, **fields})
    return Conversation.invocation(session, Request("go", b'{"x":\n1}'))


def take(talk: Conversation, message) -> dict:
    said = talk.take(json.dumps(message).encode())
    assert said.endswith(b"\n")
    assert said.count(b"\n") == 1
    return json.loads(said)


def call(talk: Conversation, method="kv.get", arguments=None, number=7, **context) -> dict:
    said = json.loads(talk.start())["params"]["context"]
    params = {"context": {**said, **context}, "arguments": arguments or {"key": "k"}}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def ready(**fields) -> Conversation:
    talk = conversation(**fields)
    talk.start()
    take(talk, READY)
    return talk


def test_init_says_who_calls_what_under_which_policy_and_how_much_may_be_said():
    init = json.loads(conversation(max_message_bytes=5000).start())
    assert init["method"] == "toolcell.init"
    assert init["params"] == {
        "protocol": 1,
        "max_message_bytes": 5000,
        "context": {
            "correlation_id": "call-1",
            "tool_id": "tool-id",
            "version": "1.0.0",
            "policy_digest": "hmac-sha256:aa",
        },
    }


def test_ready_is_answered_with_the_invocation():
    talk = conversation()
    invoke = take(talk, READY)
    assert invoke["method"] == "toolcell.invoke"
    assert invoke["params"]["method"] == "go"
    assert invoke["params"]["input"] == {"x": 1}
    assert invoke["params"]["context"]["correlation_id"] == "call-1"


def test_a_result_ends_it_with_a_shutdown():
    talk = ready()
    assert take(talk, RESULT)["method"] == "toolcell.shutdown"
    assert (talk.over, talk.error) == (True, None)
    assert json.loads(talk.output) == {"a": 1}


def test_a_capability_call_goes_to_the_broker_and_back():
    talk = ready()
    stored = take(talk, call(talk, "kv.set", {"key": "k", "value": "v"}))
    assert stored == {"jsonrpc": "2.0", "id": 7, "result": None}
    assert take(talk, call(talk, number="id-2")) == {"jsonrpc": "2.0", "id": "id-2", "result": "v"}


def test_bytes_come_back_as_base64(tmp_path):
    talk = ready(allowed_host_apis=("fs.readBytes", "fs.writeBytes", "fs.list"), allow_file_io=True)
    arguments = {"path": "/scratch/a", "data": "AP8="}
    take(talk, call(talk, "fs.writeBytes", arguments))
    assert take(talk, call(talk, "fs.readBytes", {"path": "/scratch/a"}))["result"] == "AP8="
    listed = take(talk, call(talk, "fs.list", {"path": "/scratch"}))["result"]
    assert listed == [{"name": "a", "kind": "file", "size": 2}]
    talk._session.broker.close()


@pytest.mark.parametrize(
    ("method", "arguments", "status"),
    [
        ("kv.delete", {"key": "k"}, 403),
        ("no.such", {}, 404),
        ("kv.get", {"key": 1}, 400),
        ("kv.get", {"key": "k", "more": 1}, 400),
        ("kv.get", {"capability": "kv.set"}, 400),
    ],
)
def test_a_call_that_the_broker_refuses_is_answered_and_the_run_goes_on(method, arguments, status):
    talk = ready()
    refused = take(talk, call(talk, method, arguments))
    assert refused["error"]["code"] == status
    assert method in refused["error"]["message"]
    take(talk, RESULT)
    assert talk.output is not None


def test_a_fault_of_the_tool_is_its_error():
    talk = ready()
    error = {"code": 422, "message": "no\nsuch\x1b[31m", "data": {"detail": "Traceback\x07"}}
    take(talk, {"jsonrpc": "2.0", "id": 2, "error": error})
    assert talk.error.status == 422
    assert talk.error.message == "no such[31m"
    assert talk.error.guest_detail == "Traceback"


@pytest.mark.parametrize("code", [200, 499, 777, -32000])
def test_a_worker_can_t_claim_a_status_that_is_not_a_tool_s(code):
    talk = ready()
    take(talk, {"jsonrpc": "2.0", "id": 2, "error": {"code": code, "message": "m"}})
    assert talk.error.status == 500


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(RESULT, id="a result before Ready"),
        pytest.param({**READY, "result": {"protocol": 2}}, id="another version"),
        pytest.param({**READY, "result": {}}, id="an empty Ready"),
    ],
)
def test_what_comes_out_of_turn_is_malformed(message):
    talk = conversation()
    with pytest.raises(ToolFault) as caught:
        talk.take(json.dumps(message).encode())
    assert caught.value.status == 400
    assert "broke the protocol" in caught.value.message


def test_a_call_before_ready_is_malformed():
    talk = conversation()
    with pytest.raises(ToolFault, match="before Ready"):
        talk.take(json.dumps(call(talk)).encode())


@pytest.mark.parametrize(
    "message",
    [READY, {**RESULT, "id": "2"}, {**RESULT, "result": {"a": 1}}, {**RESULT, "result": 1}],
)
def test_an_answer_that_nobody_asked_for_is_malformed(message):
    talk = ready()
    with pytest.raises(ToolFault) as caught:
        talk.take(json.dumps(message).encode())
    assert caught.value.status == 400


@pytest.mark.parametrize("field", ["correlation_id", "tool_id", "version", "policy_digest"])
def test_a_request_for_another_call_is_malformed(field):
    talk = ready()
    with pytest.raises(ToolFault, match="another call"):
        talk.take(json.dumps(call(talk, **{field: "forged"})).encode())


def test_a_module_that_fails_at_its_import_is_a_fault_and_no_ready():
    talk = conversation()
    error = {"code": 500, "message": "ImportError: x", "data": {"detail": "Traceback"}}
    assert take(talk, {"jsonrpc": "2.0", "id": 1, "error": error})["method"] == "toolcell.shutdown"
    assert talk.over
    assert "ImportError" in talk.error.message


def test_a_result_after_the_cancellation_does_not_count():
    talk = ready()
    talk._session.cancel.cancel()
    with pytest.raises(CallCancelled):
        talk.take(json.dumps(RESULT).encode())


def test_a_result_after_the_deadline_does_not_count():
    talk = ready(wall_time_ms=1)
    while not talk._session.deadline.passed():
        pass
    with pytest.raises(LimitExceeded, match="wall_time_ms"):
        talk.take(json.dumps(RESULT).encode())
