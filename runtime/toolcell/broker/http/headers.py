"""Headers, both ways: which a tool may set, and which it gets to see.

Owns the lists. A header that frames the message, names the host, speaks to a proxy or changes the
method would let a tool say one thing to the broker and another to the server.
"""

import re
from collections.abc import Iterable, Sequence

from toolcell.broker.call import Refusal, shown
from toolcell.errors import Status

__all__ = [
    "MAX_REQUEST_HEADERS",
    "Headers",
    "checked_request_headers",
    "checked_response_headers",
    "kept_across_origins",
    "single",
]

Headers = list[tuple[str, str]]

MAX_REQUEST_HEADERS = 64

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")  # RFC 9110 section 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_RESPONSE_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OWNED = _HOP_BY_HOP | {
    "accept-encoding",  # the broker takes what it can bound
    "content-length",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-http-method",  # each of these three can turn a granted GET into a DELETE
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
}
"""Request headers that are the broker's own. Any `proxy-` one is, too."""

_ACROSS_ORIGINS = frozenset(
    {
        "accept",
        "accept-language",
        "cache-control",
        "content-language",
        "content-type",
        "if-modified-since",
        "if-none-match",
        "pragma",
        "range",
        "user-agent",
    }
)
"""What is sent on to another origin after a redirect. An allowlist: a key can be in any header."""


def _malformed(reason: str, remedy: str = "") -> Refusal:
    return Refusal("header", reason, status=Status.MALFORMED, remedy=remedy)


def checked_request_headers(headers: Sequence[tuple[str, str]], max_bytes: int) -> Headers:
    """`headers` as they may be sent, values trimmed. A :class:`Refusal` (400, 413) names the first
    that may not.
    """
    if len(headers) > MAX_REQUEST_HEADERS:
        raise Refusal(
            "header",
            f"{len(headers)} request headers; the limit is {MAX_REQUEST_HEADERS}",
            status=Status.TOO_LARGE,
        )
    size = _size(headers)
    if size > max_bytes:
        raise Refusal(
            "max_header_bytes",
            f"request headers of {size} bytes; `max_header_bytes` is {max_bytes}",
            status=Status.TOO_LARGE,
        )
    return [_checked(name, value) for name, value in headers]


def _checked(name: str, value: str) -> tuple[str, str]:
    if not _TOKEN.fullmatch(name):
        raise _malformed(f"`{shown(name)}` is not a header name")
    if not _VALUE.fullmatch(value):
        raise _malformed(f"header `{shown(name)}` holds a character that is not printable ASCII")
    lower = name.lower()
    if lower in _OWNED or lower.startswith("proxy-"):
        raise _malformed(f"header `{shown(name)}` is set by the broker", "leave it out")
    return name, value.strip(" \t")


def checked_response_headers(headers: Iterable[tuple[str, str]], max_bytes: int) -> Headers:
    """A server's headers without the hop-by-hop ones.

    A :class:`Refusal` where they are over `max_bytes` (413) or not well formed (502): a line that
    a lenient reader takes apart in another way must not reach a tool as if it were sound.
    """
    seen = [(name, _unfolded(value)) for name, value in headers]
    size = _size(seen)
    if size > max_bytes:
        raise Refusal(
            "max_header_bytes",
            f"response headers of {size} bytes; `max_header_bytes` is {max_bytes}",
            status=Status.TOO_LARGE,
        )
    for name, value in seen:
        if not _TOKEN.fullmatch(name) or not _RESPONSE_VALUE.fullmatch(value):
            raise Refusal(
                "response", "the server's headers are not well formed", status=Status.UPSTREAM
            )
    return [(name, value) for name, value in seen if name.lower() not in _HOP_BY_HOP]


def _unfolded(value: str) -> str:
    """A folded line (RFC 9112 section 5.2) on one line."""
    return re.sub(r"\r?\n[ \t]+", " ", value)


def _size(headers: Iterable[tuple[str, str]]) -> int:
    """Bytes on the wire: colon, space and line end included."""
    return sum(len(name) + len(value) + 4 for name, value in headers)


def kept_across_origins(headers: Headers) -> Headers:
    """The headers that may go on to another scheme, host or port."""
    return [(name, value) for name, value in headers if name.lower() in _ACROSS_ORIGINS]


def single(headers: Iterable[tuple[str, str]], name: str) -> str:
    """The value of `name`, or the empty string. A :class:`Refusal` (502) where two differ."""
    values = {value.strip() for key, value in headers if key.lower() == name}
    if len(values) > 1:
        raise Refusal(
            "response", f"the server sent `{name}` twice, and not the same", status=Status.UPSTREAM
        )
    return values.pop() if values else ""
