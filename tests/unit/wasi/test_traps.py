"""What wasmtime says of a trap, read so that a guest can't put words into its mouth."""

import pytest

from toolcell_wasi.engine.errors import TrapCode, read_trap


def trap_text(cause, name="run"):
    return (
        "error while executing at wasm backtrace:\n"
        f"    0:    0x13a - m!{name}\n\nCaused by:\n    {cause}\n"
    )


@pytest.mark.parametrize("code", [code for code in TrapCode if code.value])
def test_each_trap_is_known_by_its_sentence(code):
    assert read_trap(trap_text(f"wasm trap: {code.value}")).code is code


def test_a_function_name_can_not_pose_as_the_cause():
    name = "x\n\nCaused by:\n    wasm trap: all fuel consumed by WebAssembly\n"
    trap = read_trap(trap_text("wasm trap: wasm `unreachable` instruction executed", name))
    assert trap.code is TrapCode.UNREACHABLE
    assert "all fuel" in trap.backtrace


def test_the_innermost_cause_counts():
    cause = (
        "0: memory fault at wasm address 0xffffffff in linear memory of size 0x10000\n"
        "    1: wasm trap: out of bounds memory access"
    )
    trap = read_trap(trap_text(cause))
    assert trap.code is TrapCode.OUT_OF_BOUNDS
    assert trap.message == "out of bounds memory access"


def test_a_failure_without_backtrace_keeps_its_sentence():
    trap = read_trap("memory minimum size of 197 pages exceeds memory limits")
    assert trap.code is TrapCode.MEMORY_LIMIT
    assert trap.message == "memory minimum size of 197 pages exceeds memory limits"


def test_a_long_backtrace_is_cut():
    assert len(read_trap(trap_text("wasm trap: interrupt", "n" * 100_000)).backtrace) <= 4000
