"""What a hostile tool tries, and what must come of it: one row per attack.

`ceiling_ms` is by when the attack must be over, the ceiling of the row's envelope; a test adds
the slack. Rows that a size or a count ends have a ceiling that is only a bound on patience.
"""

import ctypes
import gc
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psutil
from machine_noise import MachineNoise

from toolcell.errors import LimitExceeded, ToolFault

PATIENCE_MS = 5000
SLACK_MS = 50
THREADS = 4


@dataclass(frozen=True)
class Attack:
    """One method of `hostile_tool`, and the end that it must find."""

    method: str
    status: int
    says: str
    text: str = "null"
    fault: type = ToolFault
    limit: str = ""
    ceiling_ms: int = PATIENCE_MS
    fields: dict[str, Any] = field(default_factory=dict)

    def check(self, outcome):
        """Asserts that the attack failed, and which defence stopped it."""
        error = outcome.error
        assert error is not None, f"{self.method} succeeded: {outcome.output!r}"
        assert isinstance(error, self.fault), f"{self.method}: {error!r}"
        assert error.status == self.status, f"{self.method}: {error.status} {error.message}"
        said = f"{error.message}\n{error.guest_detail}"
        assert self.says in said, f"{self.method}: {said}"
        if self.limit:
            assert error.limit == self.limit


def over(limit, status, says, **rest):
    """The attack is ended by a ceiling."""
    return {"fault": LimitExceeded, "limit": limit, "status": status, "says": says, **rest}


WALL = {"wall_time_ms": 100}
TIMED = over("wall_time_ms", 408, "wall_time_ms is 100", ceiling_ms=100, fields=WALL)

ATTACKS = (
    Attack("spin", **TIMED),
    Attack("sleep", text="60", **TIMED),
    Attack("stubborn", **TIMED),
    Attack(
        "spin",
        **over("cpu_time_ms", 408, "cpu_time_ms is 50", fields={"cpu_time_ms": 50}),
    ),
    Attack("spin", **over("fuel", 408, "fuel is 1e+06", fields={"fuel": 10**6})),
    Attack("allocate", **over("memory_mb", 500, "memory_mb is 32", fields={"memory_mb": 32})),
    Attack("hoard", **over("memory_mb", 500, "memory_mb is 32", fields={"memory_mb": 32})),
    Attack("recurse", **over("stack", 500, "used up its stack")),
    Attack(
        "print_forever",
        **over("max_output_bytes", 413, "stdout", fields={"max_output_bytes": 65536}),
    ),
    Attack("big_output", text="2000000", **over("max_output_bytes", 413, "the tool's result has")),
    Attack("leave", status=500, says="exited with code 1", text="3"),
    Attack("leave_hard", status=500, says="exited with code 1", text="3"),
    Attack("abort", status=500, says="aborted"),
    Attack("fail", status=500, says="ValueError: the author's own message"),
    Attack("wrong_type", status=500, says="'int' object is not an instance of 'str'"),
    Attack(
        "denied",
        status=403,
        says="kv.set: not granted",
        fields={"allowed_host_apis": ("kv.get",)},
    ),
    Attack("passwd", status=500, says="No such file or directory: '/etc/passwd'"),
    Attack("network", status=500, says="No module named 'socket'"),
    Attack("shell", status=500, says="no attribute 'system'"),
)


class Footprint:
    """What the host process holds: threads, descriptors, resident memory.

    Memory that is free but kept by the allocator is given back first: it is no leak, and how much
    it is depends on which threads happened to share an arena.
    """

    def __init__(self):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        process = psutil.Process()
        self.threads = threading.active_count()
        self.descriptors = process.num_fds()
        self.resident_bytes = process.memory_info().rss

    def assert_not_above(self, before, *, resident_slack_bytes):
        """Fails where anything has grown since `before`."""
        assert self.threads <= before.threads
        assert self.descriptors <= before.descriptors
        grown = self.resident_bytes - before.resident_bytes
        assert grown <= resident_slack_bytes, f"resident memory grew by {grown >> 10} KiB"


def assert_rush_ends_in_time_and_leaves_nothing(attacks, call, times):
    """`call(attack)` for each of `attacks`, `times` times in all, from four threads at once.

    Late is what an attack took beyond its ceiling. Four threads and whatever else the machine does
    share its cores, so one call in a hundred may be unlucky.
    """
    late_ms = []

    def rush(rounds):
        for _ in range(rounds):
            for attack in attacks:
                started = time.monotonic()
                ended = call(attack)
                late_ms.append((time.monotonic() - started) * 1000 - attack.ceiling_ms)
                attack.check(ended)

    in_threads(THREADS, lambda: rush(1))
    before = Footprint()
    late_ms.clear()
    with MachineNoise() as noise:
        in_threads(THREADS, lambda: rush(times // THREADS))
    Footprint().assert_not_above(before, resident_slack_bytes=8 * 1024 * 1024)
    late_ms.sort()
    assert late_ms[len(late_ms) * 99 // 100] <= SLACK_MS + noise.p99_ms


def in_threads(count, work):
    """Runs `work()` in `count` threads at once; raises the first failure of any."""
    failures = []

    def guarded():
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
