"""The C functions of wasmtime that a call needs, on plain addresses.

wasmtime-py's own wrappers marshal each value through a tree of Python objects (25 us a call,
1 s per MiB of `list<u8>`) and keep the exception of a host function in one process-wide variable,
so this module binds these functions of the wheel's library anew, with addresses as integers. What
happens once per artifact (engine, component, linker) goes through wasmtime-py as it is. Called by
the other modules of this package only.

Source of every signature: the headers of wasmtime's C API 50.0 (`wasmtime/component/*.h`), which
wasmtime-py's generated `_bindings` mirror. The layout of the value struct is compared with those
bindings at import; a mismatch refuses to load, because every read below would be wrong.
"""

import ctypes
import sys
from ctypes import CFUNCTYPE, PYFUNCTYPE, c_bool, c_char_p, c_int64, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p as pointer
from typing import Any

from wasmtime import _bindings
from wasmtime._ffi import dll

FUNC_CALLBACK: Any = CFUNCTYPE(
    c_size_t, pointer, pointer, pointer, pointer, c_size_t, pointer, c_size_t
)
"""data, context, function type, arguments, their number, results, their number -> error."""
DROP_CALLBACK: Any = CFUNCTYPE(c_size_t, pointer, pointer, c_uint32)
"""data, context, the resource's number -> error."""
EPOCH_CALLBACK: Any = CFUNCTYPE(c_size_t, pointer, pointer, pointer, pointer)
"""context, data, out: ticks to go on for, out: kind -> error."""

UPDATE_CONTINUE = 0
VALUE_BYTES = 32
ENTRY_BYTES = 48
"""A record's entry: a name (size, address), then a value."""


def _slow(name: str, result: Any, *params: Any) -> Any:
    """A function that may run for long or call back into Python: the GIL is released."""
    return CFUNCTYPE(result, *params)((name, dll))


def _quick(name: str, result: Any, *params: Any) -> Any:
    """A function that returns at once and calls nothing: keeping the GIL is cheaper."""
    return PYFUNCTYPE(result, *params)((name, dll))


byte_vec_new = _quick("wasm_byte_vec_new", None, pointer, c_size_t, c_char_p)
byte_vec_delete = _quick("wasm_byte_vec_delete", None, pointer)

error_new = _quick("wasmtime_error_new", c_size_t, c_char_p)
error_delete = _quick("wasmtime_error_delete", None, pointer)
error_message = _quick("wasmtime_error_message", None, pointer, pointer)

linker_instantiate = _slow(
    "wasmtime_component_linker_instantiate", pointer, pointer, pointer, pointer, pointer
)
linker_instance_add_func = _quick(
    "wasmtime_component_linker_instance_add_func",
    pointer,
    pointer,
    c_char_p,
    c_size_t,
    FUNC_CALLBACK,
    c_size_t,
    pointer,
)
linker_instance_add_resource = _quick(
    "wasmtime_component_linker_instance_add_resource",
    pointer,
    pointer,
    c_char_p,
    c_size_t,
    pointer,
    DROP_CALLBACK,
    c_size_t,
    pointer,
)
store_new = _slow("wasmtime_store_new", pointer, pointer, pointer, pointer)
store_delete = _slow("wasmtime_store_delete", None, pointer)
store_context = _quick("wasmtime_store_context", pointer, pointer)
store_limiter = _quick(
    "wasmtime_store_limiter", None, pointer, c_int64, c_int64, c_int64, c_int64, c_int64
)
store_epoch_callback = _quick(
    "wasmtime_store_epoch_deadline_callback", None, pointer, EPOCH_CALLBACK, pointer, pointer
)
context_set_epoch_deadline = _quick("wasmtime_context_set_epoch_deadline", None, pointer, c_uint64)
context_set_fuel = _quick("wasmtime_context_set_fuel", pointer, pointer, c_uint64)
context_get_fuel = _quick("wasmtime_context_get_fuel", pointer, pointer, pointer)

instance_get_func = _quick(
    "wasmtime_component_instance_get_func", c_bool, pointer, pointer, pointer, pointer
)
func_call = _slow(
    "wasmtime_component_func_call",
    pointer,
    pointer,
    pointer,
    pointer,
    c_size_t,
    pointer,
    c_size_t,
)

value_new = _quick("wasmtime_component_val_new", pointer, pointer)
value_delete = _slow("wasmtime_component_val_delete", None, pointer)
list_new = _quick("wasmtime_component_vallist_new_uninit", None, pointer, c_size_t)
tuple_new = _quick("wasmtime_component_valtuple_new_uninit", None, pointer, c_size_t)
record_new = _quick("wasmtime_component_valrecord_new_uninit", None, pointer, c_size_t)

host_resource_new = _quick(
    "wasmtime_component_resource_host_new", pointer, c_bool, c_uint32, c_uint32
)
host_resource_number = _quick("wasmtime_component_resource_host_rep", c_uint32, pointer)
host_resource_delete = _quick("wasmtime_component_resource_host_delete", None, pointer)
host_resource_to_any = _quick(
    "wasmtime_component_resource_host_to_any", pointer, pointer, pointer, pointer
)
any_resource_to_host = _quick(
    "wasmtime_component_resource_any_to_host", pointer, pointer, pointer, pointer
)


def _check_layout() -> None:
    value, entry = (
        _bindings.wasmtime_component_val_t,
        _bindings.wasmtime_component_valrecord_entry_t,
    )
    found = (
        ctypes.sizeof(value),
        value.of.offset,
        ctypes.sizeof(entry),
        entry.val.offset,
        ctypes.sizeof(_bindings.wasmtime_component_instance_t),
        ctypes.sizeof(_bindings.wasmtime_component_func_t),
        sys.byteorder,
    )
    expected = (VALUE_BYTES, 8, ENTRY_BYTES, 16, INSTANCE_BYTES, FUNC_BYTES, "little")
    if found != expected:
        raise ImportError(
            f"wasmtime's value layout is {found}, this package was written for {expected}; "
            "install the wasmtime release that toolcell pins"
        )


INSTANCE_BYTES = 16
FUNC_BYTES = 32
_check_layout()
