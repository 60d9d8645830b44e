"""What a host's surroundings and earlier calls must not change about a fetch."""

import threading
from pathlib import Path

import pytest
from loopback import Peer, Web

from toolcell.errors import CallCancelled
from toolcell.events import CapabilityCalled, SandboxViolation


@pytest.mark.parametrize(
    "name", ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"]
)
def test_proxy_of_the_environment_is_not_used(
    web: Web, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, server = web.serve(), web.serve()
    monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")

    web.get(f"http://good.test:{server.port}/")

    assert (proxy.connections, server.connections) == (0, 1)


def test_netrc_is_not_read(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine good.test login user password secret\ndefault login u password p\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    server = web.serve()

    web.get(f"http://good.test:{server.port}/")

    assert server.requests[0].header("Authorization") is None


def test_cookie_is_not_kept_between_calls_or_hops(web: Web) -> None:
    def respond(peer: Peer) -> None:
        if peer.request.target == "/":
            peer.answer(b"", "Set-Cookie: id=1; Path=/", "Location: /next", status="302 Found")
        else:
            peer.answer()

    server = web.serve(respond)
    run = web.open()

    for _ in range(2):
        run.call("http.fetch", url=f"http://good.test:{server.port}/")

    assert len(server.requests) == 4
    assert all(request.header("Cookie") is None for request in server.requests)


def test_connection_is_never_used_twice(web: Web) -> None:
    server = web.serve()
    run = web.open()

    for _ in range(3):
        run.call("http.fetch", url=f"http://good.test:{server.port}/")

    assert server.connections == 3


def test_address_that_does_not_answer_is_followed_by_the_next(web: Web) -> None:
    server = web.serve(address="127.0.0.3")
    web.names["two.test"] = ["127.0.0.2", "127.0.0.3"]

    assert web.get(f"http://two.test:{server.port}/").body == b"ok"


@pytest.mark.parametrize("host", ["six.test", "[::1]"])
def test_ipv6_server_is_reached(web: Web, host: str) -> None:
    server = web.serve(address="::1")
    web.names.update({"six.test": ["::1"], "::1": []})

    assert web.get(f"http://{host}:{server.port}/").body == b"ok"
    assert server.requests[0].header("Host") == f"{host}:{server.port}"


def test_refused_connection_names_the_host_and_not_its_address(web: Web) -> None:
    server = web.serve()
    port = server.port
    server.close()

    status, rule, fault = web.refused(f"http://good.test:{port}/")

    assert (status, rule) == (502, "connect")
    assert "good.test" in fault.message
    assert "127.0.0" not in repr(fault.to_dict())


def test_name_that_does_not_resolve_is_told_as_that(web: Web) -> None:
    status, rule, fault = web.refused("http://gone.test/", {"domains": ("gone.test",)})

    assert (status, rule) == (502, "dns")
    assert "gone.test" in fault.message


def test_name_without_addresses_is_told_as_that(web: Web) -> None:
    web.names["empty.test"] = []

    assert web.refused("http://empty.test/")[:2] == (502, "dns")


def test_audit_has_the_host_and_nothing_else_of_the_url(web: Web) -> None:
    server = web.serve()

    web.get(f"http://good.test:{server.port}/private?token=t0ken", headers=[("X-K", "hush")])

    (event,) = web.run.told.of(CapabilityCalled)
    assert (event.name, event.status, event.target) == ("http.fetch", 200, "good.test")
    assert event.bytes > 0
    assert not any(word in repr(event) for word in ("private", "t0ken", "hush", "127.0.0.1"))


def test_denied_fetch_is_a_soft_violation(web: Web) -> None:
    web.refused("http://evil.test/private")

    (violation,) = web.run.told.of(SandboxViolation)
    assert (violation.type, violation.severity) == ("capability.domain", "soft")


def test_failed_fetches_leave_no_thread_and_no_descriptor(web: Web) -> None:
    def respond(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")

    server = web.serve(respond)
    url = f"http://good.test:{server.port}/"
    web.refused(url)
    fds = Path("/proc/self/fd")

    def held() -> tuple[int, int]:
        return threading.active_count(), len(list(fds.iterdir()))

    assert server.hung_up.wait(5)
    before = held()
    for _ in range(30):
        web.refused(url)
    never = threading.Event()
    for _ in range(100):  # the server's side ends a moment later
        now = held()
        if now <= before:
            break
        never.wait(0.02)

    assert now <= before


def test_cancellation_before_the_dial_dials_nothing() -> None:
    web = Web()

    def lookup(host: str) -> list[str]:
        web.run.session.cancel.cancel(CallCancelled("enough"))
        return ["127.0.0.1"]

    web._services["lookup"] = lookup
    server = web.serve()

    with pytest.raises(CallCancelled):
        web.open().call("http.fetch", url=f"http://good.test:{server.port}/")

    assert server.connections == 0
    web.close()
