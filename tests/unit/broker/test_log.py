"""`log.emit`: harmless text, a rate and a cap, and markers for what is missing."""

import pytest
from broker_runs import Run, envelope

from toolcell.broker import BrokerServices
from toolcell.broker.log import TokenBucket, neutralised


def logged(run: Run) -> list[str]:
    return [line.message for line in run.broker.log_lines]


def emit(run: Run, *messages: str) -> None:
    for message in messages:
        run.call("log.emit", level="info", message=message)


def test_lines_are_kept_in_order_with_level_and_time(services: BrokerServices) -> None:
    run = Run(envelope(), services)
    run.call("log.emit", level="debug", message="one")
    run.call("log.emit", level="error", message="two")

    first, second = run.broker.log_lines
    assert (first.level, first.message) == ("debug", "one")
    assert (second.level, second.message) == ("error", "two")
    assert 0 <= first.at_ms <= second.at_ms


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain", "plain"),
        ("tab\tstays", "tab\tstays"),
        ("two\nlines", "two\\nlines"),
        ("a\r\nERROR forged", "a\\r\\nERROR forged"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("nul\0", "nul\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("grüße 你好 🙂", "grüße 你好 🙂"),
    ],
)
def test_control_and_direction_characters_are_written_out(text: str, kept: str) -> None:
    assert neutralised(text) == kept


def test_lines_over_the_rate_are_dropped_and_marked(services: BrokerServices) -> None:
    run = Run(envelope(log_rate=5), services)
    emit(run, *[f"line {at}" for at in range(50)])
    run.broker.close()

    lines = logged(run)
    assert lines[:5] == [f"line {at}" for at in range(5)]
    assert "lines dropped" in lines[-1]
    assert "log_rate, which is 5" in lines[-1]
    assert run.broker.usage.log_lines_dropped >= 40


def test_bucket_gives_its_rate_at_once_and_then_as_time_goes_by() -> None:
    bucket = TokenBucket(2, 0.0)

    taken = [bucket.take(0.0), bucket.take(0.0), bucket.take(0.0), bucket.take(0.5)]

    assert taken == [True, True, False, True]


def test_bucket_never_holds_more_than_a_second_s_worth() -> None:
    bucket = TokenBucket(2, 0.0)

    assert [bucket.take(1000.0) for _ in range(3)] == [True, True, False]


def test_rate_of_zero_lets_nothing_through(services: BrokerServices) -> None:
    run = Run(envelope(log_rate=0), services)
    emit(run, "x")
    run.broker.close()

    assert logged(run) == ["[1 lines dropped: over log_rate, which is 0 lines/s]"]


def test_line_over_the_cap_is_cut_with_a_marker_and_the_rest_dropped(
    services: BrokerServices,
) -> None:
    run = Run(envelope(max_log_bytes=20), services)
    emit(run, "0123456789", "0123456789ABCDEF", "gone", "gone too")
    run.broker.close()

    assert logged(run) == [
        "0123456789",
        "0123456789… [truncated: 6 bytes over max_log_bytes, which is 20]",
        "[2 lines dropped: over max_log_bytes, which is 20]",
    ]
    assert run.broker.usage.log_bytes_dropped == 6 + 4 + 8


def test_cut_never_splits_a_character(services: BrokerServices) -> None:
    run = Run(envelope(max_log_bytes=3), services)
    emit(run, "üüü")

    assert logged(run)[0].startswith("ü… [truncated: 4 bytes")


def test_written_out_characters_count_as_written(services: BrokerServices) -> None:
    run = Run(envelope(max_log_bytes=8), services)
    emit(run, "\x1b\x1b\x1b")

    assert logged(run)[0].startswith("\\x1b\\x1b… [truncated")


def test_log_of_a_run_is_bounded_whatever_the_guest_does(services: BrokerServices) -> None:
    run = Run(envelope(max_log_bytes=1000, log_rate=100), services)
    emit(run, *["x" * 200] * 1000)
    run.broker.close()

    assert sum(len(line) for line in logged(run)) < 2000
    assert len(logged(run)) < 10


def test_run_that_logs_nothing_has_no_lines(services: BrokerServices) -> None:
    assert Run(envelope(), services).broker.log_lines == []
