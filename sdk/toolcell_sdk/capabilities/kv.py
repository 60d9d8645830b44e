"""`kv`: text by key. One store per invocation, or a persistent namespace that the policy grants.

Capabilities: `kv.get`, `kv.set`, `kv.delete`, `kv.list`.
"""

import builtins

from toolcell_sdk import transport
from toolcell_sdk.capabilities.arguments import text

__all__ = ["delete", "get", "list", "set"]


def get(key: str, default: str | None = None) -> str | None:
    """The value of `key`, or `default` where there is none."""
    value: str | None = transport.call("kv.get", {"key": text("kv.get", "key", key)})
    return default if value is None else value


def set(key: str, value: str) -> None:  # noqa: A001 - the capability's name
    """Stores `value`, replacing what was there. Raises `CapabilityError` 413 over the caps."""
    arguments = {"key": text("kv.set", "key", key), "value": text("kv.set", "value", value)}
    transport.call("kv.set", arguments)


def delete(key: str) -> bool:
    """Removes `key`. True where it was there."""
    was_there: bool = transport.call("kv.delete", {"key": text("kv.delete", "key", key)})
    return was_there


def list(prefix: str = "") -> builtins.list[str]:  # noqa: A001 - the capability's name
    """The keys that start with `prefix`, sorted."""
    keys: builtins.list[str] = transport.call(
        "kv.list", {"prefix": text("kv.list", "prefix", prefix)}
    )
    return keys
