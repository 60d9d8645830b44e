"""A Python tool that uses every capability, through the typed interfaces and the real broker."""

import base64
import io
import json
from contextlib import contextmanager

import pytest
from broker_runs import envelope, run_of
from loopback import Web
from PIL import Image
from wasi_cell import call, ends_within

from toolcell.broker import BrokerServices
from toolcell.errors import LimitExceeded, PolicyDenied, ToolFault
from toolcell.events import CapabilityCalled
from toolcell.lane import Request
from toolcell.policy.envelope import PolicyEnvelope

pytestmark = pytest.mark.slow


@contextmanager
def running(**fields):
    """A run with everything granted, whose session has its broker."""
    services = BrokerServices()
    with run_of(services, **fields) as run:
        run.session.broker = run.broker
        yield run
    services.close()


def use(hostile, run, method, value=None):
    """The decoded output of a call that must succeed."""
    outcome = hostile.invoke(Request(method, json.dumps(value).encode()), run.session)
    assert outcome.error is None, (outcome.error, outcome.error.guest_detail)
    return json.loads(outcome.output)


def test_every_interface_has_the_type_that_the_wit_gives_it(hostile):
    """The tool imports all of them; preparing it compared each function's type."""
    assert {name.split("/")[1].split("@")[0] for name in hostile._interfaces} == {
        "kv",
        "http",
        "files",
        "images",
        "log",
    }


def test_kv(hostile):
    with running() as run:
        assert use(hostile, run, "use_kv") == ["1", None, ["a", "b"], True, False]
        assert [event.name for event in run.told.of(CapabilityCalled)][:2] == ["kv.set"] * 2


def test_files(hostile):
    with running() as run:
        size, listed = use(hostile, run, "use_files")
    assert size == 256
    assert listed == [["a", "DIRECTORY", 0], ["two.bin", "FILE", 256]]


def test_images(hostile):
    picture = io.BytesIO()
    Image.new("RGB", (8, 4), "red").save(picture, "png")
    with running() as run:
        data = base64.b64encode(picture.getvalue()).decode()
        width, height, kind, made = use(hostile, run, "use_images", data)
    assert (width, height, kind) == (2, 1, "png")
    assert Image.open(io.BytesIO(base64.b64decode(made))).size == (2, 1)


def test_log(hostile):
    with running() as run:
        use(hostile, run, "use_log")
        lines = [(line.level, line.message) for line in run.broker.log_lines]
    assert lines[0] == ("debug", "said at DEBUG")
    assert [level for level, _ in lines] == ["debug", "info", "warning", "error"]


@pytest.fixture
def web():
    web = Web()
    yield web
    web.close()


def test_http(hostile, web):
    server = web.serve(lambda peer: peer.answer(b"hello", "X-Answer: 42"))
    run = web.open()
    run.session.broker = run.broker
    url = f"http://good.test:{server.port}/path"
    assert use(hostile, run, "use_http", url) == [200, url, "42", "hello"]
    assert server.requests[0].header("X-Test") == "1"


def test_a_server_that_says_nothing_does_not_outlive_the_deadline(hostile, web):
    server = web.serve(None)
    run = web.open(wall_time_ms=300)
    run.session.broker = run.broker
    url = json.dumps(f"http://good.test:{server.port}/").encode()
    with ends_within(300):
        outcome = hostile.invoke(Request("use_http", url), run.session)
    assert isinstance(outcome.error, LimitExceeded)
    assert outcome.error.limit == "wall_time_ms"


def test_parameters_over_max_message_bytes_are_a_fault_and_not_copied(hostile):
    with running(max_message_bytes=10_000) as run:
        outcome = hostile.invoke(Request("send_too_much", b"20000"), run.session)
    assert isinstance(outcome.error, ToolFault)
    assert outcome.error.status == 413
    assert "max_message_bytes is 10000" in outcome.error.message


@pytest.mark.parametrize(
    ("method", "missing"),
    [("use_kv", "kv.set"), ("use_files", "fs.writeText"), ("use_log", "log.emit")],
)
def test_a_capability_that_is_not_granted_is_refused_by_name(hostile, method, missing):
    outcome = call(hostile, method, allowed_host_apis=("kv.list",))
    assert outcome.error.status == 403
    assert f"{missing}: not granted" in outcome.error.message


def test_files_without_file_io_are_refused_whatever_the_list_says(hostile):
    outcome = call(hostile, "use_files", allowed_host_apis=("fs.writeText",))
    assert outcome.error.status == 403


def test_admission_asks_for_one_grant_of_each_interface(hostile):
    hostile.admit(envelope())
    with pytest.raises(PolicyDenied, match=r"http\.fetch") as denied:
        hostile.admit(
            PolicyEnvelope(
                allow_file_io=True,
                allowed_host_apis=("kv.get", "http.fetch", "fs.list", "images.resize", "log.emit"),
            )
        )
    assert denied.value.details["capability"] == "http.fetch"
