"""The way of one call, from a request to a result.

Owns the order of the steps and what is told about them. Each step belongs to its room: this module
calls them and must never do their work. Used by the runtime, from any thread.
"""

import hashlib
import os
import platform
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from toolcell.admission import Gate
from toolcell.broker import BrokerServices, InvocationBroker
from toolcell.errors import (
    CallCancelled,
    CapabilityFault,
    InternalError,
    LimitExceeded,
    PolicyDenied,
    QueueFull,
    ToolcellError,
)
from toolcell.events import (
    EventContext,
    SandboxSpawned,
    SandboxTerminated,
    SandboxViolation,
    ToolInvocation,
)
from toolcell.lane import Outcome, Prepared, Request
from toolcell.lanes import LaneSet, Lease
from toolcell.plan import MaskChoice, Plan, Planner, PolicyChoice, Tool
from toolcell.result import Incident, Metrics, Result, Trust
from toolcell.session import CancelToken, Deadline, Emitter, Session
from toolcell.telemetry.redact import Redactor

__all__ = ["Call", "Pipeline"]

_OS = f"{platform.system()} {platform.release()}".lower()
MIB = 1024 * 1024


class Call(Struct, kw_only=True):
    """What the caller asks for. `queued_s` is when, on the monotonic clock."""

    tool: str | Path
    method: str
    raw: bytes
    version: str = ""
    scope: str = "default"
    policy: PolicyChoice = None
    masks: Sequence[MaskChoice] = ()
    input_trust: Trust = "untrusted"
    lane: str | None = None
    timeout_ms: int | None = None
    cancel: CancelToken = field(default_factory=CancelToken)
    queued_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self.timeout_ms is not None and self.timeout_ms < 1:
            raise ValueError(f"timeout_ms is {self.timeout_ms}; it must be at least 1")


class _Run:
    """One call under way: what is known of it so far, for the result and the events."""

    __slots__ = (
        "broker",
        "call",
        "context",
        "error",
        "outcome",
        "output",
        "plan",
        "queue_wait_ms",
        "spawned",
        "stages_us",
        "started_s",
    )

    def __init__(self, call: Call) -> None:
        self.call = call
        self.context = EventContext(correlation_id=secrets.token_hex(16), scope=call.scope)
        self.started_s = time.perf_counter()
        self.plan: Plan | None = None
        self.outcome = Outcome()
        self.output: Any = None
        self.error: ToolcellError | None = None
        self.broker: InvocationBroker | None = None
        self.queue_wait_ms = (time.monotonic() - call.queued_s) * 1000
        self.spawned = False
        self.stages_us: dict[str, float] = {}

    def stage(self, name: str, since: float) -> float:
        """Notes the time of stage `name`, which began at `since`; returns now."""
        now = time.perf_counter()
        self.stages_us[name] = (now - since) * 1e6
        return now


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
    ) -> None:
        self._planner = planner
        self._lanes = lanes
        self._gate = gate
        self._services = services
        self._emitter = emitter
        self._redactor = redactor

    def run(self, call: Call) -> Result:
        """Runs `call`. Every failure is in the result; raises only what the caller did itself
        (`KeyboardInterrupt`, `SystemExit`), after the cell is gone and the events are written.
        """
        run = _Run(call)
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
            self._tell(run)
            raise
        self._tell(run)
        return self._result(run)

    def prepare(self, call: Call) -> None:
        """Does what the first run of `call` would do before it: verify, plan, compile, admit."""
        tool = self._planner.resolve(call.tool, call.version, call.scope)
        plan = self._plan(tool, call)
        with self._lanes.lease(plan.lane, tool.artifact, call.cancel) as lease:
            _admit(lease, plan)

    def _plan(self, tool: Tool, call: Call) -> Plan:
        return self._planner.plan(
            tool,
            policy=call.policy,
            masks=call.masks,
            input_trust=call.input_trust,
            lane=call.lane,
        )

    def _run(self, run: _Run) -> None:
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
        with self._lanes.lease(plan.lane, tool.artifact, call.cancel) as lease:
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

    def _in_cell(self, run: _Run, plan: Plan, prepared: Prepared) -> None:
        """Everything that happens while the call holds a place."""
        call = run.call
        since = time.perf_counter()
        limit_ms = _wall_ms(plan, call)
        session = Session(
            tool=plan.tool.ref,
            envelope=plan.envelope,
            policy_digest=plan.policy_digest,
            context=run.context,
            emitter=self._emitter,
            deadline=Deadline(limit_ms),
            cancel=call.cancel,
            seed=_seed(plan, call),
        )
        run.broker = session.broker = InvocationBroker(session, self._services)
        try:
            session.emit(
                SandboxSpawned,
                pid=os.getpid(),
                os=_OS,
                cpu_quota_ms=plan.envelope.cpu_time_ms,
                memory_max_bytes=plan.envelope.memory_mb * MIB,
            )
            run.spawned = True
            since = run.stage("session", since)
            run.outcome = prepared.invoke(Request(call.method, call.raw), session)
            since = run.stage("cell", since)
        finally:
            run.broker.close()
            run.stage("teardown", since)

    def _tell(self, run: _Run) -> None:
        """Emits what must be known of the run. A log that can't be written fails the call."""
        try:
            if run.error is not None:
                self._tell_violation(run, run.error)
            if run.plan is not None:
                self._tell_invocation(run, run.plan)
            if run.spawned:
                reason = run.error.code if run.error is not None else "completed"
                self._emitter.emit(SandboxTerminated.of(run.context, reason=reason))
        except ToolcellError as error:
            run.error = run.error or error
            run.output = None

    def _tell_violation(self, run: _Run, error: ToolcellError) -> None:
        if not isinstance(error, LimitExceeded | PolicyDenied | CapabilityFault):
            return
        self._emitter.emit(
            SandboxViolation.of(
                run.context,
                type=str(
                    error.details.get("limit") or error.details.get("capability") or error.code
                ),
                detail=error.message,
                severity="hard",
            )
        )

    def _tell_invocation(self, run: _Run, plan: Plan) -> None:
        usage = run.outcome.usage
        self._emitter.emit(
            ToolInvocation.of(
                run.context,
                method=run.call.method[:64],
                duration_ms=(time.perf_counter() - run.started_s) * 1000,
                cpu_ms=usage.cpu_ms,
                queue_wait_ms=run.queue_wait_ms,
                memory_peak_bytes=usage.memory_peak_bytes,
                bytes_in=len(run.call.raw),
                bytes_out=usage.bytes_out,
                fuel=usage.fuel,
                status=200 if run.error is None else run.error.status,
                outcome="ok" if run.error is None else run.error.code,
                artifact_digest=plan.tool.ref.digest,
            )
        )

    def _result(self, run: _Run) -> Result:
        plan, outcome, broker, error = run.plan, run.outcome, run.broker, run.error
        metrics = Metrics(
            cpu_ms=outcome.usage.cpu_ms,
            memory_peak_mb=outcome.usage.memory_peak_bytes / MIB,
            fuel=outcome.usage.fuel,
            bytes_in=len(run.call.raw),
            bytes_out=outcome.usage.bytes_out,
            queue_wait_ms=run.queue_wait_ms,
            syscalls=outcome.usage.syscalls,
        )
        result = Result(
            status=200 if error is None else error.status,
            output=run.output if error is None else None,
            error=error,
            tool=run.context.tool,
            version=run.context.version,
            method=run.call.method,
            metrics=metrics,
            correlation_id=run.context.correlation_id,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            receipt=outcome.receipt,
            warnings=outcome.warnings,
            stages_us={**run.stages_us, **outcome.stages_us},
        )
        if plan is not None:
            result.lane = plan.lane
            result.isolation = plan.isolation
            result.reasons = plan.reasons
            result.trust = plan.output_trust
            result.artifact_digest = plan.tool.ref.digest
            result.policy_digest = plan.policy_digest
            result.warnings = (*plan.warnings, *outcome.warnings)
        if broker is not None:
            used = broker.usage
            metrics.capability_calls = used.calls
            metrics.network_requests = used.network_requests
            metrics.bytes_read = used.bytes_read
            metrics.bytes_written = used.bytes_written
            result.log = tuple(broker.log_lines)
        if error is not None:
            self._redactor.redact_error(error)
            error.tool, error.lane = result.tool, result.lane
            result.incidents = (_incident(error),)
        result.duration_ms = (time.perf_counter() - run.started_s) * 1000
        return result


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


def _wall_ms(plan: Plan, call: Call) -> int:
    wall_ms = plan.envelope.wall_time_ms
    return wall_ms if call.timeout_ms is None else min(call.timeout_ms, wall_ms)


def _patience_ms(run: _Run, plan: Plan) -> int:
    """How long a call may still wait for its turn: as long as it may run."""
    return max(0, int(_wall_ms(plan, run.call) - run.queue_wait_ms))


def _seed(plan: Plan, call: Call) -> bytes:
    """What a deterministic run draws from: the artifact, the method and the input, no more."""
    if not plan.envelope.deterministic:
        return bytes(32)
    parts = hashlib.sha256(plan.tool.ref.digest.encode())
    parts.update(b"\0" + call.method.encode() + b"\0")
    parts.update(call.raw)
    return parts.digest()


def _incident(error: ToolcellError) -> Incident:
    quiet = isinstance(error, QueueFull | CallCancelled)
    return Incident(
        time_ns=time.time_ns(),
        severity="info" if quiet else "warning",
        type=error.code,
        message=error.message,
        details=error.details,
    )
