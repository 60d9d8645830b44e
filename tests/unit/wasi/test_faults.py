"""Text that a guest wrote is bounded and cleaned, and never chooses more than it may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wasi_cell import make_session

from toolcell.errors import InternalError, LimitExceeded, ToolFault
from toolcell.guest_output import clean_text
from toolcell_wasi.cell import Cell
from toolcell_wasi.engine import TrapCode, Trapped
from toolcell_wasi.faults import MAX_MESSAGE_CHARS, fault_of, fault_of_record

HARMFUL = "\x00\x07\x08\x1b\x7f\x9b\r\u061c\u2028\u2029\u202e\u2066"


@pytest.fixture
def cell():
    return Cell(make_session(fuel=10), max_stack_bytes=1024)


def record(status=500, message="no", detail=""):
    return {"status": status, "message": message, "detail": detail}


@given(st.text(), st.integers(2, 100))
def test_clean_text_is_bounded_and_printable(text, most):
    clean = clean_text(text, most)
    assert len(clean) <= most
    assert not set(clean) & set(HARMFUL)


def test_clean_text_leaves_nothing_that_moves_a_terminal_or_breaks_a_line():
    assert clean_text(f"one{HARMFUL}line", 100) == "oneline"


def test_clean_text_keeps_the_end_where_the_reason_is():
    assert clean_text("x" * 100 + "reason", 10) == "…" + "xxx" + "reason"


def test_a_fault_record_keeps_its_words(cell):
    fault = fault_of_record(record(422, "bad row 7", "Traceback …"), cell)
    assert (fault.status, fault.message, fault.guest_detail) == (422, "bad row 7", "Traceback …")


@pytest.mark.parametrize("status", [0, 200, 204, 302, 499, 599, 65535])
def test_a_status_that_a_guest_may_not_claim_becomes_a_tool_fault(cell, status):
    assert fault_of_record(record(status), cell).status == 500


def test_a_message_is_one_line(cell):
    fault = fault_of_record(record(message="a\nb\x1b[2J" + "c" * 1000), cell)
    assert "\n" not in fault.message
    assert "\x1b" not in fault.message
    assert len(fault.message) <= MAX_MESSAGE_CHARS


@pytest.mark.parametrize(
    "words",
    [
        "MemoryError",
        "memory allocation of 1048576 bytes failed",
        "fatal error: runtime: out of memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_a_guest_that_ran_out_of_memory_is_told_its_limit(cell, words):
    cell.stdio.write("stderr", words.encode())
    fault = fault_of(Trapped("…", TrapCode.UNREACHABLE, ""), cell, 0)
    assert isinstance(fault, LimitExceeded)
    assert (fault.limit, fault.allowed) == ("memory_mb", 128)
    assert "memory_mb is 128" in fault.message


def test_an_abort_says_the_guests_last_words(cell):
    cell.stdio.write(
        "stderr",
        b"Traceback (most recent call last):\nValueError: row 7\n\n"
        b"thread '<unnamed>' (1) panicked at runtime/src/lib.rs:1293:29:\n"
        b"Python function threw an unexpected exception\n"
        b"note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
    )
    fault = fault_of(Trapped("unreachable", TrapCode.UNREACHABLE, ""), cell, 0)
    assert fault.message == "the tool aborted: ValueError: row 7"
    assert "Traceback" in fault.guest_detail


def test_fuel_names_limit_and_use(cell):
    fault = fault_of(Trapped("…", TrapCode.FUEL, ""), cell, 10)
    assert (fault.limit, fault.allowed, fault.used, fault.status) == ("fuel", 10, 10, 408)


def test_an_error_of_toolcell_passes_as_it_is(cell):
    error = ToolFault("as it is")
    assert fault_of(error, cell, 0) is error


def test_a_bug_of_ours_does_not_look_like_the_tools(cell):
    assert isinstance(fault_of(KeyError("x"), cell, 0), InternalError)
