"""Bodies that lie about their length, or are far larger than they look."""

import gzip
import zlib

import pytest
from loopback import Peer, Web

MIB = 1024 * 1024
BOMB = gzip.compress(bytes(16 * MIB))


def url_of(web: Web, respond: object) -> str:
    return f"http://good.test:{web.serve(respond).port}/"  # type: ignore[arg-type]


def encoded(body: bytes, coding: str = "gzip") -> object:
    return lambda peer: peer.answer(body, f"Content-Encoding: {coding}")


def chunked(*parts: bytes) -> object:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return lambda peer: peer.send(head + b"".join(parts))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# --- compression ---


def test_gzip_bomb_is_cut_at_max_response_bytes(web: Web) -> None:
    url = url_of(web, encoded(BOMB))

    status, rule, fault = web.refused(url)

    assert (status, rule) == (413, "max_response_bytes")
    assert "after decompression" in fault.message
    roomy = {"max_response_bytes": 32 * MIB}
    run = web.open(roomy, max_message_bytes=32 * MIB)
    assert len(run.call("http.fetch", url=url).body) == 16 * MIB, "what it stopped"


def test_gzip_bomb_is_never_unpacked_beyond_the_cap() -> None:
    from toolcell.broker.call import Refusal
    from toolcell.broker.http.body import BodySink

    sink = BodySink("gzip", MIB)

    with pytest.raises(Refusal):
        sink.feed(BOMB)

    assert len(sink._out) == MIB + 1


def test_bomb_in_a_chunked_body_is_cut_too(web: Web) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    url = url_of(web, lambda peer: peer.send(head + chunk(BOMB) + b"0\r\n\r\n"))

    assert web.refused(url)[:2] == (413, "max_response_bytes")


def test_many_small_members_are_a_bomb_too(web: Web) -> None:
    url = url_of(web, encoded(gzip.compress(b"") * 1000))

    status, rule, fault = web.refused(url)

    assert (status, rule) == (502, "content-encoding")
    assert "members" in fault.message


@pytest.mark.parametrize(
    "coding",
    ["deflate", "br", "zstd", "compress", "gzip, gzip", "gzip,br", "identity, gzip, gzip", "x"],
)
def test_coding_that_was_not_offered_is_refused(web: Web, coding: str) -> None:
    url = url_of(web, encoded(zlib.compress(b"x"), coding))

    assert web.refused(url)[:2] == (502, "content-encoding")


def test_two_headers_of_one_coding_each_are_two_codings(web: Web) -> None:
    twice = gzip.compress(gzip.compress(b"x"))
    url = url_of(
        web, lambda peer: peer.answer(twice, "Content-Encoding: gzip", "Content-Encoding: gzip")
    )

    assert web.refused(url)[:2] == (502, "content-encoding")


@pytest.mark.parametrize(
    "body",
    [b"not gzip", gzip.compress(b"x" * 999)[:-9], gzip.compress(b"x") + b"junk", b"\x1f\x8b"],
)
def test_broken_gzip_is_refused(web: Web, body: bytes) -> None:
    assert web.refused(url_of(web, encoded(body)))[:2] == (502, "content-encoding")


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP", "identity, gzip"])
def test_gzip_arrives_as_it_was(web: Web, coding: str) -> None:
    text = b"some text " * 1000

    answer = web.get(url_of(web, encoded(gzip.compress(text), coding)))

    assert answer.body == text
    assert not {"content-encoding", "content-length"} & {k.lower() for k, _ in answer.headers}


def test_two_members_are_one_body(web: Web) -> None:
    assert web.get(url_of(web, encoded(gzip.compress(b"a") + gzip.compress(b"b")))).body == b"ab"


# --- length ---


def test_announced_length_over_the_cap_is_refused_before_the_body(web: Web) -> None:
    def respond(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n")
        peer.hold()

    assert web.refused(url_of(web, respond))[:2] == (413, "max_response_bytes")


def test_body_without_a_length_is_cut_at_the_cap(web: Web) -> None:
    def respond(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while peer.send(bytes(65536)):
            pass

    status, rule, _ = web.refused(url_of(web, respond))

    assert (status, rule) == (413, "max_response_bytes")
    assert web.run.broker.usage.bytes_read == 0, "nothing of it reached the guest"


def test_body_shorter_than_announced_is_refused(web: Web) -> None:
    url = url_of(web, lambda peer: peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"))

    assert web.refused(url)[:2] == (502, "response")


def test_bytes_after_the_announced_length_are_not_read(web: Web) -> None:
    url = url_of(
        web, lambda peer: peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200")
    )

    assert web.get(url).body == b"ok"


@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: 2", "Content-Length: 3"],
        ["Content-Length: 2, 3"],
        ["Content-Length: -1"],
        ["Content-Length: +2"],
        ["Content-Length: 0x2"],
        ["Content-Length: 2", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    ],
)
def test_framing_that_two_readers_may_read_differently_is_refused(
    web: Web, headers: list[str]
) -> None:
    head = "\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""]).encode()

    assert web.refused(url_of(web, lambda peer: peer.send(head + b"ok")))[:2] == (502, "response")


# --- chunks ---


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([b"zz\r\nok\r\n"], id="size is no number"),
        pytest.param([b"-2\r\nok\r\n0\r\n\r\n"], id="negative size"),
        pytest.param([b"\r\nok\r\n"], id="no size"),
        pytest.param([b"ffffffffffffffff\r\nok\r\n"], id="size of 2**64"),
        pytest.param([b"5\r\nok"], id="ends in a chunk"),
        pytest.param([chunk(b"ok")], id="no last chunk"),
        pytest.param([b"2;" + b"x" * 70_000 + b"\r\nok\r\n"], id="endless extension"),
        pytest.param([b"2;a\rb\r\nok\r\n0\r\n\r\n"], id="bare CR in an extension"),
    ],
)
def test_chunks_that_are_not_sound_are_refused(web: Web, parts: list[bytes]) -> None:
    assert web.refused(url_of(web, chunked(*parts)))[:2] == (502, "response")


def test_chunked_body_is_cut_at_the_cap(web: Web) -> None:
    def respond(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while peer.send(chunk(bytes(65536))):
            pass

    assert web.refused(url_of(web, respond))[:2] == (413, "max_response_bytes")


def test_one_byte_chunks_and_endless_trailers_end_at_the_byte_quota(web: Web) -> None:
    def respond(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        while peer.send(
            b"X-Trailer: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 100
        ):
            pass

    status, rule, _ = web.refused(url_of(web, respond), {"max_bytes": 200_000})

    assert (status, rule) == (429, "max_bytes")


def test_chunked_body_arrives_as_it_was(web: Web) -> None:
    url = url_of(web, chunked(chunk(b"one "), b"3;ext=1\r\ntwo\r\n", b"0\r\nX-Trailer: x\r\n\r\n"))

    assert web.get(url).body == b"one two"


# --- quotas ---


def test_all_bytes_of_an_invocation_count_against_max_bytes(web: Web) -> None:
    url = url_of(web, lambda peer: peer.answer(bytes(40_000)))
    run = web.open({"max_bytes": 100_000})

    for _ in range(2):
        assert run.call("http.fetch", url=url).status == 200
    fault = run.refused("http.fetch", url=url)

    assert (fault.status, fault.details["rule"]) == (429, "max_bytes")


def test_all_fetches_of_an_invocation_count_against_max_requests(web: Web) -> None:
    url = url_of(web, lambda peer: peer.answer())
    run = web.open({"max_requests": 2})

    for _ in range(2):
        run.call("http.fetch", url=url)
    fault = run.refused("http.fetch", url=url)

    assert (fault.status, fault.details["rule"]) == (429, "max_requests")


def test_response_over_the_message_size_does_not_reach_the_guest(web: Web) -> None:
    url = url_of(web, lambda peer: peer.answer(bytes(5000)))

    fault = web.open(max_message_bytes=4096).refused("http.fetch", url=url)

    assert (fault.status, fault.details["rule"]) == (413, "max_message_bytes")


@pytest.mark.parametrize("status", [204, 304])
def test_status_without_a_body_has_none(web: Web, status: int) -> None:
    url = url_of(web, lambda peer: peer.send(f"HTTP/1.1 {status} X\r\n\r\nsmuggled".encode()))

    assert web.get(url).body == b""


def test_answer_to_head_has_no_body(web: Web) -> None:
    url = url_of(
        web,
        lambda peer: peer.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\nContent-Encoding: gzip\r\n\r\nxxx"
        ),
    )

    assert web.get(url, method="HEAD").body == b""
