"""The ticker ticks while something runs, and rests when nothing does."""

import threading

from toolcell_wasi.ticker import IDLE_TICKS, Ticker

PATIENCE_S = 5


def test_it_ticks_while_something_runs():
    ticked = threading.Semaphore(0)
    ticker = Ticker(ticked.release, period_ms=1)
    with ticker.running():
        assert all(ticked.acquire(timeout=PATIENCE_S) for _ in range(3))
    ticker.close()


def test_there_is_no_thread_before_the_first_run_and_none_after_close():
    before = threading.active_count()
    ticker = Ticker(lambda: None, period_ms=1)
    assert threading.active_count() == before
    with ticker.running():
        assert threading.active_count() == before + 1
    ticker.close()
    assert threading.active_count() == before


def test_it_rests_when_nothing_runs_and_wakes_up_again():
    ticked = threading.Semaphore(0)
    ticker = Ticker(ticked.release, period_ms=1)
    with ticker.running():
        assert ticked.acquire(timeout=PATIENCE_S)
    left = IDLE_TICKS + 2
    while ticked.acquire(timeout=0.1):
        left -= 1
        assert left, "it went on ticking"
    with ticker.running():
        assert ticked.acquire(timeout=PATIENCE_S)
    ticker.close()


def test_closing_twice_is_closing_once():
    ticker = Ticker(lambda: None, period_ms=1)
    with ticker.running():
        pass
    ticker.close()
    ticker.close()
