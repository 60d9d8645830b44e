"""invoke, ainvoke, map and start under load, when cancelled and when closed."""

import asyncio
import threading
import time

import pytest
from runtime_lab import FIVE_SECONDS, until

from toolcell.errors import (
    InternalError,
    QueueFull,
)


def test_a_full_runtime_refuses_with_429_after_the_call_s_own_patience(lab):
    made = lab(max_concurrency=1)
    running = made.runtime.start("fake", "block")
    until(lambda: "tool.sandbox.spawned" in made.told())
    result = made.runtime.invoke("fake", "go", timeout_ms=30)
    assert isinstance(result.error, QueueFull)
    assert (result.status, result.error.details["limit"]) == (429, 1)
    running.kill("done")
    assert running.wait(FIVE_SECONDS * 1000).status == 499
    assert made.runtime.invoke("fake", "go").ok


def test_queue_wait_is_measured(lab):
    made = lab(max_concurrency=1)
    running = made.runtime.start("fake", "block")
    until(lambda: "tool.sandbox.spawned" in made.told())
    threading.Timer(0.1, running.kill, ["make room"]).start()
    result = made.runtime.invoke("fake", "go")
    assert result.ok
    assert result.metrics.queue_wait_ms > 10


def test_too_many_started_calls_are_refused_at_once(lab):
    made = lab(max_concurrency=1, queue_length=1)
    handles = [made.runtime.start("fake", "block") for _ in range(2)]
    with pytest.raises(QueueFull):
        made.runtime.start("fake", "go")
    for handle in handles:
        handle.kill("enough")
    assert [handle.wait(FIVE_SECONDS * 1000).status for handle in handles] == [499, 499]


def test_a_handle_says_where_its_call_is(lab):
    made = lab(max_concurrency=1)
    first = made.runtime.start("fake", "block")
    until(lambda: first.status == "running")
    second = made.runtime.start("fake", "go")
    assert second.status == "queued"
    with pytest.raises(TimeoutError):
        first.wait(timeout_ms=10)
    first.kill("next, please")
    assert second.wait(FIVE_SECONDS * 1000).ok
    assert (first.status, second.status) == ("done", "done")


def test_map_keeps_the_order_and_reads_no_further_ahead_than_it_runs(lab):
    made = lab(max_concurrency=2)
    read = []

    def inputs():
        for n in range(100):
            read.append(n)
            yield {"n": n}

    results = made.runtime.map("fake", "go", inputs())
    assert [next(results).output["n"] for _ in range(3)] == [0, 1, 2]
    assert len(read) <= 5
    results.close()
    assert made.runtime.invoke("fake", "go").ok


def test_leaving_a_map_early_ends_its_calls(lab):
    made = lab({"go": lambda value, session: session.wait(value["s"])}, max_concurrency=2)
    started = time.monotonic()
    results = made.runtime.map("fake", "go", [{"s": 0}, {"s": 60}, {"s": 60}])
    assert next(results).ok
    results.close()
    assert time.monotonic() - started < FIVE_SECONDS


def test_closing_ends_running_calls_and_refuses_new_ones(lab):
    made = lab()
    handle = made.runtime.start("fake", "block")
    until(lambda: "tool.sandbox.spawned" in made.told())
    made.runtime.close()
    assert handle.wait(0).status == 499
    assert made.lane.closed
    with pytest.raises(InternalError, match="closed"):
        made.runtime.invoke("fake", "go")
    made.runtime.close()


def test_cancelling_a_task_ends_the_cell_before_it_is_raised(lab):
    made = lab()

    async def run():
        task = asyncio.create_task(made.runtime.ainvoke("fake", "block"))
        while "tool.sandbox.spawned" not in made.told():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert made.told()[-1] == "tool.sandbox.terminated"

    asyncio.run(asyncio.wait_for(run(), FIVE_SECONDS))


def test_ainvoke_gives_the_result(lab):
    made = lab()
    assert asyncio.run(made.runtime.ainvoke("fake", "go", {"n": 2})).output == {"n": 2}


def test_ctrl_c_in_the_caller_leaves_no_cell_and_is_raised(lab):
    def interrupted(_value, _session):
        raise KeyboardInterrupt

    made = lab({"go": interrupted})
    with pytest.raises(KeyboardInterrupt):
        made.runtime.invoke("fake", "go")
    assert made.told()[-1] == "tool.sandbox.terminated"
    assert made.runtime._active == set()
