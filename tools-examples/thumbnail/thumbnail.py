"""thumbnail: a picture in small."""

from dataclasses import dataclass
from typing import Annotated, Literal

from toolcell_sdk import Field, ToolError, images, method

_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"RIFF": "webp"}

Size = Annotated[int, Field(description="Longest side in pixels.", ge=16, le=2048)]


@dataclass
class Thumbnail:
    """One picture; `width` and `height` in pixels."""

    size: int
    width: int
    height: int
    format: str
    data: bytes


@method
def make(
    image: Annotated[bytes, Field(description="A PNG, JPEG or WebP picture.", min_length=1)],
    sizes: Annotated[list[Size], Field(min_length=1, max_length=4)],
    format: Literal["same", "png", "jpeg", "webp"] = "same",  # noqa: A002 - what callers write
) -> list[Thumbnail]:
    """Scales a picture to fit into squares of the given sizes, largest first."""
    target = _format_of(image) if format == "same" else format
    result = []
    for size in sorted(set(sizes), reverse=True):
        made = images.resize(image, size, size, target)
        result.append(Thumbnail(size, made.width, made.height, made.format, made.data))
    return result


def _format_of(image: bytes) -> Literal["png", "jpeg", "webp"]:
    for signature, name in _SIGNATURES.items():
        if image.startswith(signature):
            return name
    raise ToolError("not a PNG, JPEG or WebP picture", status=422)
