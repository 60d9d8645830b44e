"""The way of one call, from a request to a result.

Owns the order of the steps and what is told about them. Each step belongs to its room: this module
calls them and must never do their work. Used by the runtime, from any thread.
"""

import hashlib
import os
import platform
import time

from toolcell.admission import Gate
from toolcell.broker import BrokerServices, InvocationBroker
from toolcell.errors import CallCancelled, InternalError, LimitExceeded, ToolcellError
from toolcell.events import EventContext, SandboxSpawned
from toolcell.lane import Prepared, Request
from toolcell.lanes import LaneSet, Lease
from toolcell.plan import Plan, Planner, Tool
from toolcell.report import result_of, tell
from toolcell.result import Result
from toolcell.run import Call, Run
from toolcell.session import Deadline, Emitter, Session
from toolcell.telemetry.redact import Redactor
from toolcell.trust.keys import SigningKey

__all__ = ["Pipeline"]

_OS = f"{platform.system()} {platform.release()}".lower()
MIB = 1024 * 1024


class Pipeline:
    """Runs calls. Holds what they share; keeps nothing of any of them."""

    def __init__(
        self,
        *,
        planner: Planner,
        lanes: LaneSet,
        gate: Gate,
        services: BrokerServices,
        emitter: Emitter,
        redactor: Redactor,
        result_key: SigningKey | None,
    ) -> None:
        self._planner = planner
        self._lanes = lanes
        self._gate = gate
        self._services = services
        self._emitter = emitter
        self._redactor = redactor
        self._result_key = result_key

    def run(self, call: Call) -> Result:
        """Runs `call`. Every failure is in the result; raises only what the caller did itself
        (`KeyboardInterrupt`, `SystemExit`), after the cell is gone and the events are written.
        """
        run = Run(call)
        try:
            self._run(run)
        except ToolcellError as error:
            run.error = error
        except Exception as error:  # noqa: BLE001 - the edge: a bug of ours must not look like a tool's
            run.error = InternalError(
                f"internal error ({type(error).__name__}) in call {run.context.correlation_id}",
                remedy="report it with the correlation id; the cause is in the error's __cause__",
            )
            run.error.__cause__ = error
        except BaseException:
            run.error = CallCancelled("the caller was interrupted")
            tell(run, self._emitter)
            raise
        tell(run, self._emitter)
        return result_of(run, self._redactor, self._result_key)

    def prepare(self, call: Call) -> None:
        """Does what the first run of `call` would do before it: verify, plan, compile, admit."""
        tool = self._planner.resolve(call.tool, call.version, call.scope)
        plan = self._plan(tool, call)
        with self._lanes.lease(plan.lane, tool.artifact, plan.envelope, call.cancel) as lease:
            _admit(lease, plan)

    def _plan(self, tool: Tool, call: Call) -> Plan:
        return self._planner.plan(
            tool,
            policy=call.policy,
            masks=call.masks,
            input_trust=call.input_trust,
            lane=call.lane,
        )

    def _run(self, run: Run) -> None:
        call = run.call
        if call.cancel.error is not None:
            raise call.cancel.error
        since = run.started_s
        tool = self._planner.resolve(call.tool, call.version, call.scope)
        since = run.stage("resolve", since)
        run.context = _context_of(run.context, tool.ref.id, tool.ref.name, tool.ref.version)
        plan = run.plan = self._plan(tool, call)
        run.context = _with_policy(run.context, plan.policy_digest, plan.lane)
        since = run.stage("policy", since)
        tool.check_input(call.method, call.raw, plan.envelope.max_message_bytes)
        since = run.stage("input", since)
        with self._lease(run, plan) as lease:
            _admit(lease, plan)
            since = run.stage("prepare", since)
            run.queue_wait_ms += self._gate.enter(_patience_ms(run, plan), call.cancel)
            try:
                run.stage("queue", since)
                self._in_cell(run, plan, lease.prepared)
            finally:
                self._gate.leave()
        if run.outcome.error is not None:
            raise run.outcome.error
        since = time.perf_counter()
        run.output = tool.check_output(call.method, run.outcome.output or b"")
        run.stage("output", since)

    def _lease(self, run: Run, plan: Plan) -> Lease:
        """The prepared artifact; a caller's own `timeout_ms` bounds the wait for it too."""
        call = run.call
        left_s = None if call.timeout_ms is None else max(0.0, run.left_ms() / 1000)
        try:
            return self._lanes.lease(
                plan.lane, plan.tool.artifact, plan.envelope, call.cancel, left_s
            )
        except TimeoutError:
            raise LimitExceeded(
                "timeout_ms",
                allowed=call.timeout_ms or 0,
                message=f"{plan.tool.ref.name} was still being prepared after timeout_ms "
                f"({call.timeout_ms}): an artifact is compiled on its first use",
                remedy="call again, preparing goes on; or call Runtime.prepare ahead",
            ) from None

    def _in_cell(self, run: Run, plan: Plan, prepared: Prepared) -> None:
        """Everything that happens while the call holds a place."""
        call = run.call
        since = time.perf_counter()
        session = Session(
            tool=plan.tool.ref,
            envelope=plan.envelope,
            policy_digest=plan.policy_digest,
            context=run.context,
            emitter=self._emitter,
            deadline=_deadline(run, plan),
            cancel=call.cancel,
            seed=_seed(plan, call),
        )
        run.broker = session.broker = InvocationBroker(session, self._services)
        run.spawned = True  # before it is told: a signal may come in between
        try:
            session.emit(
                SandboxSpawned,
                pid=os.getpid(),
                os=_OS,
                cpu_quota_ms=plan.envelope.cpu_time_ms,
                memory_max_bytes=plan.envelope.memory_mb * MIB,
            )
            since = run.stage("session", since)
            run.outcome = prepared.invoke(Request(call.method, call.raw), session)
            since = run.stage("cell", since)
        finally:
            run.broker.close()
            run.stage("teardown", since)


def _context_of(context: EventContext, tool_id: str, name: str, version: str) -> EventContext:
    return EventContext(
        correlation_id=context.correlation_id,
        scope=context.scope,
        tool_id=tool_id,
        tool=name,
        version=version,
    )


def _with_policy(context: EventContext, policy_digest: str, lane: str) -> EventContext:
    return EventContext(
        correlation_id=context.correlation_id,
        scope=context.scope,
        tool_id=context.tool_id,
        tool=context.tool,
        version=context.version,
        policy_digest=policy_digest,
        lane=lane,
    )


def _admit(lease: Lease, plan: Plan) -> None:
    """Checks once per artifact, lane and policy that the lane can hold the envelope."""
    if not lease.admitted(plan.policy_digest):
        lease.prepared.admit(plan.envelope)
        lease.remember_admitted(plan.policy_digest)


def _deadline(run: Run, plan: Plan) -> Deadline:
    """The policy's wall time from now, or the caller's own bound where that ends first."""
    call, wall_ms = run.call, plan.envelope.wall_time_ms
    if call.timeout_ms is not None and run.left_ms() < wall_ms:
        return Deadline(call.timeout_ms, limit="timeout_ms", since_s=call.queued_s)
    return Deadline(wall_ms)


def _patience_ms(run: Run, plan: Plan) -> int:
    """How long a call may still wait for its turn: as long as it may run."""
    left_ms = plan.envelope.wall_time_ms - run.queue_wait_ms
    if run.call.timeout_ms is not None:
        left_ms = min(left_ms, run.left_ms())
    return max(0, int(left_ms))


def _seed(plan: Plan, call: Call) -> bytes:
    """What a deterministic run draws from: the artifact, the method and the input, no more."""
    if not plan.envelope.deterministic:
        return bytes(32)
    parts = hashlib.sha256(plan.tool.ref.digest.encode())
    parts.update(b"\0" + call.method.encode() + b"\0")
    parts.update(call.raw)
    return parts.digest()
