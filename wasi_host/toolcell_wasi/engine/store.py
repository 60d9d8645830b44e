"""Stores: one fresh guest, its ceilings, and the way in and out of it.

Owns instantiating, calling, and the guard that carries whatever a host function or the epoch
callback raised, `BaseException` included, past wasmtime to whoever called. One store is used by
one thread; wasmtime calls back on that same thread.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from toolcell_wasi.engine import capi
from toolcell_wasi.engine.component import Engine, ExportIndex
from toolcell_wasi.engine.errors import (
    EngineFailure,
    ResultTooLarge,
    ValueTooLarge,
    new_error,
    raise_failure,
    trap_from,
)
from toolcell_wasi.engine.linker import RUNNING, HostFunction, Linker
from toolcell_wasi.engine.signals import deliver_signals, held_signals, unguarded
from toolcell_wasi.engine.stack import require_stack
from toolcell_wasi.engine.values import Lifter
from toolcell_wasi.engine.wit import WitType

UNCAPPED_FUEL = 2**62
"""Years of it. Fuel is always counted, so that a run can report what it used."""

CALLS_PER_TICK = 16
"""Host calls after which a guest is looked at, whatever the epoch says. Compiled code asks for the
epoch in loops and where a function begins, so a function that is nothing but two million host calls
would never be asked. The longest call that does not look itself, a write of 4,096 empty lines,
takes 1 to 2 ms."""


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Ceilings of one store. `fuel` 0 counts without a cap."""

    memory_bytes: int
    fuel: int = 0


class Guest(Protocol):
    """What host functions get: the state of one run. Made by the lane."""

    max_argument_bytes: int
    """Strings and bytes that one host call may hand over."""

    def on_tick(self) -> None:
        """Called at each epoch tick while the guest computes, and between its host calls. Raises
        to end it.
        """

    def drop(self, number: int) -> None:
        """The guest dropped the resource of that number."""


class Store:
    """A fresh guest. Close it always: it is the only thing that gives its cell back to the pool.

    The first exception of a host function is kept and raised by :meth:`call`; what wasmtime makes
    of it is dropped.
    """

    def __init__(self, engine: Engine, limits: StoreLimits, guest: Guest) -> None:
        self.guest = guest
        self.host_calls = 0
        self.raised: BaseException | None = None
        self._fuel = limits.fuel or UNCAPPED_FUEL
        self._functions: list[HostFunction] = []
        self._stack_bytes = engine.config.max_wasm_stack_bytes
        self._address = capi.store_new(engine.address, None, None)
        self._context = capi.store_context(self._address)
        self._instance = (ctypes.c_uint64 * (capi.INSTANCE_BYTES // 8))()
        config = engine.config
        capi.store_limiter(
            self._address,
            limits.memory_bytes,
            config.table_elements,
            config.core_instances,
            config.tables,
            config.memories,
        )
        raise_failure(capi.context_set_fuel(self._context, self._fuel))
        capi.context_set_epoch_deadline(self._context, 1)
        capi.store_epoch_callback(self._address, _EPOCH, None, None)
        RUNNING[self._context] = self

    def instantiate(self, linker: Linker) -> None:
        """Makes the instance and runs its start functions. Raises like :meth:`call`."""
        self._functions = linker.functions
        self._enter(
            lambda: capi.linker_instantiate(
                linker.address,
                self._context,
                linker.component.address,
                ctypes.addressof(self._instance),
            )
        )

    def call(
        self, index: ExportIndex, params: tuple[WitType, ...], *values: Any, max_bytes: int
    ) -> Any:
        """Calls the export at `index` and lifts its one result, at most `max_bytes` of it.

        Raises :class:`Trapped`, :class:`ResultTooLarge`, or what a host function raised.
        """
        func = (ctypes.c_uint64 * (capi.FUNC_BYTES // 8))()
        found = capi.instance_get_func(
            ctypes.addressof(self._instance),
            self._context,
            index.address,
            ctypes.addressof(func),
        )
        if not found:
            raise EngineFailure("the instance lacks the export that its component declares")
        pairs = zip(params, values, strict=True)
        lowered = b"".join([kind.lower(value, self._context) for kind, value in pairs])
        arguments = ctypes.create_string_buffer(lowered, len(lowered) or 1)
        # Zeroed: wasmtime drops what was in the result before it writes there.
        result = ctypes.create_string_buffer(capi.VALUE_BYTES)
        result_at = ctypes.addressof(result)
        try:
            self._enter(
                lambda: capi.func_call(
                    ctypes.addressof(func),
                    self._context,
                    ctypes.addressof(arguments),
                    len(params),
                    result_at,
                    1,
                )
            )
            return self._lift_result(result_at, max_bytes)
        finally:
            capi.value_delete(result_at)
            for at in range(len(params)):
                capi.value_delete(ctypes.addressof(arguments) + at * capi.VALUE_BYTES)

    def _lift_result(self, address: int, max_bytes: int) -> Any:
        try:
            return Lifter(self._context, max_bytes).one(address)
        except ValueTooLarge as error:
            raise ResultTooLarge(error.allowed, error.used, error.unit) from None

    def _enter(self, run: Callable[[], int | None]) -> None:
        require_stack(self._stack_bytes)
        with held_signals():
            error = run()
        if self.raised is not None:
            if error:
                capi.error_delete(error)
            try:
                raise self.raised
            finally:
                self.raised = None  # its frames hold this store: a circle for the collector
        if error:
            raise trap_from(error)

    # The three ways in. A signal can strike in the frame of each before its `try` is entered, where
    # an exception would be lost, so there it is put off and the guarded part begins with it.

    @unguarded
    def serve(self, index: int | None, arguments: int, count: int, results: int) -> int:
        """Serves one host call; called by wasmtime. The result is an error's address, or 0."""
        try:
            self._serve(index, arguments, count, results)
        except BaseException as error:  # noqa: BLE001 - nothing may pass through wasmtime
            return self._keep(error)
        return 0

    @unguarded
    def drop_resource(self, number: int) -> int:
        """Called by wasmtime when the guest drops a handle that it owned."""
        try:
            self._drop(number)
        except BaseException as error:  # noqa: BLE001
            return self._keep(error)
        return 0

    @unguarded
    def tick(self, ticks_out: int, kind_out: int) -> int:
        """Called by wasmtime when the epoch has moved on."""
        try:
            self._tick(ticks_out, kind_out)
        except BaseException as error:  # noqa: BLE001
            return self._keep(error)
        return 0

    def _serve(self, index: int | None, arguments: int, count: int, results: int) -> None:
        deliver_signals()
        self.host_calls += 1
        if self.host_calls % CALLS_PER_TICK == 0:
            self.guest.on_tick()
        function = self._functions[index or 0]
        value = self._result_of(function, arguments, count)
        if function.result is not None:
            lowered = function.result.lower(value, self._context)
            ctypes.memmove(results, lowered, capi.VALUE_BYTES)

    def _result_of(self, function: HostFunction, arguments: int, count: int) -> Any:
        if function.params is None:
            return function.call(self.guest)
        max_bytes = function.max_bytes
        if max_bytes is None:
            max_bytes = self.guest.max_argument_bytes
        try:
            values = Lifter(self._context, max_bytes).many(arguments, count)
        except ValueTooLarge as error:
            if function.too_large is None:
                raise
            return function.too_large(error.allowed, error.used)
        return function.call(self.guest, *values)

    def _drop(self, number: int) -> None:
        deliver_signals()
        self.guest.drop(number)

    def _tick(self, ticks_out: int, kind_out: int) -> None:
        deliver_signals()
        self.guest.on_tick()
        ctypes.c_uint64.from_address(ticks_out).value = 1
        ctypes.c_uint8.from_address(kind_out).value = capi.UPDATE_CONTINUE

    @unguarded
    def _keep(self, error: BaseException) -> int:
        if self.raised is None:
            self.raised = error
        return new_error(b"ended by the host")

    def fuel_used(self) -> int:
        """Fuel burnt so far."""
        left = ctypes.c_uint64()
        raise_failure(capi.context_get_fuel(self._context, ctypes.addressof(left)))
        return self._fuel - left.value

    def close(self) -> None:
        """Frees the guest and all that it had. Idempotent."""
        if self._address:
            address, self._address = self._address, 0
            RUNNING.pop(self._context, None)
            capi.store_delete(address)


@unguarded
def _on_epoch(context: int, _data: int, ticks_out: int, kind_out: int) -> int:
    return RUNNING[context].tick(ticks_out, kind_out)


_EPOCH = capi.EPOCH_CALLBACK(_on_epoch)
