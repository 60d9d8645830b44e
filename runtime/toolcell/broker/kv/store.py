"""What a key-value store is to the broker, and the one that lives in memory.

Owns the caps that hold in every store, so that a tool meets the same ones in a test, in a run and
in a namespace. Keys and values are text; sizes are in bytes of UTF-8.
"""

from typing import Protocol

from msgspec import Struct

from toolcell.broker.call import Call, Refusal, payload_size
from toolcell.errors import Status
from toolcell.policy.envelope import KvPolicy

__all__ = ["MAX_KEY_BYTES", "Caps", "MemoryStore", "Store", "Totals", "check_key"]

MAX_KEY_BYTES = 512


class Store(Protocol):
    """A store. Every method may raise a :class:`Refusal`, or what the call raises at its end."""

    def get(self, call: Call, key: str) -> str | None:
        """The value of `key`, or None."""

    def set(self, call: Call, key: str, value: str) -> None:
        """Sets `key`, whole or not at all."""

    def delete(self, call: Call, key: str) -> bool:
        """Removes `key`; whether it was there."""

    def keys(self, call: Call, prefix: str) -> list[str]:
        """The keys that start with `prefix`, sorted by code point."""

    def close(self) -> None:
        """Frees the store. Idempotent."""


class Totals(Struct):
    """What is in a store: number of keys, bytes of keys and values."""

    keys: int = 0
    bytes: int = 0


def check_key(key: str) -> int:
    """The size of `key` in bytes. A :class:`Refusal` (400, 413) where it is empty or too long."""
    size = payload_size(key)
    if size == 0:
        raise Refusal("key", "the key is empty", status=Status.MALFORMED)
    if size > MAX_KEY_BYTES:
        raise Refusal(
            "key",
            f"a key of {size} bytes; the limit is {MAX_KEY_BYTES}",
            status=Status.TOO_LARGE,
        )
    return size


class Caps:
    """The caps of a `kv` policy."""

    def __init__(self, policy: KvPolicy) -> None:
        self._policy = policy

    def check_value(self, value: str) -> int:
        """The size of `value` in bytes, within `max_value_bytes`."""
        size = payload_size(value)
        if size > self._policy.max_value_bytes:
            raise _over("max_value_bytes", self._policy.max_value_bytes, size, Status.TOO_LARGE)
        return size

    def check_growth(self, totals: Totals, added_keys: int, added_bytes: int) -> None:
        """Raises where a change would take the store over a cap. One that shrinks it may pass."""
        policy = self._policy
        keys, size = totals.keys + added_keys, totals.bytes + added_bytes
        if added_keys > 0 and keys > policy.max_keys:
            raise _over("max_keys", policy.max_keys, keys, Status.QUOTA)
        if added_bytes > 0 and size > policy.max_total_bytes:
            raise _over("max_total_bytes", policy.max_total_bytes, size, Status.TOO_LARGE)


def _over(limit: str, allowed: int, used: int, status: int) -> Refusal:
    return Refusal(
        limit,
        f"`{limit}` is {allowed}, this makes {used}",
        status=status,
        remedy=f"raise `capabilities.kv.{limit}` in the policy, or keep less",
        details={"allowed": allowed, "used": used},
    )


class MemoryStore:
    """The store of one run."""

    def __init__(self, policy: KvPolicy) -> None:
        self._caps = Caps(policy)
        self._values: dict[str, str] = {}
        self._totals = Totals()

    def get(self, _call: Call, key: str) -> str | None:
        """The value of `key`, or None."""
        return self._values.get(key)

    def set(self, _call: Call, key: str, value: str) -> None:
        """Sets `key`, within the caps."""
        size = self._caps.check_value(value)
        old = self._values.get(key)
        added_keys = 1 if old is None else 0
        added = size + payload_size(key) if old is None else size - payload_size(old)
        self._caps.check_growth(self._totals, added_keys, added)
        self._values[key] = value
        self._totals.keys += added_keys
        self._totals.bytes += added

    def delete(self, _call: Call, key: str) -> bool:
        """Removes `key`; whether it was there."""
        old = self._values.pop(key, None)
        if old is None:
            return False
        self._totals.keys -= 1
        self._totals.bytes -= payload_size(key) + payload_size(old)
        return True

    def keys(self, _call: Call, prefix: str) -> list[str]:
        """The keys that start with `prefix`, sorted."""
        return sorted(key for key in self._values if key.startswith(prefix))

    def close(self) -> None:
        """Forgets everything."""
        self._values.clear()
        self._totals = Totals()
