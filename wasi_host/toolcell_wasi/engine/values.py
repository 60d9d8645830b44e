"""Lifting: how a value of wasmtime's becomes a Python value, within a budget.

Owns reading the value structs of wasmtime's C API from their addresses. wasmtime has copied each
value out of the guest before we see it, so the addresses are sound and UTF-8 is valid; what is
not bounded yet is the size, and the budget bounds it *before* anything is copied into Python.
"""

import ctypes
import struct
from typing import Any

from toolcell_wasi.engine import capi
from toolcell_wasi.engine.errors import EngineFailure, ValueTooLarge
from toolcell_wasi.engine.wit import (
    KIND_BOOL,
    KIND_ENUM,
    KIND_LIST,
    KIND_OPTION,
    KIND_RECORD,
    KIND_RESOURCE,
    KIND_RESULT,
    KIND_STRING,
    KIND_U8,
    KIND_U16,
    KIND_U32,
    KIND_U64,
    VALUE,
    Err,
)

__all__ = ["Err", "Lifter"]

ENTRY_NAME = struct.Struct("<QQ")
MAX_VALUES = 4096
"""Values in one call, elements of `list<u8>` not counted. 1,000 headers for http have 3,000."""

_BITS = {KIND_U8: 0xFF, KIND_U16: 0xFFFF, KIND_U32: 0xFFFF_FFFF, KIND_U64: 0xFFFF_FFFF_FFFF_FFFF}


class Lifter:
    """Lifts the arguments of one call. `max_bytes` bounds strings and `list<u8>` together.

    A record becomes a dict, a list of u8 `bytes`, a resource its number, the error case of a
    result an :class:`Err`. Raises :class:`ValueTooLarge`.
    """

    __slots__ = ("_bytes_left", "_context", "_max_bytes", "_values_left")

    def __init__(self, context: int, max_bytes: int) -> None:
        self._context = context
        self._max_bytes = max_bytes
        self._bytes_left = max_bytes
        self._values_left = MAX_VALUES

    def many(self, address: int, count: int) -> list[Any]:
        """The `count` values from `address` on."""
        if count > self._values_left:
            raise ValueTooLarge(MAX_VALUES, count, "values")
        return [self.one(address + i * capi.VALUE_BYTES) for i in range(count)]

    def one(self, address: int) -> Any:
        """The value at `address`."""
        self._values_left -= 1
        if self._values_left < 0:
            raise ValueTooLarge(MAX_VALUES, MAX_VALUES + 1, "values")
        kind, first, second, _ = VALUE.unpack(ctypes.string_at(address, capi.VALUE_BYTES))
        if kind in {KIND_STRING, KIND_ENUM}:
            return self._raw(first, second).decode("utf-8", "replace")
        if kind in _BITS:
            return first & _BITS[kind]
        if kind == KIND_BOOL:
            return bool(first & 1)
        if kind == KIND_RESOURCE:
            return self._resource(first)
        if kind == KIND_OPTION:
            return self.one(first) if first else None
        if kind == KIND_RESULT:
            payload = self.one(second) if second else None
            return payload if first & 1 else Err(payload)
        if kind == KIND_LIST:
            return self._list(first, second)
        if kind == KIND_RECORD:
            return self._record(first, second)
        raise EngineFailure(f"a value of kind {kind} can't be lifted")

    def _raw(self, size: int, address: int) -> bytes:
        if size > self._bytes_left:
            used = self._max_bytes - self._bytes_left + size
            raise ValueTooLarge(self._max_bytes, used, "bytes")
        self._bytes_left -= size
        return ctypes.string_at(address, size) if size else b""

    def _list(self, size: int, address: int) -> bytes | list[Any]:
        if not size or ctypes.string_at(address, 1)[0] != KIND_U8:
            return self.many(address, size)
        if size > self._bytes_left:
            raise ValueTooLarge(self._max_bytes, size, "bytes")
        self._bytes_left -= size
        return ctypes.string_at(address, size * capi.VALUE_BYTES)[8 :: capi.VALUE_BYTES]

    def _record(self, size: int, address: int) -> dict[str, Any]:
        fields = {}
        for at in range(address, address + size * capi.ENTRY_BYTES, capi.ENTRY_BYTES):
            length, name = ENTRY_NAME.unpack(ctypes.string_at(at, ENTRY_NAME.size))
            fields[ctypes.string_at(name, length).decode()] = self.one(at + ENTRY_NAME.size)
        return fields

    def _resource(self, address: int) -> int:
        out = ctypes.c_size_t()
        error = capi.any_resource_to_host(self._context, address, ctypes.addressof(out))
        if error:
            capi.error_delete(error)
            raise EngineFailure("the handle does not stand for a resource of the host")
        number = int(capi.host_resource_number(out.value))
        capi.host_resource_delete(out.value)
        return number
