"""thumbnail on real pictures, scaled for real: the fake broker uses the host's own library."""

import base64
import io

import pytest
from PIL import Image

pytest_plugins = ["toolcell_sdk.testing.plugin"]


def picture(width: int, height: int, format: str = "png") -> bytes:  # noqa: A002
    """A picture of one colour."""
    out = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(out, format)
    return out.getvalue()


def opened(thumbnail: dict) -> Image.Image:
    """The picture in a result."""
    return Image.open(io.BytesIO(base64.b64decode(thumbnail["data"])))


def test_the_proportions_are_kept(tool):
    (small,) = tool.call("make", image=picture(400, 100), sizes=[64])
    assert (small["width"], small["height"]) == (64, 16)
    assert opened(small).size == (64, 16)


def test_several_sizes_come_largest_first_and_once(tool, broker):
    made = tool.call("make", image=picture(400, 400), sizes=[32, 128, 32])
    assert [one["size"] for one in made] == [128, 32]
    broker.assert_called("images.resize", times=2)


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_the_format_stays_the_same(tool, kind):
    (small,) = tool.call("make", image=picture(64, 64, kind), sizes=[16])
    assert small["format"] == kind
    assert opened(small).format == kind.upper()


def test_another_format_can_be_asked_for(tool):
    (small,) = tool.call("make", image=picture(64, 64, "png"), sizes=[16], format="jpeg")
    assert opened(small).format == "JPEG"


def test_bytes_that_are_no_picture_never_reach_the_host(tool, broker):
    assert tool.fails("make", image=b"GIF89a...", sizes=[16]).status == 422
    broker.assert_not_called("images.resize")


def test_a_picture_that_lies_about_itself_is_refused_by_the_host(tool):
    assert tool.fails("make", image=b"\x89PNG\r\n\x1a\n" + b"\0" * 50, sizes=[16]).status == 400


@pytest.mark.parametrize("sizes", [[], [15], [4096], [16, 17, 18, 19, 20]])
def test_sizes_out_of_bounds_are_refused(tool, sizes):
    assert tool.fails("make", image=picture(16, 16), sizes=sizes).status == 422


def test_a_quota_that_runs_out_keeps_its_status(tool, broker):
    broker.fail("images.resize", status=429, on_call=2)
    assert tool.fails("make", image=picture(64, 64), sizes=[16, 32]).status == 429
