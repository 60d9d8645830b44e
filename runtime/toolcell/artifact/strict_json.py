"""JSON texts that mean one thing: RFC 8259 as the strict subset of RFC 7493 (I-JSON).

Owns the decoding of what callers send and tools return. A name that comes twice is refused, since
two readers may take different ones: the check would be made on one value, the tool would use the
other. Used by `toolcell.artifact.schema`.
"""

import json
import math
from typing import Any, Literal

import msgspec

__all__ = ["MAX_DEPTH", "NotStrictJson", "check_values", "decode_json", "finite_float"]

MAX_DEPTH = 128
"""Arrays and objects inside each other, as in serde_json: a guest's parser should not be the first
to find out."""

_RANGES = {64: (-(2**63), 2**64 - 1), 53: (-(2**53), 2**53)}
"""Whole numbers of more than 64 bits are beyond most guests, and the time to compare two grows with
the square of their length. 53 bits are what a binary64 holds exactly (RFC 7493, section 2.2)."""

_DIGITS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_NUMBER = {64: b"0" * 19, 53: b"0" * 16}

# msgspec's own reader takes up to 15 us for a fraction that is hard to round (`1e300`): 2 MB of
# them are 6 s. Python's takes 0.2 us at most.
# Infinity is never written back as it was read, so the second reader sees it.
_DECODER = msgspec.json.Decoder(float_hook=float)
_ENCODER = msgspec.json.Encoder()


class NotStrictJson(ValueError):
    """A text that is not JSON, or JSON that could be read in more than one way."""


def decode_json(raw: bytes, bits: Literal[64, 53] = 64) -> Any:
    """The value of `raw`. :class:`NotStrictJson` says what is wrong with it.

    NaN, infinities, numbers out of range, whole numbers of more than `bits` bits, lone
    surrogates, bytes that are not UTF-8, text after the value, duplicate names, and more than
    :data:`MAX_DEPTH` levels are refused.
    """
    try:
        value = _DECODER.decode(raw)
        # What a serialiser made without spaces comes back byte for byte, so no name was dropped:
        # the common case costs one encoding instead of a second, slower decoding.
        if _ENCODER.encode(value) != raw:
            _SECOND_READER.decode(raw.decode())
    except NotStrictJson:
        raise
    except RecursionError:
        raise NotStrictJson(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise NotStrictJson(str(error)) from None
    # Cheap signs that a value may break a bound; only then is it looked through.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH or _LONG_NUMBER[bits] in raw.translate(
        _DIGITS
    ):
        check_values(value, bits)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise NotStrictJson(f"the name {name[:60]!a} comes twice in one object")
            seen.add(name)
    return found


def finite_float(text: str) -> float:
    """The number `text`; out of range is a :class:`NotStrictJson`.

    The `float_hook` of every decoder that reads fields of any type from somebody untrusted.
    """
    value = float(text)
    if math.isinf(value):
        raise NotStrictJson("a number is out of range")
    return value


_SECOND_READER = json.JSONDecoder(object_pairs_hook=_object, parse_float=finite_float)


def check_values(value: Any, bits: Literal[64, 53] = 64) -> None:
    """:class:`NotStrictJson` where `value` is nested deeper than :data:`MAX_DEPTH` levels, or
    holds a whole number of more than `bits` bits.
    """
    least, greatest = _RANGES[bits]
    # Level by level, so that the depth of the value is not the depth of our own stack.
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers: list[Any] = []
        for each in level:
            if isinstance(each, (dict, list)):
                containers.append(each)
            elif isinstance(each, int) and not least <= each <= greatest:
                raise NotStrictJson(f"a whole number has more than {bits} bits")
        if not containers:
            return
        level = [
            child
            for parent in containers
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    raise NotStrictJson(f"it is nested deeper than {MAX_DEPTH} levels")
