"""The wasi lane: WASI 0.2 components in this process. Registered as `toolcell.lanes: wasi`.

Owns the engine, its ticker and the way from an artifact to a prepared component. The runtime
finds it through the entry point and knows it by the lane contract only.
"""

import os
import resource
import threading
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from toolcell.artifact.component import component_imports
from toolcell.artifact.manifest import Manifest
from toolcell.artifact.shown import shown
from toolcell.errors import ArtifactRejected, ConfigError, InternalError, LaneUnavailable
from toolcell.lane import Artifact, LaneHome, Probe
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import CancelToken
from toolcell_wasi.aot.cache import CompiledCache
from toolcell_wasi.aot.compiler import CompileLimits, Compiler
from toolcell_wasi.engine import Component, Engine, EngineConfig, EngineFailure, FunctionType
from toolcell_wasi.engine.component import COMPONENT_PREAMBLE, ExportIndex
from toolcell_wasi.engine.wit import STRING, Result, signature
from toolcell_wasi.host.capabilities import FAULT, PACKAGE, PACKAGE_VERSION
from toolcell_wasi.imports import check_grant, named_interfaces, resolve_imports
from toolcell_wasi.prepared import INVOKE_PARAMS, PreparedComponent
from toolcell_wasi.probe import probe_engine
from toolcell_wasi.ticker import Ticker

__all__ = ["WasiLane", "WasiSettings"]

MIB = 1024 * 1024
GUEST_INTERFACE = f"{PACKAGE}/guest@{PACKAGE_VERSION}"
GUEST_FUNCTION = "invoke"
INVOKE_RESULT = Result(STRING, FAULT)
SLOT_BYTES = 4 * 1024**3 + 64 * MIB
"""Address space that the pool reserves per cell: what 32 bits reach, and guards around it."""


class WasiSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The lane's table of the configuration file.

    `cells`: how many can be alive at once, 256 or 8 per core, whichever is more; a call beyond
    that is refused with status 503.
    `tick_ms`: how often running guests are looked at, 5; bounds how late a deadline is seen.
    `cache_mb`: compiled code kept on disk, 2048. `compile_timeout_s`: 120.
    """

    cells: Annotated[int, Meta(ge=1, le=4096)] = max(256, 8 * (os.cpu_count() or 1))
    tick_ms: Annotated[float, Meta(ge=1, le=20)] = 5.0
    cache_mb: Annotated[int, Meta(ge=0, le=1024 * 1024)] = 2048
    compile_timeout_s: Annotated[int, Meta(ge=1, le=3600)] = 120


class WasiLane:
    """Meets `toolcell.lane.Lane`. Thread-safe once configured."""

    name = "wasi"
    isolation = 1

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._ticker: Ticker | None = None
        self._cache: CompiledCache | None = None
        self._compiler: Compiler | None = None
        self._settings = WasiSettings()
        self._fingerprint = ""
        self._closed = False
        self._lock = threading.Lock()
        self._open: set[PreparedComponent] = set()

    def configure(self, home: LaneHome) -> None:
        """Reads the settings and opens the cache. The engine is made on first use."""
        try:
            self._settings = msgspec.convert(dict(home.settings), WasiSettings)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"settings of the wasi lane: {error}",
                remedy=f"known: {', '.join(WasiSettings.__struct_fields__)}",
            ) from None
        self._cache = CompiledCache(Path(home.cache_dir), self._settings.cache_mb * MIB, home.warn)
        self._compiler = Compiler(CompileLimits(timeout_s=self._settings.compile_timeout_s))

    def probe(self) -> Probe:
        """Runs a small guest against each ceiling."""
        try:
            engine, ticker = self._started()
        except LaneUnavailable as error:
            return Probe(
                available=False,
                features={str(error.details["feature"]): error.message},
                reason=error.message,
                remedy=error.remedy,
            )
        return probe_engine(engine, ticker)

    def screen(self, artifact: Artifact, envelope: PolicyEnvelope) -> None:
        """Refuses an import that is not granted, by the names in the binary alone."""
        manifest = artifact.manifest
        names = component_imports(artifact.read(manifest.entry_point))
        check_grant(named_interfaces(names or (), manifest), envelope)

    def prepare(self, artifact: Artifact) -> PreparedComponent:
        """Compiles or loads the artifact's component, checks its imports and links it."""
        engine, ticker = self._started()
        manifest = artifact.manifest
        wasm = artifact.read(manifest.entry_point)
        if not wasm.startswith(COMPONENT_PREAMBLE):
            raise ArtifactRejected(
                f"{manifest.entry_point} is not a WebAssembly component",
                remedy="build it with `toolcell build`, or wrap a WASI 0.1 module in its adapter",
                status=400,
            )
        # Counts as a run: closing the lane waits for it instead of freeing the engine under it.
        with ticker.running(CancelToken()):
            component, warnings = self._load(engine, wasm)
            try:
                prepared = self._link(component, manifest, ticker, warnings)
            except BaseException:
                component.close()
                raise
            with self._lock:
                self._open.add(prepared)
        return prepared

    def _link(
        self, component: Component, manifest: Manifest, ticker: Ticker, warnings: tuple[str, ...]
    ) -> PreparedComponent:
        try:
            return PreparedComponent(
                component=component,
                invoke=_find_invoke(component),
                imports=resolve_imports(component.imports(), manifest),
                manifest=manifest,
                ticker=ticker,
                warnings=warnings,
                on_close=self._forget,
            )
        except EngineFailure as error:
            raise ArtifactRejected(
                f"the component can't be linked: {shown(error.message)}"
            ) from None

    def _load(self, engine: Engine, wasm: bytes) -> tuple[Component, tuple[str, ...]]:
        """From the cache where an entry can be believed, else compiled and kept.

        With what the callers should be warned of: code that can't be kept is made again and again.
        """
        if self._cache is None or self._compiler is None:
            raise InternalError("the wasi lane was not configured")
        name = self._cache.name_of(wasm, self._fingerprint)
        code = self._cache.load(name)
        if code is not None:
            with code:
                try:
                    return engine.load(code.path), ()
                except EngineFailure as error:
                    # Authentic, but of another build of wasmtime or another CPU.
                    self._cache.reject(name, error.message)
        with self._compiler.compile(wasm) as compiled:
            try:
                component = engine.load(compiled.path)
            except EngineFailure as error:
                raise ArtifactRejected(
                    f"the component needs more than a cell has: {shown(error.message, 500)}",
                    remedy="build it with one memory and smaller tables",
                    status=413,
                ) from None
            failure = self._cache.store(name, compiled)
            return component, (failure,) if failure else ()

    def _started(self) -> tuple[Engine, Ticker]:
        with self._lock:
            if self._closed:
                raise InternalError("the wasi lane is closed", remedy="make a new Runtime")
            if self._engine is None or self._ticker is None:
                require_address_space(self._settings.cells)
                config = EngineConfig(cells=self._settings.cells)
                self._engine = Engine(config)
                self._fingerprint = config.fingerprint()
                self._ticker = Ticker(self._engine.increment_epoch, self._settings.tick_ms)
            return self._engine, self._ticker

    def _forget(self, prepared: PreparedComponent) -> None:
        with self._lock:
            self._open.discard(prepared)

    def interrupt(self) -> None:
        """Kills the compiling children."""
        if self._compiler is not None:
            self._compiler.close()

    def close(self) -> None:
        """Ends every cell, then closes what is prepared, then the engine. Idempotent.

        A cell that can't be ended (a host function that hangs) keeps its engine: freeing what is
        in use would take the process down.
        """
        with self._lock:
            engine, self._engine = self._engine, None
            ticker, self._ticker = self._ticker, None
            self._closed = True
        if ticker is not None and not ticker.close():
            return
        for prepared in list(self._open):
            prepared.close()
        if engine is not None:
            engine.close()


def _find_invoke(component: Component) -> ExportIndex:
    export = component.exports().get(GUEST_INTERFACE, {}).get(GUEST_FUNCTION)
    index = component.export_index(GUEST_INTERFACE, GUEST_FUNCTION)
    if (
        index is None
        or not isinstance(export, FunctionType)
        or not export.matches(INVOKE_PARAMS, INVOKE_RESULT)
    ):
        raise ArtifactRejected(
            f"the component does not export `{GUEST_INTERFACE}#{GUEST_FUNCTION}` as "
            f"`{signature(INVOKE_PARAMS, INVOKE_RESULT)}`",
            remedy="build it against the world of toolcell_sdk",
        )
    return index


def require_address_space(cells: int) -> None:
    """Refuses where the pool would not fit: wasmtime aborts the process where it can't reserve."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = cells * SLOT_BYTES
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise LaneUnavailable(
            f"{cells} cells reserve {needed >> 30} GiB of address space; RLIMIT_AS is "
            f"{limit >> 30} GiB (process {os.getpid()})",
            remedy="raise RLIMIT_AS (ulimit -v unlimited), or lower `cells` of the wasi lane",
            details={"feature": "address-space"},
        )
