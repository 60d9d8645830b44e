"""`images.resize` through a real worker: every format, mode and shape."""

import io
import struct

import pytest
from broker_runs import rule_of, run_of
from pictures import opened, picture
from PIL import Image

from toolcell.broker import BrokerServices
from toolcell.errors import CapabilityFault

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("target", ["png", "jpeg", "webp"])
@pytest.mark.parametrize(
    ("form", "mode", "options"),
    [
        ("png", "RGB", {}),
        ("png", "RGBA", {}),
        ("png", "L", {}),
        ("png", "LA", {}),
        ("png", "P", {}),
        ("png", "P", {"transparency": 0}),
        ("png", "1", {}),
        ("png", "I;16", {}),
        ("jpeg", "RGB", {}),
        ("jpeg", "CMYK", {}),
        ("jpeg", "L", {"progressive": True}),
        ("gif", "P", {}),
        ("webp", "RGBA", {}),
    ],
)
def test_every_format_and_mode_becomes_every_target(
    services: BrokerServices, form: str, mode: str, options: dict, target: str
) -> None:
    source = picture((120, 60), form, mode, **options) if mode != "I;16" else deep_png()

    with run_of(services) as run:
        made = run.call("images.resize", data=source, width=40, height=40, format=target)

    image = opened(made.data)
    assert (image.format or "").lower() == target == made.format
    assert image.size == (made.width, made.height) == (40, 20)
    assert image.mode in {"L", "RGB", "RGBA"}


def deep_png() -> bytes:
    out = io.BytesIO()
    Image.frombytes("I;16", (120, 60), struct.pack("<H", 0x8000) * 7200).save(out, "PNG")
    return out.getvalue()


def test_deep_grey_keeps_its_brightness(services: BrokerServices) -> None:
    with run_of(services) as run:
        made = run.call("images.resize", data=deep_png(), width=10, height=10, format="png")

    assert opened(made.data).convert("L").getpixel((3, 3)) == pytest.approx(0x80, abs=1)


@pytest.mark.parametrize(
    ("size", "box", "fitted"),
    [
        ((100, 50), (10, 10), (10, 5)),
        ((50, 100), (10, 10), (5, 10)),
        ((100, 100), (10, 30), (10, 10)),
        ((1000, 1), (10, 10), (10, 1)),
        ((10, 5), (40, 40), (40, 20)),
        ((64, 32), (64, 32), (64, 32)),
    ],
)
def test_picture_fits_the_box_and_keeps_its_proportions(
    services: BrokerServices, size: tuple[int, int], box: tuple[int, int], fitted: tuple[int, int]
) -> None:
    with run_of(services) as run:
        made = run.call(
            "images.resize", data=picture(size), width=box[0], height=box[1], format="png"
        )

    assert (made.width, made.height) == fitted


def test_large_jpeg_is_scaled(services: BrokerServices) -> None:
    with run_of(services, max_message_bytes=8 * 2**20) as run:
        made = run.call(
            "images.resize",
            data=picture((4000, 3000), "jpeg"),
            width=200,
            height=200,
            format="jpeg",
        )

    assert (made.width, made.height) == (200, 150)
    assert len(made.data) < 20_000


@pytest.mark.parametrize("turned", range(1, 9))
def test_orientation_in_the_metadata_is_applied(services: BrokerServices, turned: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = turned
    source = picture((80, 40), "jpeg", exif=exif)

    with run_of(services) as run:
        made = run.call("images.resize", data=source, width=20, height=20, format="png")

    assert (made.width, made.height) == ((20, 10) if turned < 5 else (10, 20))
    image = opened(made.data).convert("L")
    # The source is black at the top and white at the bottom; where black is now says which turn.
    edges = {
        "top": image.getpixel((image.width // 2, 0)),
        "bottom": image.getpixel((image.width // 2, image.height - 1)),
        "left": image.getpixel((0, image.height // 2)),
        "right": image.getpixel((image.width - 1, image.height // 2)),
    }
    black = {
        1: "top",
        2: "top",
        3: "bottom",
        4: "bottom",
        5: "left",
        6: "right",
        7: "right",
        8: "left",
    }
    assert min(edges, key=lambda name: edges[name]) == black[turned]


@pytest.mark.parametrize("form", ["png", "jpeg", "webp"])
def test_metadata_is_not_passed_on(services: BrokerServices, form: str) -> None:
    from PIL import ImageCms, PngImagePlugin

    exif = Image.Exif()
    exif[0x010E] = "hush place"
    options = {
        "exif": exif,
        "icc_profile": ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
    }
    if form == "png":
        text = PngImagePlugin.PngInfo()
        text.add_text("Comment", "hush place")
        options["pnginfo"] = text
    source = picture((60, 60), form, **options)
    assert b"hush place" in source

    with run_of(services) as run:
        for size, target in [(60, form), (30, form), (60, "png")]:
            made = run.call("images.resize", data=source, width=size, height=size, format=target)
            image = opened(made.data)
            assert b"hush" not in made.data
            assert not dict(image.getexif())
            assert not {"icc_profile", "exif", "Comment", "xmp"} & set(image.info)


def test_transparency_survives_where_the_target_has_it(services: BrokerServices) -> None:
    clear = io.BytesIO()
    Image.new("RGBA", (20, 20), (255, 0, 0, 0)).save(clear, "PNG")

    with run_of(services) as run:
        png = run.call("images.resize", data=clear.getvalue(), width=9, height=9, format="png")
        jpeg = run.call("images.resize", data=clear.getvalue(), width=9, height=9, format="jpeg")

    assert opened(png.data).getpixel((4, 4))[3] == 0
    assert opened(jpeg.data).getpixel((4, 4)) == (255, 255, 255)


def test_same_picture_gives_the_same_bytes(services: BrokerServices) -> None:
    with run_of(services) as run:
        made = [
            run.call("images.resize", data=picture(), width=9, height=9, format="webp").data
            for _ in range(2)
        ]

    assert made[0] == made[1]


@pytest.mark.parametrize("form", ["png", "jpeg", "webp", "gif"])
def test_picture_without_its_second_half_is_refused(services: BrokerServices, form: str) -> None:
    out = io.BytesIO()
    Image.effect_noise((99, 99), 100).save(out, form)
    half = out.getvalue()[: len(out.getvalue()) // 2]

    with run_of(services) as run:
        fault = run.refused("images.resize", data=half, width=9, height=9, format="png")

    assert (fault.status, rule_of(fault)) == (400, "picture")


def test_asking_for_too_many_pixels_is_refused(services: BrokerServices) -> None:
    with run_of(services) as run:
        fault = run.refused("images.resize", data=picture(), width=8000, height=8000, format="png")

    assert (fault.status, rule_of(fault)) == (413, "pixels")


def test_result_over_the_message_size_is_refused(services: BrokerServices) -> None:
    noise = io.BytesIO()
    Image.effect_noise((64, 64), 100).save(noise, "PNG")
    with run_of(services, max_message_bytes=6000) as run, pytest.raises(CapabilityFault) as caught:
        run.call("images.resize", data=noise.getvalue(), width=512, height=512, format="png")

    assert (caught.value.status, rule_of(caught.value)) == (413, "max_message_bytes")
