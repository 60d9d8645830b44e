"""Engine and components: what is made once and used by every call.

Owns compiling (in the compiling child only, see `toolcell_wasi.compile`), loading of compiled
components, and reading what a component imports and exports. It must never be given compiled
code whose origin was not checked: loading it is running it.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import wasmtime
from wasmtime import _bindings
from wasmtime import component as wc

from toolcell_wasi.engine import wit
from toolcell_wasi.engine.config import EngineConfig
from toolcell_wasi.engine.errors import EngineFailure

COMPONENT_PREAMBLE = b"\0asm\x0d\0\x01\0"
"""Magic, version 13, layer 1 (component-model `Binary.md`). A core module has layer 0."""

MAX_ITEMS = 1024
"""What a component may import, interfaces and their members together, and what it may export; a
Python tool imports some 190. wasmtime finds the nth by counting from the first, so looking through
20,000 of them takes 11 s, four times as long for twice as many, and nothing can interrupt it."""


def address_of(managed: Any) -> int:
    """The address that a wasmtime-py object owns."""
    return ctypes.cast(managed.ptr(), ctypes.c_void_p).value or 0


@dataclass(frozen=True, slots=True)
class FunctionType:
    """A function that a component imports or exports."""

    declared: wc.FuncType = field(repr=False)

    def matches(self, params: Sequence[wit.WitType], result: wit.WitType | None) -> bool:
        """Whether it is the function type that we serve or call."""
        return wit.is_function(self.declared, params, result)


@dataclass(frozen=True, slots=True)
class ResourceImport:
    """A resource type that a component imports."""


Import = FunctionType | ResourceImport
Interfaces = Mapping[str, Mapping[str, Import]]
"""Interface name with version -> member -> what it is. A bare function is a member of itself."""


class Engine:
    """One wasmtime engine: a code space, a pool of cells, an epoch. Thread-safe."""

    def __init__(self, config: EngineConfig | None = None, *, pooling: bool = True) -> None:
        self.config = config or EngineConfig()
        self.raw = wasmtime.Engine(self.config.build(pooling=pooling))
        self.address = address_of(self.raw)

    def increment_epoch(self) -> None:
        """One tick: each running store calls back at its next loop or function entry."""
        self.raw.increment_epoch()

    def compile(self, wasm: bytes) -> bytes:
        """Compiled form of a component. Seconds and hundreds of MiB for a Python tool."""
        if not wasm.startswith(COMPONENT_PREAMBLE):
            raise EngineFailure("not a WebAssembly component (wrong preamble)")
        try:
            with wc.Component(self.raw, wasm) as component:
                return bytes(component.serialize())
        except wasmtime.WasmtimeError as error:
            raise EngineFailure(str(error)) from None

    def load(self, path: str) -> "Component":
        """Maps compiled code from `path`. The caller has checked where it came from."""
        try:
            return Component(self, wc.Component.deserialize_file(self.raw, path))
        except wasmtime.WasmtimeError as error:
            raise EngineFailure(str(error)) from None

    def close(self) -> None:
        """Frees the engine. Everything made from it must be closed before."""
        self.raw.close()


class Component:
    """A compiled component, ready to be instantiated any number of times. Thread-safe."""

    def __init__(self, engine: Engine, raw: wc.Component) -> None:
        self.engine = engine
        self._raw = raw
        self.address = address_of(raw)

    def imports(self) -> Interfaces:
        """What it imports, down to the functions of each interface. At most :data:`MAX_ITEMS`."""
        kind = self._raw.type
        count = _bindings.wasmtime_component_type_import_count(kind.ptr(), self.engine.raw.ptr())
        return self._interfaces(count, kind.imports)

    def exports(self) -> Interfaces:
        """What it exports, likewise."""
        kind = self._raw.type
        count = _bindings.wasmtime_component_type_export_count(kind.ptr(), self.engine.raw.ptr())
        return self._interfaces(count, kind.exports)

    def _interfaces(self, count: int, externs: Callable[..., Mapping[str, Any]]) -> Interfaces:
        require_few(count)
        found: dict[str, dict[str, Import]] = {}
        for name, extern in externs(self.engine.raw).items():
            kind = extern.ty
            members = {name: extern}
            if isinstance(kind, wc.ComponentInstanceType):
                raw_engine = self.engine.raw.ptr()
                count += _bindings.wasmtime_component_instance_type_export_count(
                    kind.ptr(), raw_engine
                )
                require_few(count)
                members = kind.exports(self.engine.raw)
            found[name] = {}
            for member, inner in members.items():
                read = _import_of(inner.ty)
                if read is not None:
                    found[name][member] = read
        return found

    def export_index(self, interface: str, function: str) -> "ExportIndex | None":
        """Where `function` of the exported `interface` is, or None."""
        outer = self._raw.get_export_index(interface)
        inner = self._raw.get_export_index(function, outer) if outer else None
        return ExportIndex(inner, outer) if inner else None

    def close(self) -> None:
        """Frees the compiled code. No store that uses it may be alive."""
        self._raw.close()


def require_few(count: int) -> None:
    """Refuses to look through so many items. Public so that a test can switch it off."""
    if count > MAX_ITEMS:
        raise EngineFailure(
            f"it imports or exports {count} items or more; the limit is {MAX_ITEMS}"
        )


class ExportIndex:
    """The place of an export. Keeps its parts alive: a collected index makes lookups fail."""

    def __init__(self, inner: wc.ExportIndex | Any, outer: Any) -> None:
        self._owned = (inner, outer)
        self.address = address_of(inner)


def _import_of(kind: Any) -> Import | None:
    """A type alias is None: it needs no definition."""
    if isinstance(kind, wc.FuncType):
        return FunctionType(kind)
    if isinstance(kind, wc.ResourceType):
        return ResourceImport()
    if isinstance(kind, wc.ValType):
        return None
    raise EngineFailure(f"a component can't import or export a {type(kind).__name__} here")
