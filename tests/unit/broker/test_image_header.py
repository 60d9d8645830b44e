"""Format and size of a picture from its first bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import claiming, picture

from toolcell.broker.call import Refusal
from toolcell.broker.images.header import MAX_PIXELS, PictureHeader, read_header


@pytest.mark.parametrize("size", [(1, 1), (64, 32), (333, 1)])
@pytest.mark.parametrize(
    ("form", "mode", "options"),
    [
        ("png", "RGB", {}),
        ("png", "L", {}),
        ("jpeg", "RGB", {}),
        ("jpeg", "CMYK", {}),
        ("jpeg", "RGB", {"progressive": True}),
        ("gif", "P", {}),
        ("webp", "RGB", {}),
        ("webp", "RGB", {"lossless": True}),
        ("webp", "RGBA", {}),
    ],
)
def test_size_is_that_of_the_picture(
    form: str, mode: str, options: dict, size: tuple[int, int]
) -> None:
    assert read_header(picture(size, form, mode, **options)) == PictureHeader(form, *size)


@pytest.mark.parametrize("form", ["png", "jpeg", "webp"])
def test_size_is_read_without_the_rest(form: str) -> None:
    assert read_header(claiming(form, 6000, 5000)) == PictureHeader(form, 6000, 5000)


@pytest.mark.parametrize("form", ["png", "jpeg", "gif"])
@pytest.mark.parametrize("size", [(60_000, 60_000), (65_535, 611)])
def test_too_many_pixels_are_refused(form: str, size: tuple[int, int]) -> None:
    with pytest.raises(Refusal) as caught:
        read_header(claiming(form, *size))

    assert (caught.value.status, caught.value.rule) == (413, "pixels")
    assert str(MAX_PIXELS) in caught.value.message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"BM" + bytes(100),
        b"II*\0" + bytes(100),
        b"%!PS-Adobe-3.0 EPSF-3.0",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"\x00\x00\x00\x0cjP  \r\n\x87\n",
        b"\x00\x00\x00\x20ftypavif",
        b"\x89PNG\r\n\x1a\n",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIDAT" + bytes(20),
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xe0\x00\x00",
        b"\xff\xd8\xff" + b"\xff" * 100,
        b"\xff\xd8\xff\xe0\xff\xff",
        b"GIF89a",
        b"RIFF\0\0\0\0WEBPVP8X",
        b"RIFF\0\0\0\0WEBPVP8 " + bytes(20),
        b"RIFF\0\0\0\0WEBPxxxx" + bytes(20),
        claiming("png", 0, 10),
        claiming("gif", 10, 0),
    ],
)
def test_what_is_no_picture_in_an_allowed_format_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        read_header(data)

    assert (caught.value.status, caught.value.rule) == (400, "format")


STARTS = [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8"]


@given(start=st.sampled_from(STARTS), rest=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(start: bytes, rest: bytes) -> None:
    try:
        header = read_header(start + rest)
    except Refusal:
        return
    assert 0 < header.width * header.height <= MAX_PIXELS
