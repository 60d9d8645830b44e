"""Workers that do not keep to the protocol: each is ended, with the rule that it broke."""

import time
from pathlib import Path

import pytest
from oops_cells import call, prepared, run
from oops_sessions import make_session

from toolcell.errors import LimitExceeded, ToolFault

pytestmark = pytest.mark.slow

IN_THE_CALL = """
@method
def go() -> object:
    {}
    time.sleep(60)
"""


def by_hand(body: str) -> str:
    """A worker that speaks past the SDK: what `body` says goes onto the wire as it is."""
    return f"""
@method
def go() -> object:
    def say(message):
        wire.sendall(json.dumps(message).encode() + b"\\n")
    from toolcell_sdk import transport
    context = transport._current[-1]._context
    def request(number, method, arguments, context=context):
        say({{"jsonrpc": "2.0", "id": number, "method": method,
             "params": {{"context": context, "arguments": arguments}}}})
{body}
"""


@pytest.mark.parametrize(
    "words",
    [
        r'wire.sendall(b"\x00\xff garbage\n")',
        r'wire.sendall(b"\n")',
        r'wire.sendall(b"[]\n")',
        r'wire.sendall(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"id\":2,\"result\":{\"output\":1}}\n")',
        r'wire.sendall(b"{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{\"output\":1}}\n")',
        r'wire.sendall(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":" + b"[" * 9999 + b"\n")',
    ],
)
def test_malformed_messages_end_the_worker_at_once(lane, words):
    started = time.monotonic()
    outcome = run(lane, IN_THE_CALL.format(words))
    assert outcome.error.status == 400
    assert "broke the protocol" in outcome.error.message
    assert time.monotonic() - started < 8, "it was let sleep"


@pytest.mark.parametrize("end", ["", r' + b"\n"'])
def test_a_message_over_the_limit_ends_the_worker(lane, end):
    words = f'wire.sendall(b"x" * 200_000{end})'
    outcome = run(lane, IN_THE_CALL.format(words), max_message_bytes=100_000)
    assert isinstance(outcome.error, LimitExceeded)
    assert (outcome.error.limit, outcome.error.status) == ("max_message_bytes", 413)


def test_a_message_that_never_ends_costs_the_host_no_more_than_the_limit(lane):
    words = 'exec("while True: wire.sendall(bytes(65536))")'
    outcome = run(lane, IN_THE_CALL.format(words), max_message_bytes=100_000)
    assert outcome.error.limit == "max_message_bytes"
    assert outcome.error.used < 100_000 + 2 * 65536


def test_a_result_before_ready_is_refused(lane):
    early = r'wire.sendall(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"output\":1}}\n")'
    outcome = run(lane, f"{early}\ntime.sleep(60)")
    assert outcome.output is None
    assert outcome.error.status == 400


def test_a_capability_call_before_ready_is_refused(lane):
    outcome = run(lane, 'kv.set("k", "v")\n', capabilities=("kv.set",))
    assert outcome.error.status == 400
    assert "before Ready" in outcome.error.message


def test_a_request_in_the_name_of_another_call_is_refused(lane):
    body = """
    request(1, "kv.set", {"key": "k", "value": "v"}, {**context, "correlation_id": "other"})
    time.sleep(60)
"""
    session = make_session(allowed_host_apis=("kv.set",))
    with prepared(lane, by_hand(body), capabilities=("kv.set",)) as cell:
        outcome = call(cell, session=session)
    assert outcome.error.status == 400
    assert "another call" in outcome.error.message
    assert session.broker.usage.calls == 0


def test_only_the_first_result_counts(lane):
    body = """
    for number in range(3):
        say({"jsonrpc": "2.0", "id": 2, "result": {"output": number}})
    time.sleep(60)
"""
    started = time.monotonic()
    assert run(lane, by_hand(body)).output == b"0"
    assert time.monotonic() - started < 8, "it was let sleep after its result"


def test_a_worker_that_hangs_up_is_ended(lane):
    started = time.monotonic()
    outcome = run(lane, IN_THE_CALL.format("wire.shutdown(socket.SHUT_RDWR)"))
    assert isinstance(outcome.error, ToolFault)
    assert time.monotonic() - started < 8, "it was let sleep"


def test_a_worker_that_never_answers_ends_at_the_deadline(lane):
    outcome = run(lane, "time.sleep(60)", wall_time_ms=400)
    assert outcome.error.limit == "wall_time_ms"


def test_a_worker_that_does_not_read_does_not_hold_the_host(lane):
    body = """
    for number in range(100_000):
        request(number, "kv.list", {"prefix": ""})
    time.sleep(60)
"""
    outcome = run(lane, by_hand(body), capabilities=("kv.list",), wall_time_ms=1500)
    assert outcome.error.status in (408, 413, 429)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_that_are_sent_along_never_arrive(lane):
    words = 'socket.send_fds(wire, [b"{"], [1] * 100)'
    before = descriptors()
    with prepared(lane, IN_THE_CALL.format(words)) as cell:
        warm = descriptors()
        call(cell, wall_time_ms=400)
        assert descriptors() <= warm
    assert descriptors() <= before + 8, "only the lane's own"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_flood_of_output_ends_the_worker(lane, stream):
    words = f'exec("while True: sys.{stream}.write(chr(120) * 65536)")'
    outcome = run(lane, IN_THE_CALL.format(words), max_output_bytes=300_000)
    assert outcome.error.limit == "max_output_bytes"
    kept = getattr(outcome, stream)
    assert len(kept) < 100_000
    assert outcome.usage.log_bytes_dropped > 0


def test_a_flood_of_refused_calls_is_answered_and_told_in_bounds(lane):
    source = """
from toolcell_sdk import CapabilityError
@method
def go() -> int:
    refused = 0
    for _ in range(2000):
        try:
            kv.delete("k")
        except CapabilityError:
            refused += 1
    return refused
"""
    session = make_session(allowed_host_apis=("kv.get",))
    with prepared(lane, source, capabilities=("kv.get",)) as cell:
        outcome = call(cell, session=session)
    assert outcome.output == b"2000"
    assert len(session.emitter) < 500


def test_what_a_worker_says_of_itself_reaches_no_terminal(lane):
    source = r"""
@method
def go() -> int:
    raise ValueError("\x1b]0;owned\x07\u202e" + "x" * 5000)
"""
    error = run(lane, source).error
    assert error.status == 500
    assert not set(error.message + error.guest_detail) & set("\x1b\x07\u202e")
    assert len(error.message) <= 500


def test_an_exit_code_and_last_words_are_the_message(lane):
    words = 'print("no licence", file=sys.stderr), os._exit(3)'
    error = run(lane, IN_THE_CALL.format(words)).error
    assert error.details == {"exit_code": 3}
    assert error.message.endswith("no licence")


def test_a_crash_names_its_signal(lane):
    words = "import ctypes; ctypes.string_at(8)"
    error = run(lane, IN_THE_CALL.format(words)).error
    assert error.details == {"signal": "SIGSEGV"}


def test_a_child_that_holds_the_socket_does_not_outlive_the_call(lane):
    source = """
@method
def go() -> int:
    if os.fork() == 0:
        os.setsid()
        while True:
            time.sleep(1)
    return 1
"""
    started = time.monotonic()
    assert run(lane, source).output == b"1"
    assert time.monotonic() - started < 8, "it waited for the child"
