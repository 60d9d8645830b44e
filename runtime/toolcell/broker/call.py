"""One capability call under way: its deadline, its quota and its faults.

Owns the rules that hold for every capability alike, so that a capability's own module has its
subject only. Made by the invocation broker, used by the capabilities, gone when the call returns.
"""

import time
from typing import Any, Protocol

from msgspec import Struct, field

from toolcell.errors import CapabilityFault, LimitExceeded, Status, ToolcellError
from toolcell.session import Session

__all__ = ["BrokerUsage", "Call", "Meter", "Refusal", "SubPolicy", "payload_size", "shown"]

_SHOWN_CHARS = 80


class SubPolicy(Protocol):
    """What every sub-policy has. See `toolcell.policy.envelope`."""

    @property
    def max_requests(self) -> int:
        """Calls per invocation."""

    @property
    def max_bytes(self) -> int:
        """Bytes in and out together, per invocation."""

    @property
    def timeout_ms(self) -> int:
        """Of one call; can only shorten the run's own deadline."""


class BrokerUsage(Struct, kw_only=True):
    """What an invocation did through the broker, for the result's metrics.

    `bytes_read` went to the guest and `bytes_written` came from it. `network_requests` counts
    every redirect hop. `by_capability` counts calls, the refused ones included.
    """

    calls: int = 0
    refused: int = 0
    network_requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    log_lines_dropped: int = 0
    log_bytes_dropped: int = 0
    by_capability: dict[str, int] = field(default_factory=dict)


class Refusal(Exception):
    """Why a capability won't serve a call, before it is put in a fault's form.

    `rule` is a short machine-readable name of the rule that refused (`domain`, `address.loopback`).
    The message goes to the guest: it holds no address that was resolved and no path of the host.
    """

    def __init__(
        self,
        rule: str,
        message: str,
        *,
        status: int = Status.NOT_GRANTED,
        remedy: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.status = status
        self.remedy = remedy
        self.details = details or {}


class Meter:
    """Quota of one interface (`kv`, `http`, …) in one invocation; its capabilities share it."""

    __slots__ = ("bytes", "policy", "requests")

    def __init__(self, policy: SubPolicy) -> None:
        self.policy = policy
        self.requests = 0
        self.bytes = 0

    @property
    def bytes_left(self) -> int:
        """Bytes that may still pass."""
        return max(0, self.policy.max_bytes - self.bytes)


class Call:
    """One call. `at_s` is its deadline on the monotonic clock: the sooner of its own and the run's.

    `target` is the redacted word on what it was about that the audit keeps; a capability sets it.
    """

    __slots__ = ("at_s", "capability", "meter", "session", "size", "target", "usage")

    def __init__(
        self, capability: str, session: Session, meter: Meter, usage: BrokerUsage, now_s: float
    ) -> None:
        self.capability = capability
        self.session = session
        self.meter = meter
        self.usage = usage
        self.at_s = min(session.deadline.at_s, now_s + meter.policy.timeout_ms / 1000)
        self.size = 0
        self.target = ""

    # --- deadline ---

    def shorten(self, timeout_ms: int) -> None:
        """Brings the deadline forward to `timeout_ms` from now; never puts it off."""
        self.at_s = min(self.at_s, time.monotonic() + timeout_ms / 1000)

    def remaining_s(self) -> float:
        """Seconds left, more than 0. Raises where there are none, or the run is to end."""
        reason = self.session.cancel.error
        if reason is not None:
            raise reason
        left = self.at_s - time.monotonic()
        if left <= 0:
            raise self.timed_out()
        return left

    def timed_out(self) -> ToolcellError:
        """What to raise at the deadline: the run's own end, or a fault the guest may handle."""
        reason = self.session.stop_reason()
        if reason is not None:
            return reason
        timeout_ms = self.meter.policy.timeout_ms
        return self.fault(
            f"not done by its deadline (the policy gives it at most {timeout_ms} ms)",
            Status.DEADLINE,
            remedy="raise its `timeout_ms` in the policy, or ask for less",
            rule="timeout_ms",
        )

    def wait(self, seconds: float) -> None:
        """Waits for `seconds`, but not past the deadline; raises where the run is to end."""
        self.session.cancel.wait(min(seconds, self.remaining_s()))
        self.remaining_s()

    # --- quota ---

    def admit(self) -> None:
        """Counts the call against `max_requests` (429)."""
        meter = self.meter
        meter.requests += 1
        if meter.requests > meter.policy.max_requests:
            raise self._over_quota("max_requests", meter.policy.max_requests, meter.requests)

    def charge(self, size: int) -> None:
        """Counts `size` bytes against `max_bytes` (429).

        More than the whole quota in one go is 413: to ask again, in another invocation, is no use.
        """
        meter = self.meter
        if size > meter.bytes_left:
            limit = meter.policy.max_bytes
            status = Status.TOO_LARGE if size > limit else Status.QUOTA
            raise self._over_quota("max_bytes", limit, meter.bytes + size, status)
        meter.bytes += size
        self.size += size

    def _over_quota(
        self, limit: str, allowed: int, used: int, status: int = Status.QUOTA
    ) -> CapabilityFault:
        name = self.capability.partition(".")[0]
        return self.fault(
            f"quota exceeded: `{limit}` of `{name}` is {allowed} per invocation, this makes {used}",
            status,
            remedy=f"raise `capabilities.{name}.{limit}` in the policy, or do less per call",
            rule=limit,
            allowed=allowed,
            used=used,
        )

    # --- faults ---

    def fault(
        self, message: str, status: int, *, remedy: str = "", rule: str = "", **details: Any
    ) -> CapabilityFault:
        """A fault of this call. `rule` names what refused it, for machines."""
        if rule:
            details["rule"] = rule
        return CapabilityFault(
            self.capability, message, status=status, remedy=remedy, details=details
        )

    def refuse(self, refusal: Refusal) -> CapabilityFault:
        """`refusal` as a fault of this call."""
        return self.fault(
            refusal.message,
            refusal.status,
            remedy=refusal.remedy,
            rule=refusal.rule,
            **refusal.details,
        )

    def message_too_large(self, size: int) -> LimitExceeded | CapabilityFault:
        """The fault of a message over `max_message_bytes`."""
        allowed = self.session.envelope.max_message_bytes
        return self.fault(
            f"a message of {size} bytes is over `max_message_bytes`, which is {allowed}",
            Status.TOO_LARGE,
            remedy="raise `max_message_bytes` in the policy, or send it in parts",
            rule="max_message_bytes",
            allowed=allowed,
            used=size,
        )


def payload_size(value: Any) -> int:
    """Bytes of text and data in `value` as they would cross a lane: UTF-8, keys not counted.

    Raises :class:`UnicodeEncodeError` for text with lone surrogates, which is not UTF-8.
    """
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(payload_size, value))
    if isinstance(value, dict):
        return sum(payload_size(key) + payload_size(entry) for key, entry in value.items())
    if isinstance(value, Struct):
        return sum(payload_size(getattr(value, name)) for name in value.__struct_fields__)
    return 0 if value is None else 8


def shown(text: str) -> str:
    """Text from a guest or a server as it may stand in a message: short, ASCII, no controls."""
    clean = text[:_SHOWN_CHARS].encode("ascii", "backslashreplace").decode()
    clean = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in clean)
    return clean if len(text) <= _SHOWN_CHARS else clean + "…"
