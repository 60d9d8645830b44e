"""Clocks, randomness and handles of a cell."""

import pytest
from wasi_cell import make_session

from toolcell.errors import CallCancelled, LimitExceeded
from toolcell_wasi.cell.clock import NANOSECONDS, VIRTUAL_START_S, RealClock, VirtualClock
from toolcell_wasi.cell.entropy import SeededEntropy, SystemEntropy
from toolcell_wasi.cell.handles import MAX_HANDLES, HandleTable
from toolcell_wasi.cell.violations import GuestViolation
from toolcell_wasi.host.io import InputStream, OutputStream


def test_a_real_clock_starts_at_zero_and_hides_how_long_the_host_is_up():
    assert RealClock(make_session()).now_ns() < NANOSECONDS


def test_a_sleep_ends_at_the_deadline():
    clock = RealClock(make_session(wall_time_ms=20))
    with pytest.raises(LimitExceeded) as ended:
        clock.sleep_until(60 * NANOSECONDS)
    assert ended.value.limit == "wall_time_ms"


def test_a_sleep_ends_at_a_cancellation():
    session = make_session()
    session.cancel.cancel()
    with pytest.raises(CallCancelled):
        RealClock(session).sleep_until(60 * NANOSECONDS)


def test_virtual_time_moves_only_when_looked_at_or_slept():
    clocks = [VirtualClock(make_session()) for _ in range(2)]
    seen = []
    for clock in clocks:
        first = clock.now_ns()
        clock.sleep_until(first + 60 * NANOSECONDS)
        seen.append((first, clock.now_ns(), clock.wall_ns()))
    assert seen[0] == seen[1]
    assert seen[0][1] - seen[0][0] > 60 * NANOSECONDS
    assert seen[0][2] >= VIRTUAL_START_S * NANOSECONDS


def test_a_virtual_sleep_does_not_outlive_the_real_deadline():
    session = make_session()
    session.cancel.cancel()
    with pytest.raises(CallCancelled):
        VirtualClock(session).sleep_until(1)


def test_seeded_bytes_depend_on_the_seed_only():
    whole = SeededEntropy(b"seed").read(5000)
    pieces = SeededEntropy(b"seed")
    assert b"".join(pieces.read(500) for _ in range(10)) == whole
    assert SeededEntropy(b"other").read(5000) != whole


def test_system_bytes_differ():
    assert SystemEntropy().read(32) != SystemEntropy().read(32)


def test_a_handle_is_good_for_its_kind_only():
    table = HandleTable()
    number = table.add(InputStream())
    assert isinstance(table.get(number, InputStream), InputStream)
    with pytest.raises(GuestViolation, match="OutputStream"):
        table.get(number, OutputStream)


def test_a_dropped_handle_is_never_good_again():
    table = HandleTable()
    number = table.add(InputStream())
    table.drop(number)
    assert table.add(InputStream()) != number
    with pytest.raises(GuestViolation):
        table.get(number, InputStream)


def test_handles_are_capped():
    table = HandleTable()
    for _ in range(MAX_HANDLES):
        table.add(InputStream())
    with pytest.raises(GuestViolation, match=str(MAX_HANDLES)):
        table.add(InputStream())
