"""What is told of a run: the events, and the result.

Owns the mapping from what a run was to what the audit log and the caller get. Runs nothing. Used
by the pipeline when the cell is gone.
"""

import time
from datetime import UTC, datetime
from pathlib import Path

from toolcell.broker import InvocationBroker
from toolcell.errors import (
    ArtifactRejected,
    CallCancelled,
    CapabilityFault,
    LimitExceeded,
    PolicyDenied,
    QueueFull,
    ToolcellError,
    ToolFault,
)
from toolcell.events import SandboxTerminated, SandboxViolation, ToolInvocation
from toolcell.result import Incident, Metrics, Result
from toolcell.run import Run
from toolcell.session import Emitter
from toolcell.telemetry.redact import Redactor
from toolcell.trust.keys import SigningKey

__all__ = ["result_of", "tell"]

MIB = 1024 * 1024


def tell(run: Run, emitter: Emitter) -> None:
    """Emits what must be known of the run. A log that can't be written fails the call."""
    for part in (_tell_violation, _tell_invocation, _tell_terminated):
        try:
            part(run, emitter)
        except ToolcellError as error:  # the other parts may still find their way into the log
            run.error = run.error or error
            run.output = None


def _tell_violation(run: Run, emitter: Emitter) -> None:
    error = run.error
    if not isinstance(error, LimitExceeded | PolicyDenied | CapabilityFault | ArtifactRejected):
        return
    emitter.emit(
        SandboxViolation.of(
            run.context,
            type=str(error.details.get("limit") or error.details.get("capability") or error.code),
            detail=error.message,
            severity="hard",
        )
    )


def _tell_terminated(run: Run, emitter: Emitter) -> None:
    if run.spawned:
        reason = run.error.code if run.error is not None else "completed"
        emitter.emit(SandboxTerminated.of(run.context, reason=reason))


def _tell_invocation(run: Run, emitter: Emitter) -> None:
    if run.plan is None:
        return
    usage = run.outcome.usage
    emitter.emit(
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
            artifact_digest=run.plan.tool.ref.digest,
        )
    )


def result_of(run: Run, redactor: Redactor, key: SigningKey | None) -> Result:
    """The result of `run`, its error redacted; signed with `key` where it succeeded."""
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
        tool=run.context.tool or _name_asked(run),
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
        _add_broker(result, broker)
    if outcome.usage.log_bytes_dropped:
        dropped = f"{outcome.usage.log_bytes_dropped} bytes of stdout and stderr were dropped"
        result.warnings += (f"{dropped}: over max_log_bytes or log_rate",)
    if error is not None:
        redactor.redact_error(error)
        error.tool, error.lane = result.tool, result.lane
        result.incidents = (_incident(error),)
    result.duration_ms = (time.perf_counter() - run.started_s) * 1000
    if key is not None and error is None:
        result.attestation = _attest(result, run, key)
    return result


def _name_asked(run: Run) -> str:
    """What the caller called the tool that was not found."""
    asked = run.call.tool
    return (asked.name if isinstance(asked, Path) else asked)[:64]


def _add_broker(result: Result, broker: InvocationBroker) -> None:
    """What the call did through the broker; and where it failed of a refusal, the remedy for it.

    The guest knows the status and the message only: which field of a policy would help is the
    operator's business.
    """
    used, metrics, fault = broker.usage, result.metrics, broker.last_fault
    metrics.capability_calls = used.calls
    metrics.network_requests = used.network_requests
    metrics.bytes_read = used.bytes_read
    metrics.bytes_written = used.bytes_written
    result.log = tuple(broker.log_lines)
    if used.log_lines_dropped:
        dropped = f"{used.log_lines_dropped} log lines were dropped"
        result.warnings += (f"{dropped}: over max_log_bytes or log_rate",)
    error = result.error
    if isinstance(error, ToolFault) and fault is not None and fault.status == error.status:
        error.remedy = error.remedy or fault.remedy
        error.details = {**fault.details, **error.details}


def _attest(result: Result, run: Run, key: SigningKey) -> str:
    """The signed statement of a success: digests and figures, neither input nor output."""
    from toolcell.artifact.attest import Attestation, attest_result, content_digest

    metrics = result.metrics
    attestation = Attestation(
        tool=result.tool,
        version=result.version,
        method=result.method,
        artifact_digest=result.artifact_digest,
        policy_digest=result.policy_digest,
        input_digest=content_digest(run.call.raw),
        output_digest=content_digest(run.outcome.output or b""),
        lane=result.lane,
        correlation_id=result.correlation_id,
        status=result.status,
        finished_at=datetime.now(UTC),
        limits_used={
            "wall_time_ms": result.duration_ms,
            "cpu_time_ms": metrics.cpu_ms,
            "memory_mb": metrics.memory_peak_mb,
            "fuel": float(metrics.fuel),
        },
    )
    return attest_result(attestation, key).decode()


def _incident(error: ToolcellError) -> Incident:
    quiet = isinstance(error, QueueFull | CallCancelled)
    return Incident(
        time_ns=time.time_ns(),
        severity="info" if quiet else "warning",
        type=error.code,
        message=error.message,
        details=error.details,
    )
