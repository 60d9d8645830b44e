"""URLs, read strictly: one text, one meaning, the same that is dialled later.

Owns the syntax. RFC 3986 and the WHATWG URL standard disagree on user names, backslashes, numbers
and spaces, and every disagreement between the one who checks and the one who dials is a hole. So
this reader takes what both read alike and refuses the rest (400). It looks nothing up.
"""

import ipaddress
import re
import unicodedata
from urllib.parse import quote

from msgspec import Struct

from toolcell.broker.call import Refusal, shown
from toolcell.errors import Status

__all__ = ["MAX_URL_CHARS", "Target", "parse_url"]

MAX_URL_CHARS = 8192
"""Of a URL; servers take about 8,000 (RFC 9110 section 4.1)."""

_MAX_HOST_CHARS = 253  # RFC 1035 section 2.3.4, without the root's trailing dot
_DEFAULT_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
# What may stand in a path and a query as it is (RFC 3986 section 3.3 and 3.4), and "%".
_PATH_SAFE = "/:@!$&'()*+,;=-._~%"
_QUERY_SAFE = _PATH_SAFE + "?"


class Target(Struct, frozen=True, kw_only=True):
    """Where a request goes. `host` is an A-label name in lower case, or an address in its shortest
    form (IPv6 without brackets); `path` is the request target, query included.
    """

    scheme: str
    host: str
    port: int
    path: str
    is_address: bool

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: what a credential may not cross (RFC 6454)."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The `Host` header: brackets round IPv6, the port only where it is not the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL in normal form, without fragment."""
        return f"{self.scheme}://{self.authority}{self.path}"


def _malformed(reason: str, remedy: str = "") -> Refusal:
    return Refusal("url", reason, status=Status.MALFORMED, remedy=remedy)


def parse_url(text: str) -> Target:
    """`text` as a target. A :class:`Refusal` (400, rule `url`) names what is wrong with it."""
    if len(text) > MAX_URL_CHARS:
        raise _malformed(f"a URL of {len(text)} characters; the limit is {MAX_URL_CHARS}")
    for char in text:
        if char <= " " or char == "\x7f" or char == "\\":
            name = {" ": "a space", "\\": "a backslash"}.get(char, "a control character")
            raise _malformed(f"the URL holds {name}", "percent-encode it")
    match = _URL.fullmatch(text)
    if match is None:
        raise _malformed(f"`{shown(text)}` is not an absolute URL", "write https://host/path")
    scheme, authority, path, query = match[1].lower(), match[2], match[3], match[4] or ""
    if scheme not in _DEFAULT_PORTS:
        raise _malformed(f"scheme `{shown(scheme)}` is not known; known: http, https")
    if "@" in authority:
        raise _malformed(
            "a user name in a URL is not taken", "name a `credential`, or set `Authorization`"
        )
    host_text, port = _split_port(authority, _DEFAULT_PORTS[scheme])
    host, is_address = _host(host_text)
    target = quote(path or "/", safe=_PATH_SAFE) + quote(query, safe=_QUERY_SAFE)
    return Target(scheme=scheme, host=host, port=port, path=target, is_address=is_address)


def _split_port(authority: str, default: int) -> tuple[str, int]:
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        if not bracket:
            raise _malformed(f"`{shown(authority)}` has a bracket that does not end")
        host += bracket
    else:
        host, colon, rest = authority.partition(":")
        rest = colon + rest
    if not rest:
        return host, default
    digits = rest[1:]
    if rest[0] != ":" or not _PORT.fullmatch(digits) or int(digits) > 65535:
        raise _malformed(f"`{shown(rest)}` is not a port", "write :1 to :65535, or leave it out")
    return host, int(digits)


def _host(text: str) -> tuple[str, bool]:
    """The host in its one spelling, and whether it is an address."""
    if text.startswith("["):
        return _ipv6(text[1:-1]), True
    name = _ascii_host(text).removesuffix(".")
    if not name:
        raise _malformed("the URL has no host")
    labels = name.split(".")
    if len(name) > _MAX_HOST_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        raise _malformed(f"`{shown(text)}` is not a host name")
    # A resolver may read `127.1`, `0x7f.1`, `0177.0.0.1` or `2130706433` as an address (inet_aton),
    # and the WHATWG standard does; here a host that ends in a number is four decimals or nothing.
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(name), True
    return name, False


def _ipv4(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise _malformed(
            f"`{shown(text)}` looks like an address and is not one",
            "write four decimal numbers without leading zeros",
        ) from None


def _ipv6(text: str) -> str:
    if "%" in text:
        raise _malformed("a zone in an address names an interface of the host", "leave out `%…`")
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        raise _malformed(f"`{shown(text)}` is not an IPv6 address") from None


def _ascii_host(text: str) -> str:
    """`text` in lower-case ASCII. A name in another script must be its own normal form.

    IDNA maps many spellings to one name (full-width letters, ligatures, `ß` to `ss`, other dots),
    each a way to write a host that a reader takes for another. Those are refused: what is left
    says the same before and after.
    """
    if text.isascii():
        return text.lower()
    name = unicodedata.normalize("NFC", text.lower())
    if len(name) > _MAX_HOST_CHARS:
        raise _malformed("the host name is too long")
    try:
        encoded = name.encode("idna").decode("ascii")
        same = encoded.encode("ascii").decode("idna") == name
    except UnicodeError:
        same = False
    if not same:
        raise _malformed(
            f"`{shown(text)}` is not a host name in normal form", "write its `xn--` form"
        )
    return encoded
