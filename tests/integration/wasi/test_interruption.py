"""Ending a run from outside: Ctrl-C, a cancel token, exceptions of the host's own."""

import gc
import os
import signal
import threading

import pytest
from wasi_attacks import in_threads
from wasi_cell import call, ends_within, make_session
from wasi_guests import ECHO, importing, waiting, wat_guest

from toolcell.errors import CallCancelled, InternalError, LimitExceeded
from toolcell.lane import Request
from toolcell.session import CancelToken
from toolcell_wasi.cell import Cell
from toolcell_wasi.engine import Store
from toolcell_wasi.engine.linker import RUNNING

GUESTS = {
    "computes": wat_guest("(loop (br 0)) unreachable"),
    "sleeps": waiting("(call $block (call $timer (i64.const -1))) unreachable"),
    "calls the host": waiting("(loop (drop (call $now)) (br 0)) unreachable"),
}
PATIENCE_MS = 5000


@pytest.fixture(params=GUESTS.values(), ids=GUESTS)
def endless(request, prepare):
    """A guest that never ends by itself, prepared."""
    return prepare(request.param)


@pytest.fixture
def begun(monkeypatch):
    """An event that is set when a cell has begun to run."""
    event = threading.Event()
    call_guest = Store.call

    def tell_and_call(self, *arguments, **rest):
        event.set()
        return call_guest(self, *arguments, **rest)

    monkeypatch.setattr(Store, "call", tell_and_call)
    return event


@pytest.mark.parametrize("times", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_ctrl_c_ends_the_guest_and_reaches_the_caller(endless, begun, times):
    for _ in range(times):
        begun.clear()

        def interrupt():
            begun.wait(PATIENCE_MS / 1000)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with ends_within(PATIENCE_MS), pytest.raises(KeyboardInterrupt):
            call(endless, wall_time_ms=60_000)
        thread.join()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert RUNNING == {}


def test_a_handler_that_does_not_raise_runs_and_the_guest_goes_on(endless, begun):
    handled = []
    before = signal.signal(signal.SIGALRM, lambda signum, _frame: handled.append(signum))
    try:
        thread = threading.Thread(
            target=lambda: begun.wait(5) and os.kill(os.getpid(), signal.SIGALRM)
        )
        thread.start()
        outcome = call(endless, wall_time_ms=200)
        thread.join()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert handled == [signal.SIGALRM]
    assert outcome.error.limit == "wall_time_ms"


def test_a_cancelled_call_ends_at_once_with_the_reason(endless, begun):
    cancel = CancelToken()
    thread = threading.Thread(
        target=lambda: begun.wait(5) and cancel.cancel(CallCancelled("killed: over budget"))
    )
    thread.start()
    with ends_within(PATIENCE_MS):
        outcome = call(endless, cancel=cancel, wall_time_ms=60_000)
    thread.join()
    assert isinstance(outcome.error, CallCancelled)
    assert outcome.error.message == "killed: over budget"


def test_a_call_that_was_cancelled_before_never_makes_a_cell(prepare, begun):
    cancel = CancelToken()
    cancel.cancel()
    outcome = call(prepare(wat_guest(ECHO)), cancel=cancel)
    assert isinstance(outcome.error, CallCancelled)
    assert not begun.is_set()


def test_a_deadline_that_has_passed_never_makes_a_cell(prepare, begun):
    session = make_session(wall_time_ms=1)
    session.cancel.wait(0.005)
    outcome = prepare(wat_guest(ECHO)).invoke(Request("run", b"1"), session)
    assert isinstance(outcome.error, LimitExceeded)
    assert not begun.is_set()


@pytest.fixture
def asking(prepare):
    """A guest that calls the host once."""
    return prepare(
        importing(
            "wasi:random/random@0.2.0",
            "get-random-u64",
            "(result u64)",
            "(result i64)",
            f"(drop (call $f)) {ECHO}",
        )
    )


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_a_host_function_raises_is_not_swallowed(asking, monkeypatch, kind):
    def fail(_self, _count):
        raise kind("from the host")

    monkeypatch.setattr("toolcell_wasi.cell.entropy.SystemEntropy.read", fail)
    with pytest.raises(kind, match="from the host"):
        call(asking)
    assert RUNNING == {}


def test_a_bug_in_a_host_function_is_an_internal_error_with_its_cause(asking, monkeypatch):
    def fail(_self, _count):
        raise ZeroDivisionError("our bug")

    monkeypatch.setattr("toolcell_wasi.cell.entropy.SystemEntropy.read", fail)
    with pytest.raises(InternalError) as raised:
        call(asking)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_exceptions_of_threads_do_not_swap(asking, monkeypatch):
    """wasmtime-py keeps the last exception in one variable for the whole process."""

    def fail(_self, _count):
        raise SystemExit(threading.get_ident())

    monkeypatch.setattr("toolcell_wasi.cell.entropy.SystemEntropy.read", fail)

    def work():
        for _ in range(50):
            with pytest.raises(SystemExit) as raised:
                call(asking)
            assert raised.value.code == threading.get_ident()

    in_threads(8, work)


def test_a_tool_can_run_inside_a_host_call_of_another(asking, prepare, monkeypatch):
    echo = prepare(wat_guest(ECHO))

    def nested(_self, count):
        assert call(echo, text='"inner"').output == b'"inner"'
        return bytes(count)

    monkeypatch.setattr("toolcell_wasi.cell.entropy.SystemEntropy.read", nested)
    assert call(asking, text='"outer"').output == b'"outer"'
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    "wasm", [wat_guest("unreachable"), wat_guest("(loop (br 0)) unreachable"), wat_guest(ECHO)]
)
def test_a_run_is_gone_without_the_collector(prepare, wasm):
    """A kept exception whose frames hold the store would keep cells until a collection."""
    prepared = prepare(wasm)
    session = make_session(wall_time_ms=20)
    gc.collect()
    gc.disable()
    try:
        outcome = prepared.invoke(Request("run", b"1"), session)
        assert [thing for thing in gc.get_objects() if isinstance(thing, Store | Cell)] == []
        assert (outcome.output is None) != (outcome.error is None)
    finally:
        gc.enable()


def test_a_run_that_comes_back_after_its_deadline_has_still_failed(asking, monkeypatch):
    def dawdle(_self, count):
        threading.Event().wait(0.05)
        return bytes(count)

    monkeypatch.setattr("toolcell_wasi.cell.entropy.SystemEntropy.read", dawdle)
    outcome = call(asking, wall_time_ms=20)
    assert outcome.output is None
    assert outcome.error.limit == "wall_time_ms"
