"""Session: what a run carries with it, the same in every lane.

Owns the deadline, the cancel token and the one place where a run asks "may I go on?". A rule that
is written here holds in both lanes. Made by the runtime for one call; used by the lane and the
broker; never seen by a guest.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from toolcell.errors import CallCancelled, LimitExceeded, ToolcellError
from toolcell.events import Event, EventContext
from toolcell.policy.envelope import PolicyEnvelope

__all__ = ["Broker", "CancelToken", "Deadline", "Emitter", "Session", "ToolRef"]


class ToolRef(Struct, frozen=True):
    """Which tool: id (UUID), name, version, artifact digest (`sha256:<hex>`)."""

    id: str
    name: str
    version: str
    digest: str


class CancelToken:
    """Ends a run from outside: `kill(reason)`, asyncio cancellation, a budget, the monitor.

    Set once; the first reason stays. Thread-safe. Callbacks run in the cancelling thread and must
    not block: they exist to shut a socket or wake a waiter.
    """

    __slots__ = ("_callbacks", "_error", "_event", "_lock")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._error: ToolcellError | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def error(self) -> ToolcellError | None:
        """Why the run is to end, or None while it may go on."""
        return self._error

    def cancel(self, error: ToolcellError | None = None) -> bool:
        """Asks the run to end with `error`. False where it had been asked before."""
        with self._lock:
            if self._error is not None:
                return False
            self._error = error or CallCancelled("the caller cancelled the call")
            callbacks, self._callbacks = self._callbacks, []
        self._event.set()
        for callback in callbacks:
            callback()
        return True

    def wait(self, timeout_s: float) -> bool:
        """Waits until cancelled or `timeout_s` is over. True where cancelled."""
        return self._event.wait(timeout_s)

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Runs `callback` on cancellation, at once where it already happened.

        Returns a function that takes the registration back.
        """
        with self._lock:
            if self._error is None:
                self._callbacks.append(callback)
                return lambda: self._forget(callback)
        callback()
        return lambda: None

    def _forget(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


class Deadline:
    """An instant on the monotonic clock, and the limit that it came from.

    `limit` names it: `wall_time_ms` of the policy, or the caller's own `timeout_ms`, which counts
    from `since_s`, when the call was asked for.
    """

    __slots__ = ("at_s", "limit", "limit_ms", "started_s")

    def __init__(
        self, limit_ms: int, *, limit: str = "wall_time_ms", since_s: float | None = None
    ) -> None:
        self.started_s = time.monotonic() if since_s is None else since_s
        self.limit = limit
        self.limit_ms = limit_ms
        self.at_s = self.started_s + limit_ms / 1000

    def remaining_s(self) -> float:
        """Seconds left, 0.0 where it has passed."""
        return max(0.0, self.at_s - time.monotonic())

    def elapsed_ms(self) -> float:
        """Milliseconds since the call started."""
        return (time.monotonic() - self.started_s) * 1000

    def passed(self) -> bool:
        """Whether the deadline is behind us."""
        return time.monotonic() >= self.at_s


class Broker(Protocol):
    """The brokered capabilities of one invocation. Deny by default; see `toolcell.broker`."""

    def call(self, capability: str, /, **params: Any) -> Any:
        """Calls `capability`. Raises :class:`CapabilityFault`, or what ended the run."""

    def close(self) -> None:
        """Frees the invocation's store, scratch and connections. Idempotent."""


class Emitter(Protocol):
    """Where events go. See `toolcell.telemetry`."""

    def emit(self, event: Event) -> None:
        """Hands `event` to every sink. Raises where one that must persist can't be written."""


class Session:
    """One run's authority, ceilings and links to the outside.

    `seed` (32 bytes) feeds the generator of a deterministic run; it depends on artifact, method
    and input only. `broker` is set by the runtime before the lane sees the session.
    """

    __slots__ = (
        "broker",
        "cancel",
        "context",
        "deadline",
        "emitter",
        "envelope",
        "policy_digest",
        "seed",
        "tool",
    )

    broker: Broker

    def __init__(
        self,
        *,
        tool: ToolRef,
        envelope: PolicyEnvelope,
        policy_digest: str,
        context: EventContext,
        emitter: Emitter,
        deadline: Deadline,
        cancel: CancelToken,
        seed: bytes,
    ) -> None:
        self.tool = tool
        self.envelope = envelope
        self.policy_digest = policy_digest
        self.context = context
        self.emitter = emitter
        self.deadline = deadline
        self.cancel = cancel
        self.seed = seed

    @property
    def correlation_id(self) -> str:
        """The id that ties the result, the events and the log lines of this call together."""
        return self.context.correlation_id

    def stop_reason(self, cpu_ms: float | None = None) -> ToolcellError | None:
        """Why the run must end now, or None. Cheap: lanes ask from every callback.

        Looks at the cancel token, the wall deadline and, where `cpu_ms` is given, the CPU time
        used so far.
        """
        if self.cancel.error is not None:
            return self.cancel.error
        if self.deadline.passed():
            return self.wall_time_exceeded()
        if cpu_ms is not None and cpu_ms > self.envelope.cpu_time_ms:
            return LimitExceeded("cpu_time_ms", allowed=self.envelope.cpu_time_ms, used=cpu_ms)
        return None

    def wall_time_exceeded(self) -> LimitExceeded:
        """The error of a run that has reached its wall deadline."""
        deadline = self.deadline
        used = round(deadline.elapsed_ms(), 1)
        return LimitExceeded(deadline.limit, allowed=deadline.limit_ms, used=used)

    def check(self, cpu_ms: float | None = None) -> None:
        """Raises :meth:`stop_reason` where there is one."""
        reason = self.stop_reason(cpu_ms)
        if reason is not None:
            raise reason

    def wait(self, seconds: float) -> None:
        """Blocks for `seconds`, but never past the deadline or a cancellation: raises those.

        Every host call that blocks for time blocks here, so that a guest asleep in the host ends
        like one that spins.
        """
        left = self.deadline.remaining_s()
        self.cancel.wait(min(seconds, left))
        self.check()

    def emit(self, kind: type[Event], **fields: Any) -> None:
        """Emits an event of type `kind` with this call's context."""
        self.emitter.emit(kind.of(self.context, **fields))
