"""Many threads in one prepared tool; many tools in one lane; nothing left behind."""

import os
import threading

import pytest
from wasi_attacks import Footprint, in_threads
from wasi_cell import Artifact, call
from wasi_guests import ECHO, wat_guest

from toolcell.lane import LaneHome
from toolcell_wasi.engine.linker import RUNNING
from toolcell_wasi.lane import WasiLane

MIB = 1024 * 1024


def test_threads_get_their_own_answers(prepare):
    prepared = prepare(wat_guest(ECHO))
    names = iter(range(1000))

    def work():
        name = f'"{next(names)}"'
        for _ in range(200):
            assert call(prepared, text=name).output == name.encode()

    in_threads(8, work)


@pytest.mark.slow
def test_threads_get_their_own_answers_from_a_python_tool(hostile):
    names = iter(range(1000))

    def work():
        name = next(names)
        for _ in range(20):
            assert call(hostile, "remember", str(name)).output == f"[{name}]".encode()

    in_threads(8, work)


@pytest.mark.parametrize("calls", [200, pytest.param(20_000, marks=pytest.mark.soak)])
def test_calls_leave_nothing_behind(prepare, calls):
    prepared = prepare(wat_guest(ECHO))

    def rush(times):
        for _ in range(times):
            call(prepared, text='"x"' * 1000)

    in_threads(4, lambda: rush(50))
    before = Footprint()
    in_threads(4, lambda: rush(calls // 4))
    Footprint().assert_not_above(before, resident_slack_bytes=2 * MIB)


def test_large_texts_go_in_and_out_whole(prepare):
    text = '"' + "ä" * 400_000 + '"'
    guest = wat_guest(ECHO, pages=32)
    assert call(prepare(guest), text=text).output == text.encode()


def test_lanes_come_and_go_without_a_trace(tmp_path):
    home = LaneHome(cache_dir=str(tmp_path / "cache"))
    artifact = Artifact(wat_guest(ECHO))

    def live():
        lane = WasiLane()
        lane.configure(home)
        assert call(lane.prepare(artifact)).output == b"null"
        lane.close()

    live()
    live()
    before = Footprint()
    for _ in range(20):
        live()
    Footprint().assert_not_above(before, resident_slack_bytes=2 * MIB)


def test_closing_the_lane_ends_its_cells_first(tmp_path):
    lane = WasiLane()
    lane.configure(LaneHome(cache_dir=str(tmp_path / "cache")))
    prepared = lane.prepare(Artifact(wat_guest("(loop (br 0)) unreachable")))
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(call(prepared, wall_time_ms=60_000)))
    thread.start()
    while not RUNNING:
        assert thread.is_alive()
    lane.close()
    thread.join()
    assert outcomes[0].error.message == "the lane is being closed"


def test_deadlines_hold_in_a_forked_process(prepare):
    """A fork copies no thread: without a new ticker the guest would spin for ever."""
    prepared = prepare(wat_guest("(loop (br 0)) unreachable"))
    call(prepared, wall_time_ms=20)
    child = os.fork()
    if child == 0:
        outcome = call(prepared, wall_time_ms=50, fuel=20_000_000_000)
        os._exit(0 if outcome.error.limit == "wall_time_ms" else 1)
    assert os.waitpid(child, 0)[1] == 0
