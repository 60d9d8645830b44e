"""URLs: whatever is taken means the same to every reader."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.broker.call import Refusal
from toolcell.broker.http.fetch import _redirected
from toolcell.broker.http.url import Target, parse_url

BASE = parse_url("http://good.test:8080/dir/page?q=1")

WORDS = (
    "http https :// : / // @ ? # [ ] %40 %2f %00 \\ . .. good.test evil.test 127.0.0.1 0x7f.1 ::1 "
    "80 443 a user:pw é ß \uff47 \u200d \u3002 xn--bcher-kva & = ; , ! ~ * ' ( ) | ^ ` { } < >"
)
PIECES = st.sampled_from(WORDS.split(" "))
TRICKY = st.lists(st.one_of(PIECES, st.characters()), max_size=14).map("".join)


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "normal"),
    [
        ("http://a.test", "a.test", 80, "/", "http://a.test/"),
        ("https://a.test/", "a.test", 443, "/", "https://a.test/"),
        ("http://a.test:443/", "a.test", 443, "/", "http://a.test:443/"),
        ("http://a.test?x", "a.test", 80, "/?x", "http://a.test/?x"),
        ("http://A.Test./p#f", "a.test", 80, "/p", "http://a.test/p"),
        ("http://[::1]:8080/", "::1", 8080, "/", "http://[::1]:8080/"),
        ("http://[0:0:0:0:0:0:0:1]/", "::1", 80, "/", "http://[::1]/"),
        ("http://1.2.3.4/", "1.2.3.4", 80, "/", "http://1.2.3.4/"),
        ("http://a_b.test/", "a_b.test", 80, "/", "http://a_b.test/"),
        ("http://bücher.test/", "xn--bcher-kva.test", 80, "/", "http://xn--bcher-kva.test/"),
    ],
)
def test_url_has_one_normal_form(url: str, host: str, port: int, path: str, normal: str) -> None:
    target = parse_url(url)

    assert (target.host, target.port, target.path, target.url) == (host, port, path, normal)


@given(
    text=st.one_of(TRICKY, TRICKY.map("http://".__add__), TRICKY.map("http://good.test".__add__))
)
def test_what_is_taken_reads_the_same_to_the_standard_library(text: str) -> None:
    try:
        target = parse_url(text)
    except Refusal as refusal:
        message = refusal.message
        target = None
    if target is None:
        assert message.isprintable()
        assert len(message) < 300
        return
    other = urlsplit(target.url)
    assert other.hostname == target.host
    assert other.port or (80 if target.scheme == "http" else 443) == target.port
    assert other.username is None
    assert target.url.isascii()
    assert not any(char <= " " or char in '\\<>"`{}|^' for char in target.url)
    assert parse_url(target.url) == target


@given(location=st.one_of(TRICKY, st.text(st.characters(max_codepoint=255), max_size=30)))
def test_any_location_is_a_target_or_a_refusal(location: str) -> None:
    raw = location.encode("latin-1", "replace").decode("latin-1")
    try:
        target = _redirected(BASE, raw)
    except Refusal as refusal:
        assert (refusal.status, refusal.rule) == (502, "redirect")  # noqa: PT017 - one of two ends
    else:
        assert isinstance(target, Target)
        assert parse_url(target.url) == target


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/x", "http://good.test:8080/x"),
        ("x", "http://good.test:8080/dir/x"),
        ("../x", "http://good.test:8080/x"),
        ("?q=2", "http://good.test:8080/dir/page?q=2"),
        ("//other.test/x", "http://other.test/x"),
        ("https://other.test", "https://other.test/"),
        ("/a b", "http://good.test:8080/a%20b"),
        ("/\xfc", "http://good.test:8080/%FC"),
        ("/%C3%BC", "http://good.test:8080/%C3%BC"),
    ],
)
def test_relative_location_is_resolved_against_the_request(location: str, url: str) -> None:
    assert _redirected(BASE, location).url == url
