"""A prepared artifact: unpacked, its base checked, its layout planned; a fresh cell per call.

Owns the order of one run in the oops lane and what each way out of it becomes. The cell moves the
bytes, the conversation keeps the protocol, `faults` has the sentences.
"""

import math
import time
from collections.abc import Callable

from toolcell.artifact.manifest import Manifest
from toolcell.artifact.strict_json import decode_json
from toolcell.errors import InternalError, LaneUnavailable, ToolcellError, ToolFault
from toolcell.guest_output import Capture
from toolcell.lane import Outcome, Request
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import Session
from toolcell_oops.cell import Cell, Streams, Talk
from toolcell_oops.demands import check_demands
from toolcell_oops.faults import fault_of_exit, fault_of_limit, output_too_large
from toolcell_oops.launcher.client import Launcher, LauncherGone
from toolcell_oops.launcher.wire import CellUsage, Exited, Spawned
from toolcell_oops.plan import Layout
from toolcell_oops.program import PlainProgram, Program
from toolcell_oops.receipt import check_receipt, receipt_of
from toolcell_oops.rpc.conversation import Conversation

__all__ = ["PreparedProgram"]

_PLANNED = frozenset(
    {
        "limits",
        "trees",
        "hand_over",
        "mounts",
        "seal_root",
        "fds",
        "init",
        "landlock",
        "rlimits",
        "capabilities",
        "seccomp",
        "receipt",
        "exec",
    }
)
"""Stages that every plan goes through, `native/PLAN.md`."""


class PreparedProgram:
    """One program, ready to run any number of times. Thread-safe. Meets `toolcell.lane.Prepared`.

    `launcher` gives the running launcher, starting it where it is not.
    """

    def __init__(
        self,
        *,
        manifest: Manifest,
        program: Program,
        layout: Layout,
        launcher: Callable[[], Launcher],
        on_close: Callable[["PreparedProgram"], None],
    ) -> None:
        self._manifest = manifest
        self._program = program
        self._layout = layout
        self._launcher = launcher
        self._on_close = on_close
        self._closed = False

    def admit(self, envelope: PolicyEnvelope) -> None:
        """Refuses an envelope that this artifact can't run under."""
        check_demands(self._manifest, self._program, envelope)

    def invoke(self, request: Request, session: Session) -> Outcome:
        """Runs `request` in a fresh cell."""
        if self._closed:
            raise InternalError("the prepared artifact is closed")
        run = _Run(self._layout, session)
        program = self._program
        if isinstance(program, PlainProgram):
            return run.of(lambda: _run_plain(run, program, self._launcher, request))
        conversation = Conversation.invocation(session, request)
        return run.of(lambda: _run_worker(run, conversation, self._launcher))

    def describe(self, session: Session) -> Outcome:
        """Asks a Python worker for its methods: what the builder puts into the manifest."""
        run = _Run(self._layout, session)
        conversation = Conversation(session, "toolcell.describe", {})
        return run.of(lambda: _run_worker(run, conversation, self._launcher))

    def close(self) -> None:
        """Removes the unpacked files. Idempotent; nothing may be running."""
        if not self._closed:
            self._closed = True
            self._on_close(self)


class _Run:
    """What one run collects."""

    def __init__(self, layout: Layout, session: Session) -> None:
        self.layout = layout
        self.session = session
        self.outcome = Outcome()
        self.capture = Capture(session.envelope, _Clock())

    def of(self, body: Callable[[], None]) -> Outcome:
        """Runs `body`; every failure of the tool or of the set-up is in the outcome."""
        outcome = self.outcome
        try:
            self.session.check()
            body()
        except InternalError:
            raise
        except ToolcellError as error:
            outcome.output = None
            # It is a value from here on: its frames would keep the run alive.
            error.__context__ = None
            outcome.error = error.with_traceback(None)
        outcome.stdout = self.capture.text("stdout")
        outcome.stderr = self.capture.text("stderr")
        outcome.usage.log_bytes_dropped = self.capture.dropped
        return outcome

    def in_cell(
        self,
        launcher: Callable[[], Launcher],
        streams: Streams,
        talk: Talk | None = None,
        arguments: tuple[str, ...] = (),
    ) -> Exited:
        """Runs the cell to its end. Raises why it ended, where that was not by itself."""
        session = self.session
        wall_ms = max(1, math.ceil(session.deadline.remaining_s() * 1000))
        plan = self.layout.plan(session.envelope, wall_ms, arguments)
        cell = Cell(launcher(), session, self._started)
        since = time.perf_counter()
        try:
            cell.run(plan, streams, talk)
        except LauncherGone:
            raise LaneUnavailable(
                "the launcher of the oops lane ended in the middle of the call, and the cell "
                "with it",
                remedy="call again: it is started anew",
                details={"feature": "launcher"},
            ) from None
        finally:
            self.outcome.stages_us["cell"] = (time.perf_counter() - since) * 1e6
            self._measure(cell)
        exited = cell.exited
        if cell.error is not None:
            raise cell.error
        if exited is None:
            raise InternalError("a cell ended and nobody said how")
        if exited.limit is not None:
            raise fault_of_limit(exited.limit, session, self.capture.tail("stderr"))
        cpu_ms = exited.usage.cpu_us / 1000
        if cpu_ms > session.envelope.cpu_time_ms:
            session.check(cpu_ms)
        return exited

    def _started(self, cell: Cell) -> None:
        """The tool was let go: what the kernel says of it must be what was planned."""
        if cell.spawned is not None:
            self.outcome.receipt = receipt_of(cell.spawned, self.layout, self.session)
            self.outcome.stages_us |= _on_the_way(cell.spawned)
            check_receipt(cell.spawned.receipt, self.session.envelope)

    def _measure(self, cell: Cell) -> None:
        used = CellUsage() if cell.exited is None else cell.exited.usage
        usage = self.outcome.usage
        usage.cpu_ms = used.cpu_us / 1000
        usage.memory_peak_bytes = used.memory_peak_bytes
        if cell.exited is not None and cell.exited.leaks:
            left = ", ".join(cell.exited.leaks)[:300]
            self.outcome.warnings = (f"the launcher could not remove: {left}",)

    def succeed(self, output: bytes) -> None:
        """Keeps the result, where it is not too large."""
        if len(output) > self.session.envelope.max_output_bytes:
            raise output_too_large(self.session.envelope, len(output))
        self.outcome.output = output
        self.outcome.usage.bytes_out = len(output)

    def fail_for(self, exited: Exited) -> ToolFault:
        """The error of a cell that ended without a result."""
        tail = self.capture.tail("stderr")
        return fault_of_exit(exited, tail, seccomp=self.layout.seccomp.name)


def _run_plain(
    run: _Run, program: PlainProgram, launcher: Callable[[], Launcher], request: Request
) -> None:
    arguments, stdin = program.command(request.method, decode_json(request.input))
    kept = bytearray()
    allowed = run.session.envelope.max_output_bytes

    def keep(data: bytes) -> None:
        kept.extend(data)
        if len(kept) > allowed:
            raise output_too_large(run.session.envelope, len(kept))

    streams = Streams(stdin, keep, lambda data: run.capture.write("stderr", data))
    exited = run.in_cell(launcher, streams, arguments=tuple(arguments))
    if exited.exit not in program.methods[request.method].exit_codes:
        raise run.fail_for(exited)
    run.succeed(program.result(request.method, bytes(kept)))


def _run_worker(run: _Run, conversation: Conversation, launcher: Callable[[], Launcher]) -> None:
    talk = Talk(
        conversation.start(),
        conversation.take,
        lambda: conversation.over,
        run.session.envelope.max_message_bytes,
    )
    streams = Streams(
        None,
        lambda data: run.capture.write("stdout", data),
        lambda data: run.capture.write("stderr", data),
    )
    exited = run.in_cell(launcher, streams, talk)
    if not conversation.over:
        raise run.fail_for(exited)
    if conversation.error is not None:
        raise conversation.error
    run.succeed(conversation.output or b"")


def _on_the_way(spawned: Spawned) -> dict[str, float]:
    """The stages of this call: those of a parked cell were gone through before it came."""
    stages = spawned.stages_us
    return {name: stages[name] for name in stages if name in _PLANNED} if spawned.warm else stages


class _Clock:
    """Monotonic time since the run began."""

    def __init__(self) -> None:
        self._started_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._started_ns
