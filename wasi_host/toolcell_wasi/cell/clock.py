"""Time as a guest sees it: real, or virtual in a deterministic run.

Owns both clocks. Every wait ends in `Session.wait`, so that a guest asleep ends at its deadline,
at a cancellation or on Ctrl-C like one that computes.
"""

import time
from typing import Protocol

from toolcell.session import Session

NANOSECONDS = 1_000_000_000
RESOLUTION_NS = 1_000
"""Granularity of both clocks. Finer time would help nobody but a guest that measures caches."""

LONGEST_WAIT_S = 0.1
"""A longer sleep is several waits: a signal that strikes between Python's last look and the system
call that blocks is noticed only when that call returns."""

VIRTUAL_START_S = 946_684_800
"""2000-01-01T00:00:00Z, where the virtual wall clock starts."""


class Clock(Protocol):
    """What a cell needs of time. Instants are nanoseconds since the cell's own start."""

    def now_ns(self) -> int:
        """Monotonic time."""

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch."""

    def sleep_until(self, instant_ns: int) -> None:
        """Waits for `instant_ns`. Raises what ends the run where that comes first."""


class RealClock:
    """The host's clocks. Monotonic time starts at 0: how long the host is up is not the guest's."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._started_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        elapsed = time.monotonic_ns() - self._started_ns
        return elapsed - elapsed % RESOLUTION_NS

    def wall_ns(self) -> int:
        now = time.time_ns()
        return now - now % RESOLUTION_NS

    def sleep_until(self, instant_ns: int) -> None:
        while (left_ns := instant_ns - (time.monotonic_ns() - self._started_ns)) > 0:
            self._session.wait(min(left_ns / NANOSECONDS, LONGEST_WAIT_S))


class VirtualClock:
    """Time that passes only when the guest looks or sleeps, so that two runs see the same times.

    Each look takes one step of `RESOLUTION_NS`; a sleep is over at once. The real deadline holds
    all the same.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._now_ns = 0

    def now_ns(self) -> int:
        self._now_ns += RESOLUTION_NS
        return self._now_ns

    def wall_ns(self) -> int:
        return VIRTUAL_START_S * NANOSECONDS + self.now_ns()

    def sleep_until(self, instant_ns: int) -> None:
        self._session.check()
        self._now_ns = max(self._now_ns, instant_ns)
