"""The ticker ticks while something runs, and rests when nothing does."""

import threading

import pytest

from toolcell.errors import CallCancelled, InternalError
from toolcell.session import CancelToken
from toolcell_wasi.ticker import IDLE_TICKS, Ticker

PATIENCE_S = 5


def test_it_ticks_while_something_runs():
    ticked = threading.Semaphore(0)
    ticker = Ticker(ticked.release, period_ms=1)
    with ticker.running(CancelToken()):
        assert all(ticked.acquire(timeout=PATIENCE_S) for _ in range(3))
    ticker.close()


def test_there_is_no_thread_before_the_first_run_and_none_after_close():
    before = threading.active_count()
    ticker = Ticker(lambda: None, period_ms=1)
    assert threading.active_count() == before
    with ticker.running(CancelToken()):
        assert threading.active_count() == before + 1
    ticker.close()
    assert threading.active_count() == before


def test_it_rests_when_nothing_runs_and_wakes_up_again():
    ticked = threading.Semaphore(0)
    ticker = Ticker(ticked.release, period_ms=1)
    with ticker.running(CancelToken()):
        assert ticked.acquire(timeout=PATIENCE_S)
    left = 100 * IDLE_TICKS
    while ticked.acquire(timeout=0.1):
        left -= 1
        assert left, "it went on ticking"
    with ticker.running(CancelToken()):
        assert ticked.acquire(timeout=PATIENCE_S)
    ticker.close()


def test_closing_twice_is_closing_once():
    ticker = Ticker(lambda: None, period_ms=1)
    with ticker.running(CancelToken()):
        pass
    ticker.close()
    ticker.close()


def test_closing_cancels_what_runs_and_waits_for_it():
    ticker = Ticker(lambda: None, period_ms=1)
    cancel, inside = CancelToken(), threading.Event()

    def run():
        with ticker.running(cancel):
            inside.set()
            assert cancel.wait(PATIENCE_S)

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(PATIENCE_S)
    assert ticker.close()
    thread.join()
    assert isinstance(cancel.error, CallCancelled)


def test_closing_says_so_where_a_run_does_not_end(monkeypatch):
    monkeypatch.setattr("toolcell_wasi.ticker.ENDING_S", 0.01)
    ticker = Ticker(lambda: None, period_ms=1)
    with ticker.running(CancelToken()):
        assert not ticker.close()
    assert ticker.close()


def test_nothing_starts_after_close():
    ticker = Ticker(lambda: None, period_ms=1)
    ticker.close()
    with pytest.raises(InternalError, match="closed"), ticker.running(CancelToken()):
        pass
