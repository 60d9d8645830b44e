"""The fake broker answers as the real one would, fails on demand and remembers every call."""

import base64
import io

import pytest
from PIL import Image

from toolcell_sdk import CapabilityError, files, http, images, kv, log, transport
from toolcell_sdk.testing import FakeBroker
from toolcell_sdk.wit import CAPABILITIES


@pytest.fixture
def broker():
    fake = FakeBroker()
    with transport.installed(fake):
        yield fake


def status_of(call) -> int:
    with pytest.raises(CapabilityError) as caught:
        call()
    return caught.value.status


def test_it_can_do_every_capability(broker):
    assert set(broker._ways) == set(CAPABILITIES)


def test_what_is_not_granted_is_403_and_named():
    fake = FakeBroker(["kv.get"])
    with transport.installed(fake):
        assert kv.get("a") is None
        with pytest.raises(CapabilityError, match=r"kv\.set: not granted") as caught:
            kv.set("a", "b")
    assert caught.value.status == 403
    assert [call.status for call in fake.calls()] == [200, 403]


def test_kv_keeps_text_under_its_caps(broker):
    kv.set("b", "1")
    kv.set("a", "2")
    assert kv.list() == ["a", "b"]
    assert kv.delete("b")
    assert not kv.delete("b")
    broker.kv.max_value_bytes = 2
    assert status_of(lambda: kv.set("a", "ää")) == 413
    assert broker.kv.values == {"a": "2"}
    broker.kv.max_total_bytes = 4
    kv.set("a", "22")
    assert status_of(lambda: kv.set("b", "1")) == 413


def test_files_live_below_scratch(broker):
    files.write_text("/scratch/d/../d/a.txt", "ä")
    files.write_bytes("/scratch/b", b"\xff")
    assert files.read_text("/scratch/d/a.txt") == "ä"
    assert files.list() == [files.Entry("b", "file", 1), files.Entry("d", "directory", 0)]
    assert status_of(lambda: files.read_text("/scratch/b")) == 400
    assert status_of(lambda: files.read_bytes("/scratch/no")) == 404
    assert status_of(lambda: files.list("/scratch/no")) == 404
    assert status_of(lambda: files.read_text("/etc/passwd")) == 403
    assert status_of(lambda: files.read_text("/scratch/../etc/passwd")) == 403
    assert status_of(lambda: files.read_text("relative")) == 400
    files.remove("/scratch/d")
    assert list(broker.files.contents) == ["/scratch/b"]
    assert status_of(lambda: files.remove("/scratch/d")) == 404
    broker.files.max_total_bytes = 2
    assert status_of(lambda: files.write_bytes("/scratch/c", b"123")) == 413


def test_http_gives_the_answer_that_was_set_up_and_403_for_any_other(broker):
    broker.http.respond("https://a/", "body", status=418, headers={"X": "y"})
    answer = http.fetch("https://a/")
    assert (answer.status, answer.header("x"), answer.body) == (418, "y", b"body")
    assert status_of(lambda: http.fetch("https://b/")) == 403
    assert status_of(lambda: http.fetch("https://a/", method="POST")) == 403


def test_images_are_scaled_for_real(broker):
    out = io.BytesIO()
    Image.new("RGB", (40, 20)).save(out, "PNG")
    small = images.resize(out.getvalue(), 10, 10, "jpeg")
    assert (small.width, small.height) == (10, 5)
    assert Image.open(io.BytesIO(small.data)).format == "JPEG"
    assert status_of(lambda: images.resize(b"no picture", 1, 1)) == 400


def test_a_picture_with_too_many_pixels_is_413_before_it_is_decoded(broker):
    out = io.BytesIO()
    Image.new("1", (8000, 8000)).save(out, "PNG")
    assert status_of(lambda: images.resize(out.getvalue(), 10, 10)) == 413


def test_log_lines_are_kept(broker):
    log.info("a")
    log.error("b")
    assert broker.log.lines == [("info", "a"), ("error", "b")]


def test_the_nth_call_fails_and_the_next_one_works(broker):
    broker.fail("kv.get", status=502, message="down", on_call=2)
    assert kv.get("a") is None
    with pytest.raises(CapabilityError, match=r"kv\.get: down"):
        kv.get("a")
    assert kv.get("a") is None
    assert [call.status for call in broker.calls("kv.get")] == [200, 502, 200]


def test_a_fault_without_a_number_is_for_every_call(broker):
    broker.fail("log.emit", status=429)
    assert [status_of(lambda: log.info("x")) for _ in range(3)] == [429] * 3
    assert broker.log.lines == []


def test_a_delay_costs_the_tests_clock_and_no_time(broker):
    broker.http.respond("https://a/", "x")
    broker.delay("http.fetch", ms=300)
    http.fetch("https://a/")
    assert broker.clock_ms == 300
    assert status_of(lambda: http.fetch("https://a/", timeout_ms=200)) == 408
    assert broker.clock_ms == 500
    broker.delay("http.fetch", ms=3_600_000, on_call=3)
    assert status_of(lambda: http.fetch("https://a/")) == 408
    assert broker.clock_ms == 500 + broker.timeout_ms


def test_calls_are_recorded_with_arguments_and_result(broker):
    kv.set("a", "1")
    kv.get("a")
    assert [(call.capability, call.result) for call in broker.calls()] == [
        ("kv.set", None),
        ("kv.get", "1"),
    ]
    broker.assert_called("kv.get", key="a")
    broker.assert_called("kv.set", times=1, value="1")
    broker.assert_not_called("kv.delete")


def test_an_assertion_that_fails_lists_the_calls(broker):
    kv.get("a")
    with pytest.raises(AssertionError, match=r"was called 0 times, not at least once") as caught:
        broker.assert_called("kv.get", key="b")
    assert "kv.get {'key': 'a'}" in str(caught.value)
    with pytest.raises(AssertionError, match="was called 1 times, not 0 times"):
        broker.assert_not_called("kv.get")


def test_a_misspelt_capability_is_an_error_and_no_silence(broker):
    for use in (broker.calls, broker.assert_not_called):
        with pytest.raises(ValueError, match=r"no capability `kv\.gte`"):
            use("kv.gte")
    with pytest.raises(ValueError, match="no capability"):
        broker.fail("kv.gte", status=500)


def test_bytes_in_an_answer_may_be_any(broker):
    raw = bytes(range(256))
    broker.http.respond("https://a/", raw)
    assert http.fetch("https://a/").body == raw
    (call,) = broker.calls()
    assert base64.b64decode(call.result["body"]) == raw
