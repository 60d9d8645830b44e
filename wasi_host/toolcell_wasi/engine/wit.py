"""WIT types: their text, and how a Python value becomes a value of wasmtime's.

Owns lowering (host to guest) and the comparison of our types with those that a component declares
(`is_function`), made before anything runs, so that a host function is only ever called with what
it expects. Lifting needs no types and is in `values`. Resources are compared without their names:
the cell's handle table checks what a handle stands for.
"""

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from wasmtime import component as wc

from toolcell_wasi.engine import capi

VALUE = struct.Struct("<B7xQQQ")
"""kind, then up to three words: a number, or size and address, or flag and address."""

KIND_BOOL, KIND_U8, KIND_U16, KIND_U32, KIND_U64 = 0, 2, 4, 6, 8
KIND_STRING, KIND_LIST, KIND_RECORD, KIND_TUPLE = 12, 13, 14, 15
KIND_VARIANT, KIND_ENUM, KIND_OPTION, KIND_RESULT, KIND_RESOURCE = 16, 17, 18, 19, 21


@dataclass(frozen=True, slots=True)
class Err:
    """The error case of a `result`; any other value is the `ok` case."""

    value: Any = None


class WitType(Protocol):
    """A WIT type. `context` is the address of the store's context, for resources."""

    @property
    def text(self) -> str:
        """WIT text, aliases resolved."""

    def lower(self, value: Any, context: int, /) -> bytes:
        """The 32 bytes of a wasmtime value that now owns its parts."""


def _pair(allocate: Any, size: int) -> tuple[int, int]:
    """Size and address that `allocate` writes to its first argument."""
    out = (ctypes.c_size_t * 2)()
    allocate(ctypes.addressof(out), size)
    return out[0], out[1]


def _string(text: str) -> tuple[int, int]:
    # A lone surrogate has no UTF-8; wasmtime would refuse the value and end the guest.
    raw = text.encode("utf-8", "replace")
    out = (ctypes.c_size_t * 2)()
    capi.byte_vec_new(ctypes.addressof(out), len(raw), raw)
    return out[0], out[1]


def _boxed(value: bytes) -> int:
    # The buffer needs a name: its address alone would not keep it alive for the call.
    buffer = ctypes.create_string_buffer(value, len(value))
    return int(capi.value_new(ctypes.addressof(buffer)))


@dataclass(frozen=True, slots=True)
class Number:
    """`bool` or an unsigned integer. Out of range raises: the host's own bug."""

    text: str
    kind: int
    bits: int

    def lower(self, value: Any, _context: int) -> bytes:
        if not 0 <= value < 1 << self.bits:
            raise ValueError(f"{value!r} is not a {self.text}")
        return VALUE.pack(self.kind, value, 0, 0)


@dataclass(frozen=True, slots=True)
class String:
    """`string`, from `str`."""

    text: str = "string"

    def lower(self, value: Any, _context: int) -> bytes:
        return VALUE.pack(KIND_STRING, *_string(value), 0)


@dataclass(frozen=True, slots=True)
class ListOf:
    """`list<T>`, from a sequence. `list<u8>` is made from `bytes` without a loop."""

    element: WitType

    @property
    def text(self) -> str:
        return f"list<{self.element.text}>"

    def lower(self, value: Sequence[Any], context: int) -> bytes:
        if isinstance(value, bytes):
            raw = bytearray(capi.VALUE_BYTES * len(value))
            raw[:: capi.VALUE_BYTES] = bytes([KIND_U8]) * len(value)
            raw[8 :: capi.VALUE_BYTES] = value
            joined = bytes(raw)
        else:
            joined = b"".join([self.element.lower(item, context) for item in value])
        size, address = _pair(capi.list_new, len(value))
        ctypes.memmove(address, joined, len(joined))
        return VALUE.pack(KIND_LIST, size, address, 0)


@dataclass(frozen=True, slots=True)
class TupleOf:
    """`tuple<…>`, from a sequence of that length."""

    elements: tuple[WitType, ...]

    @property
    def text(self) -> str:
        return f"tuple<{', '.join(element.text for element in self.elements)}>"

    def lower(self, value: Sequence[Any], context: int) -> bytes:
        pairs = zip(self.elements, value, strict=True)
        joined = b"".join([element.lower(item, context) for element, item in pairs])
        size, address = _pair(capi.tuple_new, len(self.elements))
        ctypes.memmove(address, joined, len(joined))
        return VALUE.pack(KIND_TUPLE, size, address, 0)


@dataclass(frozen=True, slots=True)
class Record:
    """`record`, from a mapping that has each field."""

    fields: Mapping[str, WitType]

    @property
    def text(self) -> str:
        return f"record {{ {', '.join(f'{n}: {t.text}' for n, t in self.fields.items())} }}"

    def lower(self, value: Mapping[str, Any], context: int) -> bytes:
        lowered = [(name, kind.lower(value[name], context)) for name, kind in self.fields.items()]
        joined = b"".join([struct.pack("<QQ", *_string(name)) + item for name, item in lowered])
        size, address = _pair(capi.record_new, len(self.fields))
        ctypes.memmove(address, joined, len(joined))
        return VALUE.pack(KIND_RECORD, size, address, 0)


@dataclass(frozen=True, slots=True)
class Enumeration:
    """`enum`, from the name of a case."""

    cases: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"enum {{ {', '.join(self.cases)} }}"

    def lower(self, value: str, _context: int) -> bytes:
        if value not in self.cases:
            raise ValueError(f"{value!r} is not a case of {self.text}")
        return VALUE.pack(KIND_ENUM, *_string(value), 0)


@dataclass(frozen=True, slots=True)
class Option:
    """`option<T>`, from None or a value."""

    element: WitType

    @property
    def text(self) -> str:
        return f"option<{self.element.text}>"

    def lower(self, value: Any, context: int) -> bytes:
        address = 0 if value is None else _boxed(self.element.lower(value, context))
        return VALUE.pack(KIND_OPTION, address, 0, 0)


@dataclass(frozen=True, slots=True)
class Result:
    """`result<T, E>`, from an :class:`Err` or the `ok` value. A side without payload is None."""

    ok: WitType | None = None
    err: WitType | None = None

    @property
    def text(self) -> str:
        if self.ok is None and self.err is None:
            return "result"
        ok = "_" if self.ok is None else self.ok.text
        return f"result<{ok}>" if self.err is None else f"result<{ok}, {self.err.text}>"

    def lower(self, value: Any, context: int) -> bytes:
        failed = isinstance(value, Err)
        side = self.err if failed else self.ok
        payload = value.value if isinstance(value, Err) else value
        address = 0 if side is None else _boxed(side.lower(payload, context))
        return VALUE.pack(KIND_RESULT, 0 if failed else 1, address, 0)


@dataclass(frozen=True, slots=True)
class Variant:
    """`variant`, from `(case, payload)`."""

    cases: Mapping[str, WitType | None]

    @property
    def text(self) -> str:
        parts = [n if t is None else f"{n}({t.text})" for n, t in self.cases.items()]
        return f"variant {{ {', '.join(parts)} }}"

    def lower(self, value: tuple[str, Any], context: int) -> bytes:
        case, payload = value
        kind = self.cases[case]
        address = 0 if kind is None else _boxed(kind.lower(payload, context))
        return VALUE.pack(KIND_VARIANT, *_string(case), address)


@dataclass(frozen=True, slots=True)
class Own:
    """A resource that the guest comes to own, from its number in the cell's handle table."""

    kind: int
    text: str = "own"

    def lower(self, value: int, context: int) -> bytes:
        host = capi.host_resource_new(True, value, self.kind)
        out = ctypes.c_size_t()
        error = capi.host_resource_to_any(context, host, ctypes.addressof(out))
        capi.host_resource_delete(host)
        if error:
            capi.error_delete(error)
            raise ValueError("the store takes no more resources")
        return VALUE.pack(KIND_RESOURCE, out.value, 0, 0)


@dataclass(frozen=True, slots=True)
class Borrow:
    """A resource that the guest lends for the call. Never lowered."""

    text: str = "borrow"

    def lower(self, _value: Any, _context: int) -> bytes:
        raise TypeError("a host function can't return a borrowed resource")


BOOL = Number("bool", KIND_BOOL, 1)
U8 = Number("u8", KIND_U8, 8)
U16 = Number("u16", KIND_U16, 16)
U32 = Number("u32", KIND_U32, 32)
U64 = Number("u64", KIND_U64, 64)
STRING = String()
BYTES = ListOf(U8)
BORROW = Borrow()


def signature(params: Sequence[WitType], result: WitType | None) -> str:
    """Canonical text of a function type, for messages."""
    arrow = "" if result is None else f" -> {result.text}"
    return f"func({', '.join(param.text for param in params)}){arrow}"


def is_function(declared: wc.FuncType, params: Sequence[WitType], result: WitType | None) -> bool:
    """Whether what a component declares is the function type that we serve."""
    kinds = [kind for _, kind in declared.params]
    return (
        len(kinds) == len(params)
        and all(map(is_type, kinds, params))
        and is_type(declared.result, result)
    )


def is_type(declared: Any, ours: WitType | None) -> bool:
    """Whether a type of wasmtime-py's is `ours`. The walk is bounded by ours, not by theirs:
    a publisher can write a small type that unfolds to a million parts.
    """
    match declared, ours:
        case None, None:
            return True
        case wc.ListType(), ListOf():
            return is_type(declared.element, ours.element)
        case wc.OptionType(), Option():
            return is_type(declared.payload, ours.element)
        case wc.ResultType(), Result():
            return is_type(declared.ok, ours.ok) and is_type(declared.err, ours.err)
        case wc.EnumType(), Enumeration():
            return tuple(declared.names) == ours.cases
        case wc.RecordType(), Record():
            return _are_members(declared.fields, ours.fields)
        case wc.VariantType(), Variant():
            return _are_members(declared.cases, ours.cases)
        case wc.TupleType(), TupleOf():
            kinds = declared.elements
            return len(kinds) == len(ours.elements) and all(map(is_type, kinds, ours.elements))
        case (wc.OwnType(), Own()) | (wc.BorrowType(), Borrow()) | (wc.String(), String()):
            return True
        case _, Number():
            return type(declared).__name__.lower() == ours.text
        case _:
            return False


def _are_members(declared: Sequence[tuple[str, Any]], ours: Mapping[str, WitType | None]) -> bool:
    return [name for name, _ in declared] == list(ours) and all(
        is_type(kind, ours[name]) for name, kind in declared
    )
