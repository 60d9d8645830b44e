"""One request and its response, over one wire.

Owns the use of urllib3: its connection classes frame the message and check the certificate, on a
socket that was dialled here. No pool, no retries, no redirects, no proxy from the environment, no
netrc, no cookies: none of that is reached. Foreign exceptions are mapped here and nowhere else.
"""

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from urllib3 import HTTPHeaderDict, HTTPResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util.response import assert_header_parsing

from toolcell.broker.call import Call, Refusal, shown
from toolcell.broker.http.body import BodySink, content_coding
from toolcell.broker.http.headers import Headers, checked_response_headers, single
from toolcell.broker.http.url import Target
from toolcell.broker.http.wire import TimedSocket, Wire
from toolcell.errors import Status

__all__ = ["Answer", "Ask", "exchange"]

_BODY_PIECE = 64 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Ask(Struct, frozen=True, kw_only=True):
    """One request, checked. `headers` are all that is sent but for the framing."""

    method: str
    target: Target
    headers: Headers
    body: bytes
    max_header_bytes: int
    max_response_bytes: int


class Answer(Struct, frozen=True, kw_only=True):
    """One response. `location` is set for a redirect, whose body is not read."""

    status: int
    headers: Headers
    body: bytes
    location: str


def exchange(ask: Ask, addresses: Sequence[str], tls: ssl.SSLContext | None, call: Call) -> Answer:
    """Sends `ask` to one of `addresses` and reads the answer, within the call's deadline.

    `tls` for an https target. Raises a :class:`Refusal` for what a server did wrong (502, 413),
    and what the call raises at its deadline.
    """
    wire = Wire(call, ask.max_header_bytes)
    forget = call.session.cancel.on_cancel(wire.abort)
    try:
        with _mapped(ask.target, call):
            return _exchange(ask, wire, addresses, tls)
    finally:
        forget()
        wire.close()


def _exchange(ask: Ask, wire: Wire, addresses: Sequence[str], tls: ssl.SSLContext | None) -> Answer:
    with contextlib.closing(wire.dial(addresses, ask.target.port)) as dialled:
        connection = _connection(ask.target, wire, dialled, tls)
        try:
            connection.request(
                ask.method,
                ask.target.path,
                body=ask.body or None,
                headers=HTTPHeaderDict(ask.headers),
                preload_content=False,
                decode_content=False,
            )
            return _read(ask, wire, connection.getresponse())
        finally:
            connection.hang_up()


def _read(ask: Ask, wire: Wire, response: HTTPResponse) -> Answer:
    wire.head_is_read()
    status = int(response.status)
    if not 200 <= status <= 599:
        raise _upstream("response", f"the server answered with status {status}")
    raw_headers = list(response.headers.items())
    headers = checked_response_headers(raw_headers, ask.max_header_bytes)
    _check_framing(raw_headers, ask)
    if status in _REDIRECTS and (location := single(headers, "location")):
        return Answer(status=status, headers=headers, body=b"", location=location)
    coding = content_coding(headers)
    sink = BodySink(coding, ask.max_response_bytes)
    for piece in response.stream(_BODY_PIECE, decode_content=False):
        sink.feed(piece)
    if coding:
        headers = [
            (name, value)
            for name, value in headers
            if name.lower() not in {"content-encoding", "content-length"}
        ]
    return Answer(status=status, headers=headers, body=sink.finish(), location="")


def _check_framing(headers: Headers, ask: Ask) -> None:
    """One length, or chunks, and not both (RFC 9112 section 6.3): else two readers may differ."""
    coding = single(headers, "transfer-encoding").lower()
    length = single(headers, "content-length")
    if coding not in {"", "chunked"}:
        raise _upstream("response", f"transfer coding `{shown(coding)}` is not taken")
    if coding and length:
        raise _upstream("response", "the server sent both a length and chunks")
    if length and not (length.isascii() and length.isdigit() and len(length) <= 18):
        raise _upstream("response", f"content length `{shown(length)}` is not a number")
    if length and ask.method != "HEAD" and int(length) > ask.max_response_bytes:
        raise Refusal(
            "max_response_bytes",
            f"a body of {int(length)} bytes; `max_response_bytes` is {ask.max_response_bytes}",
            status=Status.TOO_LARGE,
            remedy="raise `capabilities.http.max_response_bytes`, or ask for a part (`Range`)",
        )


class _StrictResponse(http.client.HTTPResponse):
    """Refuses headers that the parser gave up on: it would go on without the rest of them."""

    def begin(self) -> None:
        super().begin()
        assert_header_parsing(self.msg)


class _Pinned:
    """Mixed into urllib3's connections: the socket is the one that was dialled, and timed."""

    sock: Any

    def _pin(self, wire: Wire, dialled: socket.socket) -> None:
        self._wire = wire
        self._dialled = dialled
        self._open: socket.socket = dialled

    def _new_conn(self) -> socket.socket:
        return self._dialled

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self._open = self.sock
        self.sock = TimedSocket(self._open, self._wire)

    def hang_up(self) -> None:
        """Closes what is open now: the dialled socket, or the TLS one that took it over."""
        self._open.close()


class _PlainConnection(_Pinned, HTTPConnection):
    """http to a pinned address."""

    response_class = _StrictResponse


class _TlsConnection(_Pinned, HTTPSConnection):
    """https to a pinned address."""

    response_class = _StrictResponse


def _connection(
    target: Target, wire: Wire, dialled: socket.socket, tls: ssl.SSLContext | None
) -> _PlainConnection | _TlsConnection:
    connection: _PlainConnection | _TlsConnection
    if tls is None:
        connection = _PlainConnection(target.host, target.port)
    else:
        # `server_hostname` alone: `assert_hostname` would switch off the check on the shared
        # context.
        connection = _TlsConnection(
            target.host, target.port, server_hostname=target.host, ssl_context=tls
        )
    connection._pin(wire, dialled)  # noqa: SLF001 - a mixin of this module
    return connection


def _upstream(rule: str, message: str) -> Refusal:
    return Refusal(rule, message, status=Status.UPSTREAM)


@contextlib.contextmanager
def _mapped(target: Target, call: Call) -> Iterator[None]:
    """Turns what the network threw into a refusal. The run's own end comes first.

    No message holds an address: a name's address may be inside the operator's network.
    """
    host = shown(target.host)
    try:
        yield
    except (TimeoutError, ReadTimeoutError):
        raise call.timed_out() from None
    except ssl.SSLCertVerificationError as error:
        call.remaining_s()
        reason = error.verify_message or "it can't be verified"
        raise _upstream("tls", f"the certificate of `{host}` was refused: {reason}") from None
    except ssl.SSLError as error:
        call.remaining_s()
        raise _upstream("tls", f"TLS with `{host}` failed: {error.reason or 'broken'}") from None
    except OSError as error:
        call.remaining_s()
        reason = error.strerror or "it was broken off"
        raise _upstream("connect", f"no connection to `{host}`: {reason}") from None
    except (HTTPError, http.client.HTTPException, ValueError):
        call.remaining_s()
        raise _upstream("response", f"`{host}` did not answer with sound HTTP") from None
