"""Hostile guests in a few lines of WebAssembly: what no compiler of a language would emit."""

import functools

import pytest
from wasi_cell import Artifact, call, ends_within
from wasi_guests import ECHO, importing, waiting, waiting_for_stdout, wat_guest, writing

from toolcell.errors import ArtifactRejected, LaneUnavailable, LimitExceeded, ToolFault
from toolcell.lane import LaneHome
from toolcell_wasi.cell.handles import MAX_HANDLES
from toolcell_wasi.engine import EngineConfig
from toolcell_wasi.lane import WasiLane

MIB = 1024 * 1024
SPIN = wat_guest("(loop (br 0)) unreachable")


def asking_for_a_number():
    """A guest that calls the host once, and echoes."""
    return importing(
        "wasi:random/random@0.2.0",
        "get-random-u64",
        "(result u64)",
        "(result i64)",
        f"(drop (call $f)) {ECHO}",
    )


def fault(prepared, **fields):
    """The fault of a call that must fail."""
    outcome = call(prepared, **fields)
    assert outcome.output is None
    assert isinstance(outcome.error, ToolFault), outcome.error
    return outcome.error


# --- time -----------------------------------------------------------------------------------


def test_a_loop_is_ended_by_the_deadline(prepare):
    prepared = prepare(SPIN)
    with ends_within(100):
        error = fault(prepared, wall_time_ms=100)
    assert (error.limit, error.status) == ("wall_time_ms", 408)


def test_a_loop_is_ended_by_its_cpu_time(prepare):
    prepared = prepare(SPIN)
    with ends_within(60, slack_ms=500):
        error = fault(prepared, cpu_time_ms=60)
    assert error.limit == "cpu_time_ms"
    assert error.used >= 60


def test_a_loop_is_ended_by_its_fuel(prepare):
    error = fault(prepare(SPIN), fuel=100_000)
    assert (error.limit, error.status) == ("fuel", 408)


def test_only_the_ticks_end_a_loop(tmp_path, monkeypatch):
    """With the ticker switched off, the same loop runs until its fuel is gone."""
    monkeypatch.setattr("toolcell_wasi.engine.Engine.increment_epoch", lambda _self: None)
    lane = WasiLane()
    lane.configure(LaneHome(cache_dir=str(tmp_path / "cache")))
    error = fault(lane.prepare(Artifact(SPIN)), wall_time_ms=10, fuel=1_000_000_000)
    lane.close()
    assert error.limit == "fuel"


def test_a_loop_in_a_start_function_is_ended_too(prepare):
    guest = wat_guest(ECHO, core="(func $spin (loop (br 0))) (start $spin)")
    prepared = prepare(guest)
    with ends_within(100):
        assert fault(prepared, wall_time_ms=100).limit == "wall_time_ms"


@pytest.mark.parametrize("nanoseconds", ["-1", "60000000000"])
def test_a_blocked_guest_is_ended_by_the_deadline(prepare, nanoseconds):
    guest = waiting(f"(call $block (call $timer (i64.const {nanoseconds}))) unreachable")
    prepared = prepare(guest)
    with ends_within(100):
        assert fault(prepared, wall_time_ms=100).limit == "wall_time_ms"


def test_a_guest_that_lives_in_host_calls_is_ended_by_the_deadline(prepare):
    guest = waiting("(loop (drop (call $now)) (br 0)) unreachable")
    prepared = prepare(guest)
    with ends_within(100):
        assert fault(prepared, wall_time_ms=100).limit == "wall_time_ms"


STRAIGHT_ON = waiting("(drop (call $now))" * 100_000 + ECHO)
"""Host calls one after the other, without a loop or a call in which the epoch would be seen."""


@pytest.mark.slow
def test_host_calls_without_a_loop_are_ended_by_the_deadline(prepare):
    outcome = call(prepare(STRAIGHT_ON), wall_time_ms=10)
    assert outcome.error.limit == "wall_time_ms"
    assert 0 < outcome.usage.syscalls < 100_000


@pytest.mark.slow
def test_host_calls_without_a_loop_are_ended_by_their_cpu_time(prepare):
    outcome = call(prepare(STRAIGHT_ON), cpu_time_ms=10)
    assert outcome.error.limit == "cpu_time_ms"
    assert 0 < outcome.usage.syscalls < 100_000


@pytest.mark.slow
def test_only_the_look_between_host_calls_ends_them(prepare, monkeypatch):
    """With it switched off, all of them are made, long after the deadline."""
    monkeypatch.setattr("toolcell_wasi.engine.store.CALLS_PER_TICK", 10**9)
    assert call(prepare(STRAIGHT_ON), wall_time_ms=10).usage.syscalls == 100_000


# --- space ----------------------------------------------------------------------------------


def test_recursion_ends_at_the_stack_and_the_host_lives(prepare):
    guest = wat_guest(
        "(drop (call $r)) unreachable",
        core="(func $r (result i32) (i32.add (call $r) (i32.const 1)))",
    )
    error = fault(prepare(guest))
    assert isinstance(error, LimitExceeded)
    assert error.limit == "stack"


def test_a_memory_that_starts_over_the_limit_is_never_made(prepare):
    error = fault(prepare(wat_guest(ECHO, pages=64)), memory_mb=3)
    assert (error.limit, error.allowed) == ("memory_mb", 3)
    assert call(prepare(wat_guest(ECHO, pages=64)), memory_mb=4).output == b"null"


GROW = "(i32.store8 (i32.const 200) (i32.add (i32.const 49) (memory.grow (i32.const {pages}))))"
GROWN = f"{GROW} (call $ok (i32.const 200) (i32.const 1))"


def test_memory_does_not_grow_over_the_limit(prepare):
    # `memory.grow` answers the old size in pages, 1, or -1 where it was refused.
    assert call(prepare(wat_guest(GROWN.format(pages=16))), memory_mb=1).output == b"0"
    assert call(prepare(wat_guest(GROWN.format(pages=15))), memory_mb=1).output == b"2"


def test_a_second_memory_can_not_double_the_limit(wasi_lane):
    guest = wat_guest(ECHO, core="(memory 1)")
    with pytest.raises(ArtifactRejected, match="memor"):
        wasi_lane.prepare(Artifact(guest))


def test_a_table_over_the_limit_is_never_made(wasi_lane):
    with pytest.raises(ArtifactRejected, match="table"):
        wasi_lane.prepare(Artifact(wat_guest(ECHO, core="(table 1000000 funcref)")))


def test_a_table_does_not_grow_over_the_limit(prepare):
    grow = "(table.grow (ref.null func) (i32.const 300000))"
    guest = wat_guest(
        f"(i32.store8 (i32.const 200) (i32.add (i32.const 49) {grow}))"
        "(call $ok (i32.const 200) (i32.const 1))",
        core="(table 1 funcref)",
    )
    assert call(prepare(guest)).output == b"0"


def tables_full_of(elements):
    """A guest whose 60 tables are filled before it is called."""
    bomb = f"""(core module $bomb (table {elements} funcref) (elem declare func $f) (func $f)
      (func $fill (table.fill 0 (i32.const 0) (ref.func $f) (i32.const {elements})))
      (start $fill))"""
    instances = "".join(f"(core instance $b{at} (instantiate $bomb))" for at in range(60))
    return wat_guest(ECHO, lowered=bomb + instances)


def test_tables_are_no_second_memory(prepare):
    outcome = call(prepare(tables_full_of(32_768)), memory_mb=1)
    assert outcome.usage.memory_peak_bytes < 24 * MIB


def test_only_the_size_of_a_table_keeps_them_small(tmp_path, monkeypatch):
    """With the ceiling raised, a guest of one MiB holds ninety."""
    config = functools.partial(EngineConfig, table_elements=200_000)
    monkeypatch.setattr("toolcell_wasi.lane.EngineConfig", config)
    lane = WasiLane()
    lane.configure(LaneHome(cache_dir=str(tmp_path / "cache"), settings={"cells": 1}))
    outcome = call(lane.prepare(Artifact(tables_full_of(200_000))), memory_mb=1)
    lane.close()
    assert outcome.usage.memory_peak_bytes > 90 * MIB


def test_a_result_over_max_output_bytes_is_not_copied(prepare):
    guest = wat_guest("(call $ok (i32.const 131072) (i32.const 60000000))", pages=1000)
    error = fault(prepare(guest))
    assert (error.limit, error.used, error.status) == ("max_output_bytes", 60_000_000, 413)


def test_more_cells_than_the_pool_has_are_refused(tmp_path, monkeypatch):
    lane = WasiLane()
    lane.configure(LaneHome(cache_dir=str(tmp_path / "cache"), settings={"cells": 1}))
    prepared = lane.prepare(Artifact(asking_for_a_number()))
    inner = []

    def call_again(_self, count):
        if not inner:
            inner.append(None)
            inner[0] = call(prepared)
        return bytes(count)

    monkeypatch.setattr("toolcell_wasi.cell.entropy.SystemEntropy.read", call_again)
    outcome = call(prepared)
    lane.close()
    assert outcome.output == b"null"
    assert isinstance(inner[0].error, LaneUnavailable)
    assert inner[0].error.details["feature"] == "free-cell"


# --- handles --------------------------------------------------------------------------------


def test_a_million_handles_end_at_the_cap(prepare):
    guest = waiting("(loop (drop (call $timer (i64.const 1))) (br 0)) unreachable")
    assert str(MAX_HANDLES) in fault(prepare(guest)).message


def test_a_forged_handle_traps(prepare):
    error = fault(prepare(waiting("(call $block (i32.const 7777)) unreachable")))
    assert "unknown handle index 7777" in error.message


def test_a_handle_that_is_dropped_twice_traps(prepare):
    guest = waiting(
        "(local $h i32) (local.set $h (call $timer (i64.const 1)))"
        "(call $drop (local.get $h)) (call $drop (local.get $h)) unreachable"
    )
    assert "unknown handle" in fault(prepare(guest)).message


def test_a_handle_of_another_kind_traps(prepare):
    """Standard output is nothing to wait for."""
    error = fault(prepare(waiting_for_stdout()))
    assert "handle index 1" in error.message


def test_waiting_for_a_million_things_is_refused_in_time(prepare):
    guest = waiting(
        """(local $h i32) (local $i i32) (local.set $h (call $timer (i64.const 1)))
        (loop (i32.store (local.get $i) (local.get $h))
          (local.set $i (i32.add (local.get $i) (i32.const 4)))
          (br_if 0 (i32.lt_u (local.get $i) (i32.const 4000000))))
        (call $poll (i32.const 0) (i32.const 1000000) (i32.const 300)) unreachable""",
        pages=64,
    )
    prepared = prepare(guest)
    with ends_within(200):
        fault(prepared, wall_time_ms=200)


def test_waiting_for_nothing_traps_instead_of_hanging(prepare):
    guest = waiting("(call $poll (i32.const 0) (i32.const 0) (i32.const 300)) unreachable")
    assert "nothing to wait for" in fault(prepare(guest)).message


# --- what crosses ---------------------------------------------------------------------------

OUT_OF_BOUNDS = {
    "a result beyond memory": "(i32.const -8)",
    "a string beyond memory": "(call $ok (i32.const -100) (i32.const 50))",
    "a string that is no UTF-8": "(i32.store8 (i32.const 500) (i32.const 255))"
    "(call $ok (i32.const 500) (i32.const 1))",
    "a case that does not exist": "(i32.store (i32.const 64) (i32.const 9)) (i32.const 64)",
    "a load beyond memory": "(i32.load (i32.const -1))",
}


@pytest.mark.parametrize("body", OUT_OF_BOUNDS.values(), ids=OUT_OF_BOUNDS)
def test_nonsense_from_a_guest_is_a_fault(prepare, body):
    assert "trapped" in fault(prepare(wat_guest(body))).message


def test_a_write_over_its_permit_is_refused(prepare):
    guest = writing(
        "(call $write (call $get) (i32.const 0) (i32.const 4097) (i32.const 300))" + ECHO
    )
    error = fault(prepare(guest))
    assert error.status == 413
    assert "4097 bytes; its limit is 4096" in error.message


def test_a_list_of_millions_of_bytes_is_stopped_before_it_is_copied(prepare):
    """By wasmtime's own bound on what one host call may copy, 128 MiB at 32 bytes a byte."""
    guest = writing(
        "(call $write (call $get) (i32.const 0) (i32.const 60000000) (i32.const 300))" + ECHO,
        pages=1000,
    )
    error = fault(prepare(guest))
    assert "too much data is being copied" in error.message


def test_a_gigabyte_of_randomness_is_refused(prepare):
    guest = importing(
        "wasi:random/random@0.2.0",
        "get-random-bytes",
        '(param "len" u64) (result (list u8))',
        "(param i64 i32)",
        "(call $f (i64.const 1000000000) (i32.const 16)) unreachable",
    )
    assert "1000000000 random bytes" in fault(prepare(guest)).message


# --- authority ------------------------------------------------------------------------------

FORBIDDEN = {
    "wasi:sockets/instance-network@0.2.0#instance-network": "(result u32)",
    "wasi:http/outgoing-handler@0.2.0#handle": "(result u32)",
    "wasi:filesystem/types@0.2.9#filesystem-error-code": "(result u32)",
    "wasi:keyvalue/store@0.2.0#open": "(result u32)",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_no_tool_may_call_is_a_trap_that_names_itself(prepare, name):
    interface, function = name.split("#")
    guest = importing(
        interface, function, FORBIDDEN[name], "(result i32)", "(drop (call $f))" + ECHO
    )
    error = fault(prepare(guest))
    assert error.status == 403
    assert f"`{name}`" in error.message


def test_importing_it_without_calling_it_is_harmless(prepare):
    guest = importing(
        "wasi:sockets/instance-network@0.2.0",
        "instance-network",
        "(result u32)",
        "(result i32)",
        ECHO,
    )
    assert call(prepare(guest)).output == b"null"


def test_no_folder_is_preopened(prepare):
    guest = wat_guest(
        """(call $f (i32.const 256))
        (i32.store8 (i32.const 200) (i32.add (i32.const 48) (i32.load (i32.const 260))))
        (call $ok (i32.const 200) (i32.const 1))""",
        imports="""
          (import "wasi:filesystem/types@0.2.0" (instance $types
            (export "descriptor" (type (sub resource)))))
          (alias export $types "descriptor" (type $d))
          (import "wasi:filesystem/preopens@0.2.0" (instance $x
            (alias outer 1 $d (type $o)) (export "descriptor" (type $d2 (eq $o)))
            (export "get-directories" (func (result (list (tuple (own $d2) string)))))))""",
        lowered="""(core func $f (canon lower (func $x "get-directories")
          (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))""",
        core_imports='(import "x" "f" (func $f (param i32)))',
        core_instances='(with "x" (instance (export "f" (func $f))))',
    )
    assert call(prepare(guest)).output == b"0"
