"""What a cell costs: fresh instance and call, a host call, large texts. Compare, don't assert."""

import pytest
from wasi_cell import call
from wasi_guests import ECHO, importing, waiting, wat_guest

from toolcell_wasi.engine import Store, StoreLimits

MANY = 1000


def test_fresh_cell_of_a_small_guest(benchmark, prepare):
    prepared = prepare(wat_guest(ECHO))
    assert benchmark(call, prepared).output == b"null"


def test_fresh_cell_of_a_python_tool(benchmark, hostile):
    assert benchmark(call, hostile, "echo", "1").output == b"1"


def test_instantiating_alone(benchmark, prepare):
    """The floor: a store and an instance, without session, streams, clocks and call."""
    prepared = prepare(wat_guest(ECHO))

    class Nobody:
        max_argument_bytes = 0

        def on_tick(self):
            pass

    def instantiate():
        store = Store(prepared._component.engine, StoreLimits(1 << 20), Nobody())
        store.instantiate(prepared._linker)
        store.close()

    benchmark(instantiate)


def test_a_thousand_host_calls(benchmark, prepare):
    guest = waiting(
        f"""(local $i i32)
        (loop (drop (call $now)) (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if 0 (i32.lt_u (local.get $i) (i32.const {MANY})))) {ECHO}"""
    )
    prepared = prepare(guest)
    assert benchmark(call, prepared).usage.syscalls == MANY


@pytest.mark.parametrize("count", [256, 16384])
def test_random_bytes(benchmark, prepare, count):
    guest = importing(
        "wasi:random/random@0.2.0",
        "get-random-bytes",
        '(param "len" u64) (result (list u8))',
        "(param i64 i32)",
        f"(call $f (i64.const {count}) (i32.const 16)) {ECHO}",
    )
    assert benchmark(call, prepare(guest)).output == b"null"


@pytest.mark.parametrize("size", [1024, 1024 * 1024 - 2])
def test_text_in_and_out(benchmark, prepare, size):
    text = '"' + "x" * size + '"'
    prepared = prepare(wat_guest(ECHO, pages=40))
    assert benchmark(call, prepared, text=text, max_output_bytes=2**21).output == text.encode()
