"""Servers that are slow on purpose, at every stage: one deadline holds over all of them.

Each stage drips or stalls for 10 s or more under a deadline of 200 ms. A timeout per read, which is
what sockets and libraries have, is reset by every byte.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from loopback import Peer, Web

from toolcell.errors import CallCancelled, CapabilityFault, LimitExceeded

DEADLINE_MS = 200
SLACK_S = 1.5  # a loaded machine; the attacks last ten times as long


def drips_head(peer: Peer) -> None:
    peer.drip(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500)


def drips_status_line(peer: Peer) -> None:
    peer.drip(b"HTTP/1.1 200 " + b"O" * 5000)


def drips_body(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    peer.drip(b"x" * 5000)


def drips_chunk_extension(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;")
    peer.drip(b"x" * 5000)


def drips_trailers(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    peer.drip(b"X: y\r\n" * 500)


def says_nothing(peer: Peer) -> None:
    peer.hold()


STAGES = [
    drips_head,
    drips_status_line,
    drips_body,
    drips_chunk_extension,
    drips_trailers,
    says_nothing,
]


@pytest.mark.slow
@pytest.mark.parametrize("attack", STAGES)
def test_slow_server_is_given_up_at_the_deadline(web: Web, attack: Callable[[Peer], None]) -> None:
    server = web.serve(attack)
    started = time.monotonic()

    status, rule, _ = web.refused(f"http://good.test:{server.port}/", {"timeout_ms": DEADLINE_MS})

    assert (status, rule) == (408, "timeout_ms")
    assert time.monotonic() - started < SLACK_S
    assert server.hung_up.wait(5), "the connection is closed, not left behind"


@pytest.mark.slow
@pytest.mark.parametrize("attack", [drips_head, drips_body])
def test_drip_outlives_a_timeout_per_read(web: Web, attack: Callable[[Peer], None]) -> None:
    """The same server against urllib3's own read timeout: the defence that would not do."""
    import urllib3

    server = web.serve(attack)
    pool = urllib3.HTTPConnectionPool("127.0.0.1", server.port, timeout=0.2, retries=False)
    started = time.monotonic()
    done = threading.Event()

    def fetch() -> None:
        try:
            pool.urlopen("GET", "/")
        except urllib3.exceptions.HTTPError:
            pass
        finally:
            done.set()

    thread = threading.Thread(target=fetch)
    thread.start()
    assert not done.wait(0.6)
    assert time.monotonic() - started >= 0.6
    server.close()
    thread.join(5)


@pytest.mark.slow
def test_many_slow_redirects_share_one_deadline(web: Web) -> None:
    def respond(peer: Peer) -> None:
        if not peer.ended.wait(0.09):
            peer.redirect("/next")

    server = web.serve(respond)
    policy = {"timeout_ms": DEADLINE_MS, "max_redirects": 20}

    assert web.refused(f"http://good.test:{server.port}/", policy)[0] == 408
    assert len(server.requests) <= 4


@pytest.mark.slow
def test_lookup_that_hangs_is_given_up_at_the_deadline() -> None:
    released = threading.Event()
    web = Web(lookup=lambda host: (released.wait(20), ["127.0.0.1"])[1])
    started = time.monotonic()

    status, rule, _ = web.refused("http://good.test/", {"timeout_ms": DEADLINE_MS})

    assert (status, rule) == (408, "timeout_ms")
    assert time.monotonic() - started < SLACK_S
    released.set()
    web.close()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that drops what knocks, as a firewall does: its listener's queue is full."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    queued = [socket.socket() for _ in range(4)]
    for one in queued:
        one.setblocking(False)
        one.connect_ex(full.getsockname())
    yield full.getsockname()[1]
    for one in [full, *queued]:
        one.close()


@pytest.mark.slow
def test_connect_that_hangs_is_given_up_at_the_deadline(web: Web, silent_port: int) -> None:
    started = time.monotonic()
    policy = {"timeout_ms": DEADLINE_MS, "ports": (silent_port,)}

    status, rule, _ = web.refused(f"http://good.test:{silent_port}/", policy)

    assert (status, rule) == (408, "timeout_ms")
    assert time.monotonic() - started < SLACK_S


@pytest.mark.slow
def test_cancellation_ends_a_connect_at_once(web: Web, silent_port: int) -> None:
    waited = threading.Event()

    def under_way() -> bool:
        return bool(web.lookups) and waited.wait(0.1) is False

    _ends_when_cancelled(web, f"http://good.test:{silent_port}/", under_way, silent_port)


@pytest.mark.slow
def test_tls_handshake_that_hangs_is_given_up_at_the_deadline(web: Web) -> None:
    server = web.serve(None)
    started = time.monotonic()

    status, rule, _ = web.refused(f"https://good.test:{server.port}/", {"timeout_ms": DEADLINE_MS})

    assert (status, rule) == (408, "timeout_ms")
    assert time.monotonic() - started < SLACK_S


@pytest.mark.slow
def test_server_that_does_not_read_is_given_up_at_the_deadline(web: Web) -> None:
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.bind(("127.0.0.1", 0))
    deaf.listen(4)
    port = deaf.getsockname()[1]
    policy = {
        "timeout_ms": DEADLINE_MS,
        "ports": (port,),
        "max_request_bytes": 2**26,
        "max_bytes": 2**27,
    }
    run = web.open(policy, max_message_bytes=2**27)
    started = time.monotonic()

    fault = run.refused(
        "http.fetch", url=f"http://good.test:{port}/", method="POST", body=bytes(2**25)
    )

    assert fault.status == 408
    assert time.monotonic() - started < SLACK_S
    deaf.close()


@pytest.mark.slow
def test_guest_can_shorten_the_deadline_but_not_put_it_off(web: Web) -> None:
    server = web.serve(says_nothing)
    url = f"http://good.test:{server.port}/"
    started = time.monotonic()

    assert web.refused(url, timeout_ms=DEADLINE_MS)[0] == 408
    assert web.refused(url, {"timeout_ms": DEADLINE_MS}, timeout_ms=60_000)[0] == 408
    assert time.monotonic() - started < 2 * SLACK_S


@pytest.mark.slow
def test_end_of_the_run_is_told_as_that_and_not_as_a_fault(web: Web) -> None:
    server = web.serve(drips_body)
    run = web.open(wall_time_ms=DEADLINE_MS)

    with pytest.raises(LimitExceeded) as caught:
        run.call("http.fetch", url=f"http://good.test:{server.port}/")

    assert caught.value.limit == "wall_time_ms"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("attack", [says_nothing, drips_body])
def test_cancellation_ends_a_fetch_at_once(
    web: Web, scheme: str, attack: Callable[[Peer], None]
) -> None:
    server = web.serve(attack if scheme == "http" else None)
    _ends_when_cancelled(web, f"{scheme}://good.test:{server.port}/", lambda: server.connections)


@pytest.mark.slow
def test_cancellation_ends_a_lookup_at_once() -> None:
    released, asked = threading.Event(), threading.Event()

    def lookup(host: str) -> list[str]:
        asked.set()
        released.wait(20)
        return []

    web = Web(lookup=lookup)
    _ends_when_cancelled(web, "http://good.test/", asked.is_set)
    released.set()
    web.close()


def _ends_when_cancelled(web: Web, url: str, under_way: Callable[[], object], *ports: int) -> None:
    granted = {"ports": ports} if ports else {}
    run = web.open({"timeout_ms": 20_000, **granted}, wall_time_ms=20_000)
    ended: list[BaseException] = []

    def fetch() -> None:
        try:
            run.call("http.fetch", url=url)
        except (CallCancelled, CapabilityFault) as error:
            ended.append(error)

    thread = threading.Thread(target=fetch)
    thread.start()
    until = time.monotonic() + 5
    while not under_way() and time.monotonic() < until:
        run.session.cancel.wait(0.005)
    cancelled = time.monotonic()
    run.session.cancel.cancel(CallCancelled("enough"))
    thread.join(10)

    assert time.monotonic() - cancelled < SLACK_S
    assert [type(error) for error in ended] == [CallCancelled]


def test_run_that_is_over_dials_nothing(web: Web) -> None:
    server = web.serve()
    run = web.open()
    run.session.cancel.cancel()

    with pytest.raises(CallCancelled):
        run.call("http.fetch", url=f"http://good.test:{server.port}/")

    assert server.connections == 0


def test_context_of_the_tests_is_the_real_one(web: Web) -> None:
    assert isinstance(web.services.tls, ssl.SSLContext)
    assert web.services.tls.verify_mode is ssl.CERT_REQUIRED
    assert web.services.tls.check_hostname
