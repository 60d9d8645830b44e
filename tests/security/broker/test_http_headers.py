"""Headers that would frame, route or change a request, and responses that would choke the host."""

import pytest
from loopback import Peer, Web

BREAKS = ["\r\n", "\n", "\r", "\0", "\x0b", "\x1f", "\x7f", "\u2028", "\x85", "\u560d\u560a"]


@pytest.mark.parametrize("text", BREAKS)
def test_line_break_in_a_header_value_is_refused(web: Web, text: str) -> None:
    server = web.serve()

    status, rule, _ = web.refused(
        f"http://good.test:{server.port}/", headers=[("X-A", f"a{text}X-Injected: 1")]
    )

    assert (status, rule) == (400, "header")
    assert server.connections == 0


@pytest.mark.parametrize("text", [*BREAKS, " ", ":", "", "(", "ü", '"'])
def test_header_name_is_a_token(web: Web, text: str) -> None:
    name = f"X{text}A" if text else ""

    assert web.refused("http://good.test/", headers=[(name, "v")])[:2] == (400, "header")


@pytest.mark.parametrize(
    "method",
    [
        "GET /x HTTP/1.1\r\nX: ",
        "GE T",
        "G\0ET",
        "",
        "CONNECT",
        "TRACE",
        "get\n",
        "\xef\xbc\xa7ET",
    ],
)
def test_method_is_one_of_the_granted_words(web: Web, method: str) -> None:
    status, rule, _ = web.refused("http://good.test/", method=method)

    assert (status, rule) == (403, "method")
    assert web.lookups == []


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "host",
        "Content-Length",
        "Transfer-Encoding",
        "TE",
        "Trailer",
        "Connection",
        "Keep-Alive",
        "Upgrade",
        "Expect",
        "Accept-Encoding",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Proxy-Anything",
        "X-Forwarded-For",
        "Forwarded",
        "Via",
        "X-HTTP-Method-Override",
        "HTTP2-Settings",
    ],
)
def test_header_of_the_broker_s_own_can_not_be_set(web: Web, name: str) -> None:
    status, rule, fault = web.refused("http://good.test/", headers=[(name, "x")])

    assert (status, rule) == (400, "header")
    assert name in fault.message


def test_request_headers_are_bounded_in_number_and_size(web: Web) -> None:
    many = [(f"X-{at}", "v") for at in range(65)]
    big = [("X-Big", "v" * 40_000)]

    assert web.refused("http://good.test/", headers=many)[:2] == (413, "header")
    assert web.refused("http://good.test/", headers=big)[:2] == (413, "max_header_bytes")


def test_request_body_is_bounded(web: Web) -> None:
    policy = {"max_request_bytes": 10}

    status, rule, _ = web.refused("http://good.test/", policy, method="POST", body=b"x" * 11)

    assert (status, rule) == (413, "max_request_bytes")


def test_body_on_a_get_is_refused(web: Web) -> None:
    assert web.refused("http://good.test/", body=b"x")[:2] == (400, "body")


def test_what_is_sent_is_what_was_asked_for_and_no_more(web: Web) -> None:
    server = web.serve()

    web.get(f"http://good.test:{server.port}/p", headers=[("X-One", " v ")])

    assert dict(server.requests[0].headers) == {
        "Host": f"good.test:{server.port}",
        "Accept-Encoding": "gzip",
        "Connection": "close",
        "User-Agent": "toolcell/0.1",
        "X-One": "v",
    }


def raw(*lines: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""])


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(raw(b"X: " + b"a" * 40_000), id="one long header"),
        pytest.param(raw(*[b"X-%d: %s" % (n, b"a" * 500) for n in range(90)]), id="many headers"),
        pytest.param(b"HTTP/1.1 200 " + b"a" * 50_000, id="endless status line"),
        pytest.param(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n" * 4000, id="endless 100 Continue"),
    ],
)
def test_head_over_its_cap_is_refused(web: Web, response: bytes) -> None:
    server = web.serve(lambda peer: peer.send(response) and peer.hold())

    status, rule, _ = web.refused(f"http://good.test:{server.port}/")

    assert (status, rule) == (413, "max_header_bytes")
    assert web.run.session.deadline.elapsed_ms() < 4000


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(raw(*[b"X-%d: y" % n for n in range(150)]), id="too many headers"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="another protocol"),
        pytest.param(b"HTTP/9.9 200 OK\r\n\r\n", id="unknown version"),
        pytest.param(b"HTTP/1.1 OK\r\n\r\n", id="no status"),
        pytest.param(b"HTTP/1.1 999 Odd\r\n\r\n", id="status out of range"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", id="switch of protocol"),
        pytest.param(raw(b"X y: 1", b"Content-Length: 0"), id="space in a header name"),
        pytest.param(raw(b"X: a\0b", b"Content-Length: 0"), id="NUL in a header"),
        pytest.param(raw(b"X: a\rb: c", b"Content-Length: 0"), id="bare CR in a header"),
    ],
)
def test_head_that_is_not_sound_is_refused(web: Web, response: bytes) -> None:
    server = web.serve(lambda peer: peer.send(response))

    status, rule, _ = web.refused(f"http://good.test:{server.port}/")

    assert (status, rule) == (502, "response")


def test_server_that_says_nothing_is_a_broken_connection(web: Web) -> None:
    server = web.serve(lambda peer: peer.connection.close())

    assert web.refused(f"http://good.test:{server.port}/")[:2] == (502, "connect")


def test_hop_by_hop_headers_of_a_response_stay_outside(web: Web) -> None:
    def respond(peer: Peer) -> None:
        peer.answer(b"", "Connection: close", "Keep-Alive: 5", "Proxy-Authenticate: x", "X-Kept: 1")

    server = web.serve(respond)

    names = {name for name, _ in web.get(f"http://good.test:{server.port}/").headers}

    assert names == {"X-Kept", "Content-Length"}
