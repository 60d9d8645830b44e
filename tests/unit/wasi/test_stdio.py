"""Captured streams: what is kept, what is cut, and when the guest is ended."""

import pytest
from wasi_cell import make_session

from toolcell.errors import LimitExceeded
from toolcell.guest_output import TAIL_BYTES, Capture
from toolcell_wasi.cell.clock import NANOSECONDS


class StillClock:
    """Time that a test moves."""

    def __init__(self):
        self.now = 0

    def now_ns(self):
        return self.now


def capture(clock=None, **fields):
    return Capture(make_session(**fields).envelope, clock or StillClock())


def test_streams_are_kept_apart():
    captured = capture()
    captured.write("stdout", b"one\n")
    captured.write("stderr", b"two\n")
    assert (captured.text("stdout"), captured.text("stderr")) == ("one\n", "two\n")


def test_both_streams_share_max_log_bytes():
    captured = capture(max_log_bytes=10)
    captured.write("stdout", b"1234567")
    captured.write("stderr", b"1234567")
    assert captured.text("stdout") == "1234567"
    assert captured.text("stderr").startswith("123\n[4 bytes dropped")
    assert captured.dropped == 4


def test_lines_over_the_rate_are_dropped_whole_however_they_are_cut_up():
    captured = capture(log_rate=2)
    for piece in (b"a", b"a\nb\n", b"c", b"c", b"\n"):
        captured.write("stdout", piece)
    assert captured.text("stdout").startswith("aa\nb\n\n[3 bytes dropped")


def test_the_bucket_refills_with_time():
    clock = StillClock()
    captured = capture(clock, log_rate=1)
    captured.write("stdout", b"1\n2\n")
    clock.now = NANOSECONDS
    captured.write("stdout", b"3\n4\n")
    assert captured.text("stdout").startswith("1\n3\n")
    assert captured.dropped == 4


def test_a_rate_of_zero_keeps_nothing():
    captured = capture(log_rate=0)
    captured.write("stdout", b"x\n")
    assert captured.text("stdout").startswith("\n[2 bytes dropped")


def test_writing_more_than_max_output_bytes_ends_the_guest():
    captured = capture(max_output_bytes=8)
    captured.write("stdout", b"12345678")
    with pytest.raises(LimitExceeded) as ended:
        captured.write("stderr", b"9")
    assert (ended.value.limit, ended.value.used, ended.value.status) == ("max_output_bytes", 9, 413)


def test_the_last_words_are_known_even_where_nothing_is_kept():
    captured = capture(max_log_bytes=0)
    captured.write("stderr", b"x" * TAIL_BYTES)
    captured.write("stderr", b"the reason")
    assert captured.tail("stderr").endswith("the reason")
    assert len(captured.tail("stderr")) == TAIL_BYTES


def test_bytes_that_are_no_utf8_are_replaced():
    captured = capture()
    captured.write("stdout", b"\xff\n")
    assert captured.text("stdout") == "\ufffd\n"
