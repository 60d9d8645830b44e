"""Bodies: the content coding that we asked for, and caps on what comes out of it.

Owns the decoding of gzip with a cap on both sides of it. A kilobyte of gzip can be a megabyte of
zeros, and gzip in gzip a gigabyte; so output is asked for piece by piece up to the cap, and only
one coding, the one we offered, is taken.
"""

import zlib
from typing import Any

from toolcell.broker.call import Refusal, shown
from toolcell.broker.http.headers import Headers
from toolcell.errors import Status

__all__ = ["BodySink", "content_coding"]

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_MAX_MEMBERS = 64
"""Of one gzip stream (RFC 1952 section 2.2 lets them follow each other)."""


def content_coding(headers: Headers) -> str:
    """`gzip` or the empty string. A :class:`Refusal` (502) for any other coding, or two."""
    codings = [
        coding.strip().lower()
        for name, value in headers
        if name.lower() == "content-encoding"
        for coding in value.split(",")
    ]
    wanted = [coding for coding in codings if coding not in {"", "identity"}]
    if not wanted:
        return ""
    if len(wanted) == 1 and wanted[0] in {"gzip", "x-gzip"}:
        return "gzip"
    raise Refusal(
        "content-encoding",
        f"the server sent content coding `{shown(', '.join(wanted))}`; only one gzip is taken",
        status=Status.UPSTREAM,
    )


class BodySink:
    """Takes a body as it comes off the wire; holds at most `max_bytes` of it, decoded."""

    def __init__(self, coding: str, max_bytes: int) -> None:
        self._gzip = coding == "gzip"
        self._max_bytes = max_bytes
        self._raw_bytes = 0
        self._members = 0
        self._decoder: Any = None
        self._out = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Takes `chunk`. A :class:`Refusal` where a cap is reached or it can't be decoded."""
        self._raw_bytes += len(chunk)
        if self._raw_bytes > self._max_bytes:
            raise self._too_large("on the wire")
        if self._gzip:
            self._inflate(chunk)
        else:
            self._out += chunk

    def finish(self) -> bytes:
        """The body. A :class:`Refusal` (502) where the stream broke off in the middle."""
        if self._decoder is not None and not self._decoder.eof:
            raise _broken("it ends in the middle")
        return bytes(self._out)

    def _inflate(self, chunk: bytes) -> None:
        while chunk:
            if self._decoder is None or self._decoder.eof:
                self._members += 1
                if self._members > _MAX_MEMBERS:
                    raise _broken(f"it has more than {_MAX_MEMBERS} members")
                self._decoder = zlib.decompressobj(_GZIP_WINDOW)
            room = self._max_bytes - len(self._out) + 1
            try:
                self._out += self._decoder.decompress(chunk, room)
            except zlib.error:
                raise _broken("it is not gzip") from None
            if len(self._out) > self._max_bytes:
                raise self._too_large("after decompression")
            chunk = self._decoder.unused_data

    def _too_large(self, where: str) -> Refusal:
        return Refusal(
            "max_response_bytes",
            f"the body is over {self._max_bytes} bytes {where} (`max_response_bytes`)",
            status=Status.TOO_LARGE,
            remedy="raise `capabilities.http.max_response_bytes`, or ask for a part (`Range`)",
        )


def _broken(reason: str) -> Refusal:
    return Refusal(
        "content-encoding",
        f"the server's gzip can't be decoded: {reason}",
        status=Status.UPSTREAM,
    )
