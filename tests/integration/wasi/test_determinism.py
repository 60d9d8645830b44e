"""`deterministic = true`: the same call gives the same bytes and burns the same fuel."""

import json

import pytest
from wasi_attacks import in_threads
from wasi_cell import call

pytestmark = pytest.mark.slow

SEED = bytes(range(32))


def roll(hostile, seed=SEED, **fields):
    outcome = call(hostile, "dice", seed=seed, **fields)
    assert outcome.error is None
    return outcome.output, outcome.usage.fuel


def test_two_runs_are_the_same_to_the_byte_and_to_the_fuel(hostile):
    assert roll(hostile, deterministic=True) == roll(hostile, deterministic=True)


def test_runs_at_the_same_time_do_not_disturb_each_other(hostile):
    first = roll(hostile, deterministic=True)

    def work():
        for _ in range(5):
            assert roll(hostile, deterministic=True) == first

    in_threads(4, work)


def test_another_seed_gives_other_numbers_at_the_same_time_of_day(hostile):
    one = json.loads(roll(hostile, deterministic=True)[0])
    two = json.loads(roll(hostile, seed=bytes(32), deterministic=True)[0])
    assert one[:2] != two[:2]
    assert one[2:] == two[2:]


def test_without_it_two_runs_differ(hostile):
    assert roll(hostile)[0] != roll(hostile)[0]


def test_a_sleep_takes_no_time_and_moves_the_clock(hostile):
    outcome = call(hostile, "sleep", "3600", deterministic=True, wall_time_ms=2000)
    assert outcome.output == b'"slept"'
