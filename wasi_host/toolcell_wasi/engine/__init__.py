"""The engine: the only place that calls wasmtime.

Owns the C API (`capi`), values and their WIT types (`wit`, `values`), engine configuration,
components, linkers and stores. Knows nothing of tools, policies, sessions or WASI. The lane uses
what is exported here and nothing below it, so that the calls underneath can be replaced.
"""

from toolcell_wasi.engine.component import Component, Engine, FunctionType, ResourceImport
from toolcell_wasi.engine.config import EngineConfig
from toolcell_wasi.engine.errors import (
    EngineFailure,
    ResultTooLarge,
    StackTooSmall,
    TrapCode,
    Trapped,
    ValueTooLarge,
)
from toolcell_wasi.engine.linker import HostFunction, Linker
from toolcell_wasi.engine.store import Store, StoreLimits
from toolcell_wasi.engine.values import Err

__all__ = [
    "Component",
    "Engine",
    "EngineConfig",
    "EngineFailure",
    "Err",
    "FunctionType",
    "HostFunction",
    "Linker",
    "ResourceImport",
    "ResultTooLarge",
    "StackTooSmall",
    "Store",
    "StoreLimits",
    "TrapCode",
    "Trapped",
    "ValueTooLarge",
]
