"""What a picture says it is: format and size, from its first bytes.

Owns a reader for the headers of PNG, JPEG, GIF and WebP and nothing of their contents. A picture
that unpacks to gigabytes has its size in the header, so it is refused before a decoder sees it.
Plain Python on bounded bytes: safe to run in the host.
"""

import struct

from msgspec import Struct

from toolcell.broker.call import Refusal
from toolcell.errors import Status

__all__ = ["MAX_PIXELS", "PictureHeader", "read_header"]

MAX_PIXELS = 40_000_000
"""Of a picture that comes in: 160 MB decoded, four bytes a pixel."""

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # SOFn, ITU T.81 table B.1
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD8)})  # markers without a length


class PictureHeader(Struct, frozen=True):
    """`width` and `height` in pixels, as stored: before any rotation that metadata asks for."""

    format: str
    width: int
    height: int


def read_header(data: bytes) -> PictureHeader:
    """The header of `data`. A :class:`Refusal`: another format (400), too many pixels (413)."""
    try:
        header = _read(data)
    except (struct.error, IndexError):
        header = None
    if header is None:
        raise Refusal(
            "format",
            "this is not a picture in a format that is taken",
            status=Status.MALFORMED,
            remedy="taken are PNG, JPEG, GIF and WebP",
        )
    if header.width == 0 or header.height == 0:
        raise Refusal("format", "the picture has no pixels", status=Status.MALFORMED)
    pixels = header.width * header.height
    if pixels > MAX_PIXELS:
        raise Refusal(
            "pixels",
            f"a picture of {header.width} x {header.height} pixels; the limit is {MAX_PIXELS}",
            status=Status.TOO_LARGE,
            details={"allowed": MAX_PIXELS, "used": pixels},
        )
    return header


def _read(data: bytes) -> PictureHeader | None:
    if data.startswith(_PNG) and data[12:16] == b"IHDR":
        return PictureHeader("png", *struct.unpack_from(">II", data, 16))
    if data.startswith(b"\xff\xd8\xff"):
        return _jpeg(data)
    if data[:6] in {b"GIF87a", b"GIF89a"}:
        return PictureHeader("gif", *struct.unpack_from("<HH", data, 6))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    return None


def _jpeg(data: bytes) -> PictureHeader | None:
    """Walks the segments up to the one with the size; each step goes forward."""
    at = 2
    while True:
        if data[at] != 0xFF:
            return None
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        at += 1
        if marker in _JPEG_BARE:
            continue
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, at + 3)
            return PictureHeader("jpeg", width, height)
        (length,) = struct.unpack_from(">H", data, at)
        if length < 2:
            return None
        at += length


def _webp(data: bytes) -> PictureHeader | None:
    """The three kinds of first chunk (RFC 9649 sections 2.5 to 2.7)."""
    kind = data[12:16]
    if kind == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        return PictureHeader("webp", width, height) if len(data) >= 30 else None
    if kind == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, 21)
        return PictureHeader("webp", (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return PictureHeader("webp", width & 0x3FFF, height & 0x3FFF)
    return None
