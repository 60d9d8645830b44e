"""How the engine is set up, and the fingerprint of it that keys the compiled cache.

Owns the list of wasm features that are on, the ceilings that hold for a whole engine, and the
pooling allocator's sizes. A feature that no tool of ours needs is off: each one is code in the
engine that a hostile guest could reach.
"""

import hashlib
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import wasmtime
from wasmtime import _bindings

DISABLED_FEATURES = (
    "wasm_threads",
    "shared_memory",
    "wasm_tail_call",
    "wasm_function_references",
    "wasm_gc",
    "gc_support",
    "wasm_exceptions",
    "wasm_relaxed_simd",
    "wasm_multi_memory",
    "wasm_memory64",
    "wasm_wide_arithmetic",
    "wasm_custom_page_sizes",
    "wasm_stack_switching",
    "wasm_component_model_async",
    "wasm_component_model_async_stackful",
    "wasm_component_model_more_async_builtins",
    "wasm_component_model_map",
    "wasm_component_model_implements",
    "concurrency_support",
)
"""Names of `wasmtime_config_*_set`. What is left: the WebAssembly 2.0 core (SIMD, bulk memory,
reference types, multi-value) and components. CPython 3.14, QuickJS and C guests need no more."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Ceilings of an engine. Those of one call are in `StoreLimits`.

    `max_wasm_stack_bytes`: a guest's stack, on the stack of the thread that calls it; 1 MiB holds
    CPython's deepest parser recursion, and a thread's own stack must be larger (`stack`).
    `cells`: how many cells can be alive at once. Each reserves 4 GiB + guard of address space and
    no memory, so 256 of them fit 1.1 TiB of the 128 TiB that a process has.
    `core_instances` and `tables`: per component; a Python tool with all its shared libraries has
    some 60 of each. `table_elements`: per table; CPython's own has 5,672. Tables come on top of
    `memory_mb`, at 8 bytes an element: 16 MiB where a guest fills all of them. `memories`: one, so
    that `memory_mb` is the sum.
    """

    max_wasm_stack_bytes: int = 1024 * 1024
    cells: int = 256
    core_instances: int = 128
    tables: int = 64
    table_elements: int = 32_768
    max_memory_bytes: int = 4 * 1024**3
    max_instance_bytes: int = 4 * 1024 * 1024
    memories: int = 1

    def fingerprint(self) -> str:
        """Hex digest of all that the compiled code depends on: wasmtime, features, this CPU.

        The CPU matters because the compiler uses what it finds (`/proc/cpuinfo` flags). Ceilings
        and sizes of the pool do not: they bound what runs, not how it is compiled.
        """
        parts = (
            version("wasmtime"),
            platform.machine(),
            _cpu_flags(),
            repr(DISABLED_FEATURES),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def build(self, *, pooling: bool = True) -> wasmtime.Config:
        """The wasmtime configuration.

        `pooling` false allocates each memory on its own: for the compiling child, which runs
        nothing and has no address space to reserve. The compiled code is the same.
        """
        config = wasmtime.Config()
        raw = config.ptr()
        _bindings.wasmtime_config_consume_fuel_set(raw, True)
        _bindings.wasmtime_config_epoch_interruption_set(raw, True)
        _bindings.wasmtime_config_max_wasm_stack_set(raw, self.max_wasm_stack_bytes)
        _bindings.wasmtime_config_memory_init_cow_set(raw, True)
        # A NaN's bits differ between CPUs; canonical ones make a call's bytes the same everywhere.
        _bindings.wasmtime_config_cranelift_nan_canonicalization_set(raw, True)
        for feature in DISABLED_FEATURES:
            getattr(_bindings, f"wasmtime_config_{feature}_set")(raw, False)
        if pooling:
            self._use_pool(raw)
        return config

    def _use_pool(self, raw: object) -> None:
        pool = _bindings.wasmtime_pooling_allocation_config_new()
        sizes = {
            "total_component_instances": self.cells,
            "total_core_instances": self.cells * self.core_instances,
            "total_memories": self.cells * self.memories,
            "total_tables": self.cells * self.tables,
            "max_core_instances_per_component": self.core_instances,
            "max_tables_per_component": self.tables,
            "max_memories_per_component": self.memories,
            "max_component_instance_size": self.max_instance_bytes,
            "max_core_instance_size": self.max_instance_bytes,
            "table_elements": self.table_elements,
            "max_memory_size": self.max_memory_bytes,
            # Nothing is kept of a cell: each page is given back and comes back as the image has it.
            "linear_memory_keep_resident": 0,
            "table_keep_resident": 0,
            "total_stacks": 0,
            "total_gc_heaps": 0,
        }
        for name, size in sizes.items():
            getattr(_bindings, f"wasmtime_pooling_allocation_config_{name}_set")(pool, size)
        _bindings.wasmtime_pooling_allocation_strategy_set(raw, pool)
        _bindings.wasmtime_pooling_allocation_config_delete(pool)


def _cpu_flags() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
