"""The cell: what one run has, and what ends it.

Owns the per-run objects and the tick. Made by `toolcell_wasi.prepared` for one call and used on
the calling thread only; a host function gets it as its first argument.
"""

import resource
import time

from toolcell.guest_output import Capture
from toolcell.lane import Usage
from toolcell.session import Session
from toolcell_wasi.cell.clock import Clock, RealClock, VirtualClock
from toolcell_wasi.cell.entropy import Entropy, SeededEntropy, SystemEntropy
from toolcell_wasi.cell.handles import HandleTable

PAGE_BYTES = resource.getpagesize()


class Cell:
    """One run: session, clocks, randomness, handles, captured streams, and what it has used.

    `max_argument_bytes` bounds what one host call may hand over; it is the envelope's
    `max_message_bytes`. `max_stack_bytes` is the engine's, for the message of an overflow.
    """

    __slots__ = (
        "_cpu_started_s",
        "_faults_started",
        "clock",
        "entropy",
        "handles",
        "max_argument_bytes",
        "max_stack_bytes",
        "session",
        "stdio",
        "usage",
    )

    def __init__(self, session: Session, max_stack_bytes: int) -> None:
        envelope = session.envelope
        self.session = session
        self.usage = Usage()
        self.handles = HandleTable()
        self.clock: Clock
        self.entropy: Entropy
        if envelope.deterministic:
            self.clock, self.entropy = VirtualClock(session), SeededEntropy(session.seed)
        else:
            self.clock, self.entropy = RealClock(session), SystemEntropy()
        self.stdio = Capture(envelope, self.clock)
        self.max_argument_bytes = envelope.max_message_bytes
        self.max_stack_bytes = max_stack_bytes
        self._cpu_started_s = time.thread_time()
        self._faults_started = _minor_faults()

    def on_tick(self) -> None:
        """Called while the guest computes, once per epoch tick. Raises what ends the run."""
        self.session.check(self.measure().cpu_ms)

    def measure(self) -> Usage:
        """Brings `usage` up to date and returns it.

        CPU time is that of the calling thread since the cell was made, host functions included.
        Memory is the pages that were touched for the first time: a cell starts with none of its
        own and gives none back before it ends, so their number is the peak. Linear memory that
        was asked for and never written is not in it, as it is not in the machine's memory.
        """
        self.usage.cpu_ms = (time.thread_time() - self._cpu_started_s) * 1000
        self.usage.memory_peak_bytes = (_minor_faults() - self._faults_started) * PAGE_BYTES
        return self.usage

    def drop(self, number: int) -> None:
        """The guest dropped a handle."""
        self.handles.drop(number)


def _minor_faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
