"""The capability clients: what an author writes, and what crosses to the broker."""

import base64

import pytest

from toolcell_sdk import CapabilityError, files, http, images, kv, log, transport
from toolcell_sdk.wit import CAPABILITIES


class Recorder:
    """A transport that answers with what it was given."""

    def __init__(self, result=None):
        self.seen = []
        self.result = result

    def call(self, capability, arguments):
        self.seen.append((capability, arguments))
        return self.result


def seen(function, result=None):
    recorder = Recorder(result)
    with transport.installed(recorder):
        returned = function()
    (call,) = recorder.seen
    return call, returned


PICTURE = {"data": "AQI=", "width": 2, "height": 1, "format": "png"}
ANSWER = {"status": 200, "url": "u", "headers": [["A", "b"]], "body": "aGk="}

CALLS = [
    (lambda: kv.get("k"), "v", ("kv.get", {"key": "k"}), "v"),
    (lambda: kv.get("k", "d"), None, ("kv.get", {"key": "k"}), "d"),
    (lambda: kv.set("k", "v"), None, ("kv.set", {"key": "k", "value": "v"}), None),
    (lambda: kv.delete("k"), True, ("kv.delete", {"key": "k"}), True),
    (lambda: kv.list("p"), ["pa"], ("kv.list", {"prefix": "p"}), ["pa"]),
    (lambda: files.read_text("/scratch/a"), "t", ("fs.readText", {"path": "/scratch/a"}), "t"),
    (
        lambda: files.write_text("/scratch/a", "t"),
        None,
        ("fs.writeText", {"path": "/scratch/a", "text": "t"}),
        None,
    ),
    (
        lambda: files.read_bytes("/scratch/a"),
        "AAH/",
        ("fs.readBytes", {"path": "/scratch/a"}),
        b"\0\x01\xff",
    ),
    (
        lambda: files.write_bytes("/scratch/a", b"\xff"),
        None,
        ("fs.writeBytes", {"path": "/scratch/a", "data": "/w=="}),
        None,
    ),
    (
        lambda: files.list(),
        [{"name": "a", "kind": "file", "size": 3}],
        ("fs.list", {"path": "/scratch"}),
        [files.Entry("a", "file", 3)],
    ),
    (lambda: files.remove("/scratch/a"), None, ("fs.remove", {"path": "/scratch/a"}), None),
    (
        lambda: images.resize(b"\x01", 2, 2, "png"),
        PICTURE,
        ("images.resize", {"data": "AQ==", "width": 2, "height": 2, "format": "png"}),
        images.Image(b"\x01\x02", 2, 1, "png"),
    ),
    (lambda: log.warning("m"), None, ("log.emit", {"level": "warning", "message": "m"}), None),
    (
        lambda: http.fetch("https://a/", headers={"X": "y"}, body=b"b", timeout_ms=5),
        ANSWER,
        (
            "http.fetch",
            {
                "method": "GET",
                "url": "https://a/",
                "headers": [["X", "y"]],
                "body": base64.b64encode(b"b").decode(),
                "credential": None,
                "timeout_ms": 5,
            },
        ),
        http.Response(200, "u", (("A", "b"),), b"hi"),
    ),
]


@pytest.mark.parametrize(("call", "result", "crosses", "returned"), CALLS)
def test_a_client_sends_and_returns_plain_values(call, result, crosses, returned):
    assert seen(call, result) == (crosses, returned)


def test_every_capability_has_a_client():
    assert {crosses[0] for _call, _result, crosses, _returned in CALLS} == set(CAPABILITIES)


@pytest.mark.parametrize(
    "call",
    [
        lambda: kv.set("k", "\ud800"),
        lambda: kv.get(3),
        lambda: log.info("\udfff"),
        lambda: http.fetch("https://a/\ud800"),
        lambda: files.write_bytes("/scratch/a", "text"),
        lambda: images.resize("text", 1, 1),
    ],
)
def test_what_would_abort_a_component_is_refused_before_it_crosses(call):
    recorder = Recorder()
    with transport.installed(recorder), pytest.raises(CapabilityError) as caught:
        call()
    assert caught.value.status == 400
    assert recorder.seen == []


def test_a_response_reads_its_headers_and_text():
    headers = (("Content-Type", 'text/html; Charset="iso-8859-1"; x=y'), ("A", "1"), ("a", "2"))
    response = http.Response(204, "u", headers, "ß".encode("latin-1"))
    assert response.header("a") == "1"
    assert response.header("missing", "none") == "none"
    assert response.text() == "ß"
    assert response.ok


@pytest.mark.parametrize("charset", ["", "nonsense", "utf-8"])
def test_a_charset_that_is_missing_or_unknown_is_read_as_utf_8(charset):
    headers = (("content-type", f"text/plain; charset={charset}"),)
    assert http.Response(200, "u", headers, "ß\n".encode() + b"\xff").text() == "ß\n\ufffd"


def test_a_response_reads_json():
    assert http.Response(404, "u", (), b'{"a": 1}').json() == {"a": 1}
    assert not http.Response(404, "u", (), b"").ok


def test_the_innermost_transport_answers():
    outer, inner = Recorder("outer"), Recorder("inner")
    with transport.installed(outer):
        with transport.installed(inner):
            assert kv.get("k") == "inner"
        assert kv.get("k") == "outer"
