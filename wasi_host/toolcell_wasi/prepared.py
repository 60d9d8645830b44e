"""A prepared artifact: compiled, imports resolved, linked once; a fresh cell per call.

Owns the order of one run in the wasi lane: cell, instance, call, measure, close. What ends a run
is decided elsewhere (session, engine, cell); here each way out becomes an `Outcome`.
"""

import time
from collections.abc import Callable

from toolcell.artifact.manifest import Manifest
from toolcell.errors import InternalError, InvalidInput, LaneUnavailable, ToolcellError
from toolcell.lane import Outcome, Request
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import Session
from toolcell_wasi.cell import Cell
from toolcell_wasi.engine import Component, Err, Linker, ResultTooLarge, Store, StoreLimits
from toolcell_wasi.engine.component import ExportIndex
from toolcell_wasi.engine.wit import STRING
from toolcell_wasi.faults import fault_of, fault_of_record, output_too_large
from toolcell_wasi.imports import ResolvedImports, check_grant
from toolcell_wasi.ticker import Ticker

MIB = 1024 * 1024
MAX_MEMORY_MB = 4096
"""What a 32-bit linear memory can hold."""

INVOKE_PARAMS = (STRING, STRING)


class PreparedComponent:
    """One component, ready to run any number of times. Thread-safe: calls share only what is
    immutable. Meets `toolcell.lane.Prepared`.
    """

    def __init__(
        self,
        *,
        component: Component,
        invoke: ExportIndex,
        imports: ResolvedImports,
        manifest: Manifest,
        ticker: Ticker,
        warnings: tuple[str, ...] = (),
        on_close: Callable[["PreparedComponent"], None],
    ) -> None:
        self._component = component
        self._invoke = invoke
        self._interfaces = imports.interfaces
        self._manifest = manifest
        self._ticker = ticker
        self._warnings = warnings
        self._on_close = on_close
        self._linker: Linker | None = Linker(component, imports.definitions, imports.resource_kinds)

    def admit(self, envelope: PolicyEnvelope) -> None:
        """Refuses an envelope that this artifact can't run under."""
        needs = self._manifest.sandbox
        for demand, given in (
            (f"filesystem={needs.filesystem}", needs.filesystem != "host"),
            (f"network={needs.network}", needs.network != "full"),
        ):
            if not given:
                raise LaneUnavailable(
                    f"the tool demands {demand}, which the wasi lane does not give",
                    remedy="run it in a lane that does, or build it without that need",
                    details={"feature": demand},
                )
        check_grant(self._interfaces, envelope)

    def invoke(self, request: Request, session: Session) -> Outcome:
        """Runs `request` in a fresh cell."""
        cell = Cell(session, self._component.engine.config.max_wasm_stack_bytes)
        outcome = Outcome(usage=cell.usage, warnings=self._warnings)
        try:
            session.check()
            self._run(request, cell, outcome)
        except Exception as error:  # noqa: BLE001 - each is mapped, in one place
            outcome.output = None
            outcome.error = _error_of(error, cell)
        outcome.stdout = cell.stdio.text("stdout")
        outcome.stderr = cell.stdio.text("stderr")
        outcome.receipt = _receipt(session)
        return outcome

    def _run(self, request: Request, cell: Cell, outcome: Outcome) -> None:
        """Makes the instance, calls it, measures it, and is rid of it, whatever happens."""
        session = cell.session
        since = time.perf_counter()
        # The store is closed before the run counts as over: the lane frees the engine after that.
        with self._ticker.running(session.cancel):
            store = Store(self._component.engine, _limits_of(session.envelope), cell)
            try:
                store.instantiate(self._linker_of_open())
                since = _stage(outcome, "instantiate", since)
                self._call(store, request, cell, outcome)
                # A ceiling holds for a run that went over it and came back all the same.
                session.check(cell.measure().cpu_ms)
            finally:
                since = _stage(outcome, "guest", since)
                try:
                    _measure(store, cell)
                finally:
                    store.close()
                _stage(outcome, "discard", since)

    def _call(self, store: Store, request: Request, cell: Cell, outcome: Outcome) -> None:
        """Sets the outcome's output to the guest's JSON text, or its error to the guest's fault."""
        try:
            text = request.input.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidInput("the input is not UTF-8", status=400) from None
        try:
            result = store.call(
                self._invoke,
                INVOKE_PARAMS,
                request.method,
                text,
                max_bytes=cell.session.envelope.max_output_bytes,
            )
        except ResultTooLarge as error:
            raise output_too_large(error) from None
        if isinstance(result, Err):
            outcome.error = fault_of_record(result.value, cell)
        else:
            outcome.output = result.encode("utf-8")
            cell.usage.bytes_out = len(outcome.output)

    def _linker_of_open(self) -> Linker:
        if self._linker is None:
            raise InternalError("the prepared artifact is closed")
        return self._linker

    def close(self) -> None:
        """Frees linker and code. Idempotent; nothing may be running."""
        if self._linker is not None:
            linker, self._linker = self._linker, None
            linker.close()
            self._component.close()
            self._on_close(self)


def _limits_of(envelope: PolicyEnvelope) -> StoreLimits:
    return StoreLimits(
        memory_bytes=min(envelope.memory_mb, MAX_MEMORY_MB) * MIB, fuel=envelope.fuel
    )


def _measure(store: Store, cell: Cell) -> None:
    usage = cell.measure()
    usage.fuel = store.fuel_used()
    usage.syscalls = store.host_calls
    usage.log_bytes_dropped = cell.stdio.dropped


def _error_of(error: Exception, cell: Cell) -> ToolcellError:
    """The outcome's error. A bug of ours is raised, with its cause."""
    mapped = fault_of(error, cell, cell.usage.fuel)
    if isinstance(mapped, InternalError) and mapped is not error:
        raise mapped from error
    # It is a value from here on: its frames would keep the cell and the store alive.
    mapped.__context__ = None
    return mapped.with_traceback(None)


def _stage(outcome: Outcome, name: str, since: float) -> float:
    now = time.perf_counter()
    outcome.stages_us[name] = (now - since) * 1e6
    return now


def _receipt(session: Session) -> dict[str, object]:
    """What was in force, in this lane's terms."""
    envelope = session.envelope
    return {
        "boundary": "webassembly",
        "fresh_instance": True,
        "memory_max_bytes": min(envelope.memory_mb, MAX_MEMORY_MB) * MIB,
        "wall_time_ms": session.deadline.limit_ms,
        "cpu_time_ms": envelope.cpu_time_ms,
        "fuel": envelope.fuel,
        "deterministic": envelope.deterministic,
        "preopens": 0,
        "sockets": 0,
        "environment": 0,
    }
