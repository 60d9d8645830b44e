"""The inside of a cell: each way of failing has its status, and nothing gets past the wall."""

import json
import sys
from pathlib import Path

import pytest

from toolcell_sdk import CapabilityError, ToolError, kv, transport
from toolcell_sdk.dispatch import MAX_DETAIL_CHARACTERS, MAX_MESSAGE_CHARACTERS, Dispatcher
from toolcell_sdk.errors import Fault
from toolcell_sdk.methods import Registry

HERE = str(Path(__file__).parent)


def invoke(function, arguments: str = "{}", **options) -> str:
    registry = Registry()
    registry.add(function, "run", "")
    return Dispatcher(registry, source_root=HERE, **options).invoke("run", arguments)


def fault_of(function, arguments: str = "{}", **options) -> Fault:
    with pytest.raises(Fault) as caught:
        invoke(function, arguments, **options)
    return caught.value


def test_arguments_and_result_are_json():
    def run(words: list[str], sep: str = "-") -> dict[str, str]:
        return {"ä": sep.join(words)}

    assert invoke(run, '{"words": ["a", "b"]}') == '{"ä":"a-b"}'


def test_an_unknown_method_is_404_and_names_those_there_are():
    registry = Registry()
    registry.add(lambda: None, "only", "")
    with pytest.raises(Fault, match="no method `other`; the tool has only") as caught:
        Dispatcher(registry, source_root=HERE).invoke("other", "{}")
    assert caught.value.status == 404


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nul", "[" * 100_000])
def test_input_that_is_not_json_is_400(text):
    def run() -> None: ...

    assert fault_of(run, text).status == 400


@pytest.mark.parametrize("text", ["[]", "null", '{"y": 1}', '{"x": "1"}', "{}"])
def test_input_against_the_schema_is_422(text):
    def run(x: int) -> None: ...

    assert fault_of(run, text).status == 422


def test_an_exception_is_a_fault_with_the_authors_own_frames():
    def inner():
        return {}["missing"]

    def run() -> int:
        return inner()

    fault = fault_of(run)
    assert (fault.status, fault.message) == (500, "KeyError: 'missing'")
    assert 'File "test_dispatch.py"' in fault.detail
    assert "in inner" in fault.detail
    assert "dispatch.py" not in fault.detail.replace("test_dispatch.py", "")
    assert HERE not in fault.detail


def test_frames_of_the_sdk_are_left_out_of_causes_too():
    def run() -> None:
        try:
            kv.get("x")
        except CapabilityError as error:
            raise ValueError("wrapped") from error

    fault = fault_of(run)
    assert "wrapped" in fault.message
    assert "direct cause" in fault.detail
    assert "transport.py" not in fault.detail


def test_a_capability_error_keeps_its_status():
    def run() -> None:
        raise CapabilityError(429, "kv.set: quota", "kv.set")

    assert (fault_of(run).status, fault_of(run).message) == (429, "kv.set: quota")


def test_a_capability_without_a_broker_is_503():
    def run() -> None:
        kv.get("x")

    assert fault_of(run).status == 503


def test_a_tool_error_has_the_authors_status_and_no_traceback():
    def run() -> None:
        raise ToolError("no such note", status=404)

    fault = fault_of(run)
    assert (fault.status, fault.message, fault.detail) == (404, "no such note", "")


def test_a_tool_can_not_claim_a_status_that_is_the_hosts():
    with pytest.raises(ValueError, match="can't fail with status 403"):
        ToolError("x", status=403)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no")


def leaves():
    sys.exit("bye")


def raises(error):
    def run() -> None:
        raise error

    return run


def forever(n: int) -> int:
    return forever(n + 1)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (lambda: leaves(), "{}", "the tool called sys.exit('bye')"),
        (raises(MemoryError()), "{}", "MemoryError"),
        (raises(KeyboardInterrupt()), "{}", "KeyboardInterrupt"),
        (raises(GeneratorExit()), "{}", "GeneratorExit"),
        (raises(BaseException("odd")), "{}", "BaseException: odd"),
        (raises(Unprintable()), "{}", "Unprintable"),
        (raises(ValueError("\ud800")), "{}", "ValueError: ?"),
        (forever, '{"n": 0}', "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_nothing_gets_past_the_wall(function, arguments, message):
    if function.__name__ == "<lambda>":
        function.__annotations__["return"] = None
    fault = fault_of(function, arguments)
    assert fault.status == 500
    assert fault.message.startswith(message)
    fault.detail.encode()


def test_ctrl_c_in_a_test_run_is_not_swallowed():
    with pytest.raises(KeyboardInterrupt):
        invoke(raises(KeyboardInterrupt()), passes_through=(KeyboardInterrupt,))


def test_message_and_detail_are_bounded():
    fault = fault_of(raises(ValueError("x" * 100_000)))
    assert len(fault.message) <= MAX_MESSAGE_CHARACTERS + 1
    assert len(fault.detail) <= MAX_DETAIL_CHARACTERS + 1
    assert fault.detail.endswith("x\n")


def wrong() -> int:
    return "x"


def nan() -> float:
    return float("nan")


def surrogate() -> str:
    return "\ud800"


def deep() -> list:
    value: list = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("function", [wrong, nan, surrogate, deep])
def test_a_result_that_is_not_what_was_declared_is_500(function):
    fault = fault_of(function)
    assert fault.status == 500
    assert fault.message.startswith("run: ")


def test_the_result_of_a_method_without_one_is_null():
    def run() -> None: ...

    assert json.loads(invoke(run)) is None


class Recorder:
    def __init__(self, result=None):
        self.seen = []
        self.result = result

    def call(self, capability, arguments):
        self.seen.append((capability, arguments))
        return self.result


def test_capability_calls_go_through_the_installed_transport():
    def run() -> str | None:
        return kv.get("k")

    recorder = Recorder("v")
    with transport.installed(recorder):
        assert invoke(run) == '"v"'
    assert recorder.seen == [("kv.get", {"key": "k"})]
