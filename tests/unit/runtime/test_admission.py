"""The gate: places are bounded, given in order, and never lost."""

import threading

import pytest

from toolcell.admission import Gate
from toolcell.errors import CallCancelled, QueueFull
from toolcell.session import CancelToken


def waiting_calls(gate: Gate) -> int:
    return len(gate._waiting)


def until(condition, deadline_s: float = 5.0) -> None:
    done = threading.Event()
    for _ in range(int(deadline_s * 1000)):
        if condition():
            return
        done.wait(0.001)
    raise AssertionError("the condition did not come true")


def test_a_free_place_is_given_at_once():
    assert Gate(1).enter(0, CancelToken()) == 0.0


def test_without_a_free_place_the_call_is_refused_with_429_and_figures():
    gate = Gate(1)
    gate.enter(0, CancelToken())
    with pytest.raises(QueueFull) as caught:
        gate.enter(5, CancelToken())
    assert caught.value.status == 429
    assert caught.value.details["limit"] == 1
    assert caught.value.details["waited_ms"] >= 5


def test_a_full_queue_refuses_at_once():
    gate = Gate(1, queue_length=0)
    gate.enter(0, CancelToken())
    with pytest.raises(QueueFull, match="1 calls are running and 0 wait"):
        gate.enter(60_000, CancelToken())


def test_places_are_given_in_the_order_of_asking():
    gate = Gate(1)
    gate.enter(0, CancelToken())
    order: list[int] = []

    def call(number: int) -> None:
        gate.enter(10_000, CancelToken())
        order.append(number)
        gate.leave()

    threads = []
    for number in range(4):
        threads.append(threading.Thread(target=call, args=(number,)))
        threads[-1].start()
        until(lambda number=number: waiting_calls(gate) == number + 1)
    gate.leave()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]
    assert gate.enter(0, CancelToken()) == 0.0


def test_a_cancelled_wait_gives_no_place_away():
    gate = Gate(1)
    gate.enter(0, CancelToken())
    token = CancelToken()
    failures: list[BaseException] = []

    def call() -> None:
        try:
            gate.enter(60_000, token)
        except CallCancelled as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    until(lambda: waiting_calls(gate) == 1)
    token.cancel()
    thread.join(5)
    assert len(failures) == 1
    assert waiting_calls(gate) == 0
    gate.leave()
    assert gate.enter(0, CancelToken()) == 0.0


def test_no_place_is_lost_when_many_threads_come_go_and_give_up():
    gate = Gate(2)

    def call(patience_ms: int) -> None:
        for _ in range(200):
            try:
                gate.enter(patience_ms, CancelToken())
            except QueueFull:
                continue
            gate.leave()

    threads = [threading.Thread(target=call, args=(n % 3,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gate.enter(0, CancelToken())
    gate.enter(0, CancelToken())
    with pytest.raises(QueueFull):
        gate.enter(0, CancelToken())
