"""The probe: a guest of our own against each ceiling of the engine, for real.

Owns the probing component, a few lines of WebAssembly text that spin, recurse and grow. Compiled
in this process (it is ours) in some 20 ms.
"""

from collections.abc import Mapping

import wasmtime

from toolcell.lane import Probe
from toolcell.session import CancelToken
from toolcell_wasi.aot.sealed import SealedFile
from toolcell_wasi.engine import (
    Component,
    Engine,
    EngineFailure,
    HostFunction,
    Linker,
    Store,
    StoreLimits,
    TrapCode,
    Trapped,
)
from toolcell_wasi.engine.wit import U32
from toolcell_wasi.ticker import Ticker

MIB = 1024 * 1024
REFUSED = 0xFFFF_FFFF
"""`memory.grow` that was refused: -1."""

BY_DESIGN = {
    "filesystem=ephemeral": "",
    "network=outbound-https-only": "",
    "deterministic": "",
    "filesystem=host": "a cell has no file system, only `fs.*` under /scratch",
    "network=full": "a cell has no sockets, only `http.fetch`",
}
"""Demands that `toolcell.isolation` asks about. Our host's code decides them, not this machine:
scratch and HTTPS go through the broker, clocks and randomness are host functions."""

ANSWER = 42
HOST = "probe:host/answer"
PROBE_WAT = f"""
(component
  (import "{HOST}" (instance $host (export "answer" (func (result u32)))))
  (core func $answer (canon lower (func $host "answer")))
  (core module $m
    (import "host" "answer" (func $answer (result i32)))
    (memory 1)
    (func (export "spin") (result i32) (loop (br 0)) (i32.const 0))
    (func $recurse (export "recurse") (result i32) (i32.add (call $recurse) (i32.const 1)))
    (func (export "grow") (result i32) (memory.grow (i32.const 1024)))
    (func (export "ask") (result i32) (call $answer)))
  (core instance $i (instantiate $m (with "host" (instance (export "answer" (func $answer))))))
  (func $spin (result u32) (canon lift (core func $i "spin")))
  (func $recurse (result u32) (canon lift (core func $i "recurse")))
  (func $grow (result u32) (canon lift (core func $i "grow")))
  (func $ask (result u32) (canon lift (core func $i "ask")))
  (instance $out
    (export "spin" (func $spin)) (export "recurse" (func $recurse))
    (export "grow" (func $grow)) (export "ask" (func $ask)))
  (export "probe:guest/run" (instance $out)))
"""


class _Stopped(Exception):
    """What the probe's tick raises, to see that it comes through."""


class _ProbeGuest:
    max_argument_bytes = 0

    def __init__(self, *, stop: bool) -> None:
        self._stop = stop

    def on_tick(self) -> None:
        if self._stop:
            raise _Stopped

    def drop(self, number: int) -> None:
        """There are no resources."""


def probe_engine(engine: Engine, ticker: Ticker) -> Probe:
    """Tries each ceiling. A feature that does not work makes the lane unavailable."""
    try:
        with SealedFile.of("toolcell-probe", engine.compile(_wasm())) as code:
            component = engine.load(code.path)
    except EngineFailure as error:
        return _result({"compile": error.message})
    linker = Linker(component, {HOST: {"answer": HostFunction(lambda _: ANSWER, (), U32)}}, {})
    try:
        checks = {"host-functions": _answers, "fuel": _runs_dry, "epoch": _ticks}
        checks |= {"memory": _stays_small, "stack": _overflows}
        with ticker.running(CancelToken()):
            return _result({name: check(component, linker) for name, check in checks.items()})
    finally:
        linker.close()
        component.close()


def _result(features: Mapping[str, str]) -> Probe:
    broken = [f"{name}: {why}" for name, why in features.items() if why]
    return Probe(
        available=not broken,
        features={**features, **BY_DESIGN},
        reason="; ".join(broken),
        remedy="report it with the versions of Python, wasmtime and the CPU" if broken else "",
    )


def _wasm() -> bytes:
    return bytes(wasmtime.wat2wasm(PROBE_WAT))


def _run(
    component: Component, linker: Linker, function: str, *, fuel: int = 0, stop: bool = False
) -> int:
    index = component.export_index("probe:guest/run", function)
    if index is None:
        raise EngineFailure(f"the probe lacks `{function}`")
    guest = _ProbeGuest(stop=stop)
    store = Store(component.engine, StoreLimits(memory_bytes=MIB, fuel=fuel), guest)
    try:
        store.instantiate(linker)
        value: int = store.call(index, (), max_bytes=0)
        return value
    finally:
        store.close()


def _answers(component: Component, linker: Linker) -> str:
    found = _run(component, linker, "ask")
    return "" if found == ANSWER else f"a host function answered {found}, not {ANSWER}"


def _runs_dry(component: Component, linker: Linker) -> str:
    return _traps(component, linker, "spin", TrapCode.FUEL, fuel=10_000)


def _overflows(component: Component, linker: Linker) -> str:
    return _traps(component, linker, "recurse", TrapCode.STACK)


def _traps(
    component: Component, linker: Linker, function: str, code: TrapCode, fuel: int = 0
) -> str:
    try:
        _run(component, linker, function, fuel=fuel)
    except Trapped as trap:
        return "" if trap.code is code else trap.message
    return f"`{function}` was not stopped"


def _ticks(component: Component, linker: Linker) -> str:
    try:
        # The fuel is a way out, should the epoch not work: some seconds of spinning.
        _run(component, linker, "spin", fuel=5_000_000_000, stop=True)
    except _Stopped:
        return ""
    except Trapped as trap:
        return f"the epoch callback was not called ({trap.message})"
    return "the guest was not stopped"


def _stays_small(component: Component, linker: Linker) -> str:
    found = _run(component, linker, "grow")
    return "" if found == REFUSED else "memory grew to 64 MiB under a limit of 1 MiB"
