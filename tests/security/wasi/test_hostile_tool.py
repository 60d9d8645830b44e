"""A hostile Python tool: each attack fails within its ceiling, and names what stopped it."""

import json
import time

import pytest
from wasi_attacks import ATTACKS, THREADS, assert_rush_ends_in_time_and_leaves_nothing
from wasi_cell import call, ends_within

pytestmark = pytest.mark.slow  # the tool is built once, which takes seconds


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: f"{a.method}-{a.limit or a.status}")
def test_the_attack_fails(hostile, attack):
    with ends_within(attack.ceiling_ms):
        outcome = call(hostile, attack.method, attack.text, **attack.fields)
    attack.check(outcome)
    assert call(hostile, "echo", "7").output == b"7"


# The thousand is in tests/security/runtime, through the whole of `Runtime.invoke`.
@pytest.mark.parametrize("times", [THREADS, pytest.param(100, marks=pytest.mark.soak)])
def test_attacks_from_four_threads_end_in_time_and_leave_nothing_behind(hostile, times):
    def run(attack):
        return call(hostile, attack.method, attack.text, **attack.fields)

    assert_rush_ends_in_time_and_leaves_nothing(ATTACKS, run, times)
    assert call(hostile, "echo", "7").output == b"7"


def test_the_environment_and_the_arguments_are_empty(hostile, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    assert json.loads(call(hostile, "environment").output) == [{}, []]


def test_standard_input_is_at_its_end(hostile):
    assert call(hostile, "stdin").output == b'""'


def test_nothing_survives_a_call(hostile):
    assert call(hostile, "remember", '"secret"').output == b'["secret"]'
    assert call(hostile, "remember", '"again"').output == b'["again"]'


def test_a_refused_capability_can_be_handled(hostile):
    outcome = call(hostile, "denied_and_handled", allowed_host_apis=("kv.get",))
    assert outcome.output == b"403"


def test_what_is_printed_is_kept_under_the_caps_and_counted(hostile):
    outcome = call(hostile, "print_lines", "500", log_rate=10, max_log_bytes=1000)
    assert outcome.stdout.startswith("line 0\nline 1\n")
    assert "bytes dropped" in outcome.stdout
    assert outcome.usage.log_bytes_dropped > 3000


def test_memory_is_refused_by_the_limit_and_by_nothing_else(hostile):
    """With the ceiling raised the same allocation succeeds."""
    outcome = call(hostile, "allocate", memory_mb=1200)
    assert outcome.output == str(1 << 30).encode()


def test_a_sleep_is_ended_by_the_session_and_by_nothing_else(hostile, monkeypatch):
    """With a clock that does not ask the session, a sleep outlives its deadline."""
    from toolcell_wasi.cell.clock import RealClock

    monkeypatch.setattr(RealClock, "sleep_until", lambda _self, _instant: time.sleep(0.3))
    started = time.monotonic()
    outcome = call(hostile, "sleep", "60", wall_time_ms=50)
    assert time.monotonic() - started >= 0.3
    assert outcome.error.limit == "wall_time_ms"
