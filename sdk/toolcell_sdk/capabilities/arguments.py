"""What crosses to the broker: checked text, and bytes as base64."""

import base64

from toolcell_sdk.errors import CapabilityError

__all__ = ["from_base64", "text", "to_base64"]


def text(capability: str, name: str, value: str) -> str:
    """`value`, if it is text that UTF-8 can hold: a lone surrogate would abort the component."""
    if not isinstance(value, str):
        message = f"{capability}: `{name}` is {type(value).__name__}, where text is needed"
        raise CapabilityError(400, message, capability)
    try:
        value.encode()
    except UnicodeEncodeError:
        message = f"{capability}: `{name}` holds a lone surrogate, which UTF-8 can't carry"
        raise CapabilityError(400, message, capability) from None
    return value


def to_base64(capability: str, name: str, value: bytes | bytearray | memoryview) -> str:
    """RFC 4648 section 4, padded."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        message = f"{capability}: `{name}` is {type(value).__name__}, where bytes are needed"
        raise CapabilityError(400, message, capability)
    return base64.b64encode(value).decode("ascii")


def from_base64(value: str) -> bytes:
    """What the broker sent: it is trusted to be well formed."""
    return base64.b64decode(value)
