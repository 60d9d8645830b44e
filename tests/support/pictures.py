"""Pictures made for tests, and pictures that say they are larger than they are."""

import io
import struct
import zlib
from typing import Any

from PIL import Image


def picture(
    size: tuple[int, int] = (64, 32), form: str = "png", mode: str = "RGB", **options: Any
) -> bytes:
    """A picture with a gradient, encoded as `form`."""
    image = Image.linear_gradient("L").resize(size).convert(mode)
    out = io.BytesIO()
    image.save(out, format=form, **options)
    return out.getvalue()


def opened(data: bytes) -> Image.Image:
    """`data`, decoded."""
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk with its length and checksum (ISO/IEC 15948 section 5.3)."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_bomb(width: int, height: int) -> bytes:
    """A small file of one colour that unpacks to `width` x `height` pixels of four bytes."""
    packer = zlib.compressobj(9)
    row = bytes(1 + width * 4)
    rows = b"".join([packer.compress(row) for _ in range(height)]) + packer.flush()
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)),
            png_chunk(b"IDAT", rows),
            png_chunk(b"IEND", b""),
        ]
    )


def claiming(form: str, width: int, height: int) -> bytes:
    """The first bytes of a picture of that size."""
    if form == "png":
        return b"\x89PNG\r\n\x1a\n" + png_chunk(
            b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        )
    if form == "gif":
        return b"GIF89a" + struct.pack("<HH", width, height) + bytes(3)
    if form == "jpeg":
        size = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
        return b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(10) + b"\xff\xff" + size[1:]
    frame = b"\x00\x00\x00\x00" + (width - 1).to_bytes(3, "little")
    return b"RIFF" + bytes(4) + b"WEBPVP8X" + bytes(4) + frame + (height - 1).to_bytes(3, "little")
