"""Redirects: the way round a check that looks at the first URL only."""

import pytest
from loopback import LoopbackServer, Peer, Web


def redirecting(web: Web, location: str, status: int = 302) -> LoopbackServer:
    return web.serve(lambda peer: peer.redirect(location, status))


def test_redirect_to_a_private_address_is_refused(web: Web) -> None:
    inside = web.serve(lambda peer: peer.answer(b"secret"), address="127.0.0.9")
    web.names["inside.test"] = ["127.0.0.9"]
    outer = redirecting(web, f"http://inside.test:{inside.port}/")
    granted = {"addresses": ("127.0.0.1/32",)}

    status, rule, fault = web.refused(f"http://good.test:{outer.port}/", granted)

    assert (status, rule) == (403, "address.loopback")
    assert "after 1 redirect" in fault.message
    assert "127.0.0.9" not in fault.message
    assert inside.connections == 0
    both = {"addresses": ("127.0.0.1/32", "127.0.0.9/32")}
    assert web.get(f"http://good.test:{outer.port}/", both).body == b"secret", "what it stopped"


def test_redirect_to_an_address_itself_is_refused_as_a_domain(web: Web) -> None:
    outer = redirecting(web, "http://169.254.169.254/latest/meta-data/")

    status, rule, _ = web.refused(f"http://good.test:{outer.port}/")

    assert (status, rule) == (403, "domain")


def test_redirect_to_a_domain_that_is_not_granted_is_refused(web: Web) -> None:
    evil = web.serve()
    web.names["evil.test"] = ["127.0.0.1"]
    outer = redirecting(web, f"http://evil.test:{evil.port}/?stolen=1")
    url = f"http://good.test:{outer.port}/"

    status, rule, _ = web.refused(url, {"domains": ("good.test",)})

    assert (status, rule) == (403, "domain")
    assert web.lookups == ["good.test"], "the policy is asked before the lookup, on every hop"
    assert evil.connections == 0
    assert web.get(url, {"domains": ("good.test", "evil.test")}).status == 200, "what it stopped"


def test_redirect_to_a_port_that_is_not_granted_is_refused(web: Web) -> None:
    outer = redirecting(web, "http://good.test:22/")

    assert web.refused(f"http://good.test:{outer.port}/")[:2] == (403, "port")


def test_redirect_from_https_to_http_is_refused_unless_http_is_granted(web: Web) -> None:
    # Plain http on both sides will do: the check is on the target's scheme, hop by hop.
    outer = redirecting(web, "https://good.test/")

    assert web.refused(f"http://good.test:{outer.port}/", {"schemes": ("http",)})[:2] == (
        403,
        "scheme",
    )


@pytest.mark.parametrize(
    "location",
    [
        "http://good.test@evil.test/",
        "http://evil.test\\@good.test/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://0x7f.1/",
        "http://[::1%25lo]/",
        "http://good.test:port/",
        "http://[/",
        "http:///x",
    ],
)
def test_location_that_is_not_taken_as_a_url_is_not_followed(web: Web, location: str) -> None:
    outer = redirecting(web, location)

    assert web.refused(f"http://good.test:{outer.port}/")[:2] == (502, "redirect")
    assert web.lookups == ["good.test"]


@pytest.mark.parametrize("location", ["//evil.test/", "///evil.test/", "/\\evil.test/"])
def test_relative_location_can_not_name_a_host_that_is_not_granted(web: Web, location: str) -> None:
    outer = redirecting(web, location)

    rule = web.refused(f"http://good.test:{outer.port}/")[1]

    assert rule in {"domain", "redirect"}
    assert "evil.test" not in web.lookups


def test_two_different_locations_are_refused(web: Web) -> None:
    outer = web.serve(
        lambda peer: peer.answer(b"", "Location: /a", "Location: /b", status="302 Found")
    )

    assert web.refused(f"http://good.test:{outer.port}/")[:2] == (502, "response")


def test_redirect_loop_ends_at_max_redirects(web: Web) -> None:
    outer = redirecting(web, "/again")

    status, rule, _ = web.refused(f"http://good.test:{outer.port}/", {"max_redirects": 2})

    assert (status, rule) == (502, "max_redirects")
    assert outer.connections == 3
    assert web.run.broker.usage.network_requests == 3


def test_no_redirect_is_followed_where_none_is_granted(web: Web) -> None:
    outer = redirecting(web, "http://evil.test/")

    answer = web.get(f"http://good.test:{outer.port}/", {"max_redirects": 0})

    assert answer.status == 302
    assert ("Location", "http://evil.test/") in answer.headers


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
        (302, "PUT", "PUT"),
    ],
)
def test_method_after_a_redirect_is_the_standard_one(
    web: Web, status: int, method: str, then: str
) -> None:
    def respond(peer: Peer) -> None:
        if peer.request.target == "/":
            peer.redirect("/next", status)
        else:
            peer.answer()

    server = web.serve(respond)
    body = b"" if method == "HEAD" else b"data"

    web.get(f"http://good.test:{server.port}/", method=method, body=body)

    second = server.requests[1]
    assert second.method == then
    assert second.body == (body if then == method else b"")


def test_method_that_a_redirect_asks_for_must_be_granted(web: Web) -> None:
    outer = redirecting(web, "/next", 303)
    url = f"http://good.test:{outer.port}/"

    status, rule, _ = web.refused(url, {"methods": ("POST",)}, method="POST", body=b"x")

    assert (status, rule) == (403, "method")


@pytest.mark.parametrize("to", ["host", "port", "scheme"])
def test_nothing_private_crosses_to_another_origin(web: Web, to: str) -> None:
    web.names["other.test"] = ["127.0.0.1"]
    other = web.serve()
    host = "other.test" if to == "host" else "good.test"

    def respond(peer: Peer) -> None:
        peer.redirect(f"http://{host}:{other.port}/")

    outer = web.serve(respond)
    private = {
        "Authorization": "Bearer own",
        "Cookie": "session=1",
        "X-Api-Key": "k",
        "X-Custom-Auth": "a",
    }
    headers = [*private.items(), ("Accept", "text/plain"), ("User-Agent", "probe")]

    web.get(f"http://good.test:{outer.port}/", headers=headers)

    first, second = outer.requests[0], other.requests[0]
    for name in private:
        assert first.header(name), "sent where it was meant to go"
        assert second.header(name) is None
    assert second.header("Accept") == "text/plain"
    assert second.header("User-Agent") == "probe"


def test_headers_stay_on_the_same_origin(web: Web) -> None:
    def respond(peer: Peer) -> None:
        if peer.request.target == "/":
            peer.redirect("/next")
        else:
            peer.answer()

    server = web.serve(respond)

    web.get(f"http://good.test:{server.port}/", headers=[("Cookie", "session=1")])

    assert server.requests[1].header("Cookie") == "session=1"
