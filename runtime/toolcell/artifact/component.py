"""Reads what a WebAssembly component imports, from its binary, without running or compiling it.

Owns a minimal reader for people's eyes (`toolcell inspect`). What a component may import is decided
by the lane, with the engine's own reader, not here. Format: Component Model, `Binary.md`, sections
"Component Definitions" and "Import and Export Definitions".
"""

from collections.abc import Iterator

__all__ = ["component_imports"]

_PREAMBLE = b"\0asm\x0d\0\x01\0"
_IMPORT_SECTION = 10
_MAX_IMPORTS = 1024
_MAX_NAME_BYTES = 200
_CORE_MODULE, _VALUE, _TYPE = 0x00, 0x02, 0x03
_PLAIN_KINDS = frozenset({0x01, 0x04, 0x05})  # function, component, instance


def component_imports(binary: bytes) -> list[str] | None:
    """The names that the component imports, in its order; None where it is no such component.

    A binary that can't be read to the end, or that has more than 1,024 imports, gives None too.
    """
    if not binary.startswith(_PREAMBLE):
        return None
    names: list[str] = []
    try:
        for section, start, end in _sections(binary):
            if section == _IMPORT_SECTION:
                names += _names(binary, start, end)
    except (IndexError, ValueError):
        return None
    return names if len(names) <= _MAX_IMPORTS else None


def _sections(binary: bytes) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each section. Those that do not matter are stepped over."""
    position = len(_PREAMBLE)
    while position < len(binary):
        section = binary[position]
        size, start = _leb128(binary, position + 1)
        position = start + size
        if position > len(binary):
            raise ValueError("a section goes past the end")
        yield section, start, position


def _names(binary: bytes, start: int, end: int) -> Iterator[str]:
    count, position = _leb128(binary, start)
    if count > _MAX_IMPORTS:
        raise ValueError("too many imports")
    for _ in range(count):
        size, begin = _leb128(binary, position + 1)  # after the byte that says which kind of name
        position = begin + size
        if size > _MAX_NAME_BYTES or position > end:
            raise ValueError("a name that is too long")
        yield binary[begin:position].decode("ascii")
        position = _after_type(binary, position)


def _after_type(binary: bytes, position: int) -> int:
    """Steps over the type of an import."""
    kind = binary[position]
    if kind == _CORE_MODULE or (kind in (_VALUE, _TYPE) and binary[position + 1] == 0):
        return _leb128(binary, position + 2)[1]
    if kind == _TYPE and binary[position + 1] == 1:
        return position + 2  # a resource of its own: no more follows
    if kind in _PLAIN_KINDS:
        return _leb128(binary, position + 1)[1]
    raise ValueError("a kind of import that this reader does not know")


def _leb128(binary: bytes, position: int) -> tuple[int, int]:
    """An unsigned LEB128 number of at most 32 bits, and where it ends."""
    value = 0
    for index in range(5):
        byte = binary[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError("a number of more than 32 bits")
