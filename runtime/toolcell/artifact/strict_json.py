"""JSON texts that mean one thing: RFC 8259 as the strict subset of RFC 7493 (I-JSON).

Owns the decoding of what callers send and tools return. A name that comes twice is refused, since
two readers may take different ones: the check would be made on one value, the tool would use the
other. Used by `toolcell.artifact.schema`.
"""

import json
from typing import Any

import msgspec

__all__ = ["MAX_DEPTH", "NotStrictJson", "check_depth", "decode_json"]

MAX_DEPTH = 128
"""Arrays and objects inside each other, as in serde_json: a guest's parser should not be the first
to find out."""

_DECODER = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()


class NotStrictJson(ValueError):
    """A text that is not JSON, or JSON that could be read in more than one way."""


def decode_json(raw: bytes) -> Any:
    """The value of `raw`. :class:`NotStrictJson` says what is wrong with it.

    NaN, infinities, numbers out of range, lone surrogates, bytes that are not UTF-8, text after
    the value, duplicate names, and more than :data:`MAX_DEPTH` levels are refused.
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
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        check_depth(value)
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


_SECOND_READER = json.JSONDecoder(object_pairs_hook=_object)


def check_depth(value: Any) -> None:
    """:class:`NotStrictJson` where `value` is nested deeper than :data:`MAX_DEPTH` levels."""
    # Level by level, so that the depth of the value is not the depth of our own stack.
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise NotStrictJson(f"it is nested deeper than {MAX_DEPTH} levels")
