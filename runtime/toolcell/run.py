"""A call and what is known of it while it runs.

Owns the two records that the pipeline fills and the report reads. They decide nothing.
"""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from toolcell.broker import InvocationBroker
from toolcell.errors import ToolcellError
from toolcell.events import EventContext
from toolcell.lane import Outcome
from toolcell.plan import MaskChoice, Plan, PolicyChoice
from toolcell.result import Trust
from toolcell.session import CancelToken

__all__ = ["Call", "Run"]


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


class Run:
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

    def left_ms(self) -> float:
        """Milliseconds left of the caller's own `timeout_ms`, from when the call was asked for."""
        spent_ms = (time.monotonic() - self.call.queued_s) * 1000
        return (self.call.timeout_ms or 0) - spent_ms

    def stage(self, name: str, since: float) -> float:
        """Notes the time of stage `name`, which began at `since`; returns now."""
        now = time.perf_counter()
        self.stages_us[name] = (now - since) * 1e6
        return now
