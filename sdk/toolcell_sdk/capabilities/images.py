"""`images`: pictures are decoded and scaled by the host, away from the tool and from its memory.

Capability: `images.resize`.
"""

from dataclasses import dataclass
from typing import Literal

from toolcell_sdk import transport
from toolcell_sdk.capabilities.arguments import from_base64, to_base64

__all__ = ["Image", "resize"]


@dataclass(frozen=True, slots=True)
class Image:
    """An encoded picture; `width` and `height` in pixels."""

    data: bytes
    width: int
    height: int
    format: str


def resize(
    data: bytes,
    width: int,
    height: int,
    format: Literal["png", "jpeg", "webp"] = "png",  # noqa: A002 - the capability's name for it
) -> Image:
    """Scales to fit inside `width` x `height`, keeping the proportions, and encodes as `format`.

    Raises `CapabilityError`: 400 for bytes that are no picture of an allowed format, 413 for one
    with too many pixels.
    """
    answer = transport.call(
        "images.resize",
        {
            "data": to_base64("images.resize", "data", data),
            "width": width,
            "height": height,
            "format": format,
        },
    )
    return Image(from_base64(answer["data"]), answer["width"], answer["height"], answer["format"])
