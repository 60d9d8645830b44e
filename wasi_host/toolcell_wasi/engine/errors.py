"""What wasmtime says when a guest or an engine fails, as values.

Owns the reading of wasmtime's error texts: the C API gives a component's trap no code, only its
text (`crates/environ/src/trap_encoding.rs` of wasmtime 50 has the sentences). What each means for
a call is decided in `toolcell_wasi.faults`, never here.
"""

import ctypes
from enum import Enum

from toolcell_wasi.engine import capi

MAX_ERROR_CHARS = 4000
"""A backtrace holds names that the guest chose, so its size is the guest's choice too."""


class TrapCode(Enum):
    """The traps that mean something to the caller. `OTHER` is any other one."""

    FUEL = "all fuel consumed by WebAssembly"
    INTERRUPT = "interrupt"
    STACK = "call stack exhausted"
    UNREACHABLE = "wasm `unreachable` instruction executed"
    OUT_OF_BOUNDS = "out of bounds memory access"
    LIMIT = "resource limit exceeded"
    MEMORY_LIMIT = "exceeds memory limits"
    TABLE_LIMIT = "exceeds table limits"
    POOL_EXHAUSTED = "maximum concurrent limit"
    OTHER = ""


class EngineFailure(Exception):
    """wasmtime refused or failed. `message` is its own sentence, bounded."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class StackTooSmall(EngineFailure):
    """The calling thread's stack can't hold a guest's."""


class Trapped(EngineFailure):
    """A guest was ended by wasmtime. `code` says why, `backtrace` where (names are the guest's)."""

    def __init__(self, message: str, code: TrapCode, backtrace: str) -> None:
        super().__init__(message)
        self.code = code
        self.backtrace = backtrace


class ValueTooLarge(Exception):
    """A value from the guest is larger than its receiver allows. It was not copied."""

    def __init__(self, allowed: int, used: int, unit: str) -> None:
        super().__init__(f"a value of {used} {unit} is over the limit of {allowed}")
        self.allowed = allowed
        self.used = used
        self.unit = unit


class ResultTooLarge(ValueTooLarge):
    """The same of the value that a call of the guest returned."""


def trap_from(error: int) -> Trapped:
    """The trap that the error at address `error` stands for. Frees the error."""
    return read_trap(_take_message(error))


def read_trap(text: str) -> Trapped:
    """Reads wasmtime's text of a trap.

    The cause is what comes after the *last* "Caused by", for the backtrace before it contains
    function names that the guest chose, which may look like a cause.
    """
    backtrace, found, cause = text.rpartition("Caused by:\n")
    sentence = (cause if found else text).strip()
    last = sentence.rpartition("\n")[2].strip().removeprefix("1: ").removeprefix("wasm trap: ")
    code = next((code for code in TrapCode if code.value and code.value in last), TrapCode.OTHER)
    message = last if found else sentence
    return Trapped(message[:MAX_ERROR_CHARS], code, backtrace.strip()[:MAX_ERROR_CHARS])


def raise_failure(error: int) -> None:
    """Raises the failure at address `error`, where it is not null. Frees the error."""
    if error:
        raise EngineFailure(_take_message(error))


def new_error(message: bytes) -> int:
    """A wasmtime error for a callback to return. wasmtime frees it."""
    return int(capi.error_new(message))


def _take_message(error: int) -> str:
    text = (ctypes.c_size_t * 2)()
    capi.error_message(error, ctypes.addressof(text))
    try:
        size, address = text
        return ctypes.string_at(address, size).decode("utf-8", "replace") if size else ""
    finally:
        capi.byte_vec_delete(ctypes.addressof(text))
        capi.error_delete(error)
