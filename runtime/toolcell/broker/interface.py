"""What crosses the broker: one struct per capability's parameters, and the results.

Owns the shapes and nothing else. Lanes build results into their own form (WIT records, JSON-RPC
results) from these; both lanes and the test kit import them from here. Bounds that depend on the
policy are checked by the capability, not here.

`bytes` fields also take base64 text (RFC 4648, padded), which is how bytes cross a lane.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

__all__ = [
    "MAX_IMAGE_SIDE_PX",
    "PARAMS",
    "FileEntry",
    "FsList",
    "FsReadBytes",
    "FsReadText",
    "FsRemove",
    "FsWriteBytes",
    "FsWriteText",
    "HttpFetch",
    "HttpResponse",
    "Image",
    "ImagesResize",
    "KvDelete",
    "KvGet",
    "KvList",
    "KvSet",
    "LogEmit",
    "LogLine",
]

MAX_IMAGE_SIDE_PX = 8192
"""Longest side of a picture that `images.resize` gives out."""

Level = Literal["debug", "info", "warning", "error"]
ImageFormat = Literal["png", "jpeg", "webp"]


class Params(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Base of the parameters: a field without a default is required, an unknown one is an error."""


# --- kv -----------------------------------------------------------------------------------------


class KvGet(Params, frozen=True, gc=False):
    """`kv.get` -> `str`, or None where `key` is not there."""

    key: str


class KvSet(Params, frozen=True, gc=False):
    """`kv.set` -> None."""

    key: str
    value: str


class KvDelete(Params, frozen=True, gc=False):
    """`kv.delete` -> whether `key` was there."""

    key: str


class KvList(Params, frozen=True, gc=False):
    """`kv.list` -> the keys that start with `prefix`, sorted by code point."""

    prefix: str = ""


# --- http ---------------------------------------------------------------------------------------


class HttpFetch(Params, frozen=True, gc=False):
    """`http.fetch` -> :class:`HttpResponse`.

    `credential` names a secret that the broker adds. `timeout_ms` can only shorten the policy's.
    """

    url: str
    method: str = "GET"
    headers: list[tuple[str, str]] = []
    body: bytes = b""
    credential: str | None = None
    timeout_ms: Annotated[int, Meta(ge=1)] | None = None


class HttpResponse(Struct, frozen=True, kw_only=True):
    """What a server answered, any status. `url` is the one that answered, after redirects.

    `headers` are without the hop-by-hop ones; `body` is without its content coding.
    """

    status: int
    url: str
    headers: list[tuple[str, str]]
    body: bytes


# --- fs -----------------------------------------------------------------------------------------


class FsReadText(Params, frozen=True, gc=False):
    """`fs.readText` -> `str`. A file that is not UTF-8 is a fault (400)."""

    path: str


class FsWriteText(Params, frozen=True, gc=False):
    """`fs.writeText` -> None. Replaces the file whole or not at all; makes missing folders."""

    path: str
    text: str


class FsReadBytes(Params, frozen=True, gc=False):
    """`fs.readBytes` -> `bytes`."""

    path: str


class FsWriteBytes(Params, frozen=True, gc=False):
    """`fs.writeBytes` -> None. Replaces the file whole or not at all; makes missing folders."""

    path: str
    data: bytes


class FsList(Params, frozen=True, gc=False):
    """`fs.list` -> `list[FileEntry]`, sorted by name."""

    path: str


class FsRemove(Params, frozen=True, gc=False):
    """`fs.remove` -> None. A file, or a folder with all that is in it."""

    path: str


class FileEntry(Struct, frozen=True, kw_only=True):
    """One entry of a folder. `size` in bytes, 0 for a folder."""

    name: str
    kind: Literal["file", "directory"]
    size: int


# --- images -------------------------------------------------------------------------------------


class ImagesResize(Params, frozen=True, gc=False):
    """`images.resize` -> :class:`Image`, scaled to fit inside `width` x `height` pixels."""

    data: bytes
    width: Annotated[int, Meta(ge=1, le=MAX_IMAGE_SIDE_PX)]
    height: Annotated[int, Meta(ge=1, le=MAX_IMAGE_SIDE_PX)]
    format: ImageFormat


class Image(Struct, frozen=True, kw_only=True):
    """An encoded picture, without metadata. `width` and `height` in pixels."""

    data: bytes
    width: int
    height: int
    format: ImageFormat


# --- log ----------------------------------------------------------------------------------------


class LogEmit(Params, frozen=True, gc=False):
    """`log.emit` -> None, also where the line is dropped: a log never changes what a tool does."""

    level: Level
    message: str


class LogLine(Struct, frozen=True, kw_only=True):
    """One kept line. `at_ms` since the call started; `message` has no control characters."""

    at_ms: float
    level: Level
    message: str


PARAMS: dict[str, type[Params]] = {
    "kv.get": KvGet,
    "kv.set": KvSet,
    "kv.delete": KvDelete,
    "kv.list": KvList,
    "http.fetch": HttpFetch,
    "fs.readText": FsReadText,
    "fs.writeText": FsWriteText,
    "fs.readBytes": FsReadBytes,
    "fs.writeBytes": FsWriteBytes,
    "fs.list": FsList,
    "fs.remove": FsRemove,
    "images.resize": ImagesResize,
    "log.emit": LogEmit,
}
"""Capability -> its parameters. Covers `toolcell.policy.envelope.CAPABILITIES`; a test holds it."""
