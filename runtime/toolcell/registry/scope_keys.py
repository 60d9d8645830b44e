"""Scope keys: what makes an entry in a scope count.

Owns `scopes.toml` (secret, mode 0600) and the keyed hash of a membership. Two keys of a scope are
valid at once, so that entries made under the old one hold while a key is changed. Knows nothing of
the index. Used by `toolcell.registry.membership`.

    [scopes.default]
    current = "…"                         # base64 of 32 bytes
    previous = "…"                        # optional: the key before the last rotation
    rotated_at = 2026-05-01T12:00:00Z     # optional
"""

import base64
import binascii
import hmac
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from toolcell.errors import ConfigError
from toolcell.policy.envelope import canonical_json
from toolcell.toml_text import parse_toml
from toolcell.trust.owned_file import WatchedFile, locked, read_owned, replace_owned

__all__ = ["ScopeFile", "ScopeKeys", "membership_message"]

KEY_BYTES = 32
_HEADER = "# Scope keys: secret. Written by `toolcell scope`.\n"

ScopeName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*\Z", max_length=64)]


class _ScopeRecord(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    current: str
    previous: str | None = None
    rotated_at: Annotated[datetime, Meta(tz=True)] | None = None


class _FileRecord(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    scopes: dict[ScopeName, _ScopeRecord] = {}


class ScopeKeys:
    """The keys of one scope. They show in no representation."""

    __slots__ = ("_current", "_previous", "rotated_at")

    def __init__(
        self, current: bytes, previous: bytes | None = None, rotated_at: datetime | None = None
    ) -> None:
        self._current = current
        self._previous = previous
        self.rotated_at = rotated_at

    @property
    def has_previous(self) -> bool:
        """Whether entries made under the key before the last rotation still count."""
        return self._previous is not None

    def mac(self, message: bytes) -> bytes:
        """HMAC-SHA256 of `message` under the current key."""
        return hmac.digest(self._current, message, "sha256")

    def verifies(self, mac: bytes, message: bytes) -> bool:
        """Whether `mac` was made of `message` under either key. Takes the same time for any."""
        if hmac.compare_digest(self.mac(message), mac):
            return True
        if self._previous is None:
            return False
        return hmac.compare_digest(hmac.digest(self._previous, message, "sha256"), mac)

    def rotated(self) -> "ScopeKeys":
        """A new key; the current one becomes the previous one, and that one ends."""
        now = datetime.now(UTC).replace(microsecond=0)
        return ScopeKeys(secrets.token_bytes(KEY_BYTES), self._current, now)

    def without_previous(self) -> "ScopeKeys":
        """The current key alone."""
        return ScopeKeys(self._current, None, self.rotated_at)

    def to_toml(self) -> str:
        """The lines of the file. Secret."""
        lines = [f'current = "{base64.b64encode(self._current).decode()}"']
        if self._previous is not None:
            lines.append(f'previous = "{base64.b64encode(self._previous).decode()}"')
        if self.rotated_at is not None:
            lines.append(f"rotated_at = {self.rotated_at.isoformat()}")
        return "\n".join(lines)


def membership_message(scope: str, tool_id: str, name: str) -> bytes:
    """What is hashed for an entry. A JSON list: no two entries make the same bytes."""
    return canonical_json(["toolcell.membership/1", scope, tool_id, name])


class ScopeFile:
    """`scopes.toml` as it is now, and its changes. Thread-safe; safe between processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = WatchedFile(path, _parse, secret=True)

    def current(self) -> Mapping[str, ScopeKeys]:
        """The keys of every scope. The same object as long as the file is unchanged."""
        return self._file.current()

    def create(self, scope: str) -> ScopeKeys:
        """Makes `scope`, or returns the keys that it has."""
        with locked(self.path):
            scopes = dict(_parse(read_owned(self.path, secret=True)))
            if scope not in scopes:
                scopes[scope] = ScopeKeys(secrets.token_bytes(KEY_BYTES))
                self._write(scopes)
            return scopes[scope]

    def change(self, scope: str, change: Callable[[ScopeKeys], ScopeKeys]) -> ScopeKeys:
        """Gives `scope`, which exists, what `change` makes of its keys; returns those."""
        with locked(self.path):
            scopes = dict(_parse(read_owned(self.path, secret=True)))
            scopes[scope] = change(scopes[scope])
            self._write(scopes)
            return scopes[scope]

    def rotating(self) -> AbstractContextManager[None]:
        """Held for the whole of a rotation, by one thread of one process at a time."""
        return locked(self.path.with_name(f"{self.path.name}.rotation"))

    def _write(self, scopes: Mapping[str, ScopeKeys]) -> None:
        parts = [f"[scopes.{name}]\n{keys.to_toml()}\n" for name, keys in scopes.items()]
        data = "\n".join((_HEADER, *parts)).encode()
        _parse(data)  # a name from a command line passes the same check as one in the file
        replace_owned(self.path, data)


def _parse(raw: bytes | None) -> Mapping[str, ScopeKeys]:
    try:
        record = msgspec.convert(parse_toml(raw or b""), _FileRecord)
        return {
            name: ScopeKeys(
                _key(scope.current),
                None if scope.previous is None else _key(scope.previous),
                scope.rotated_at,
            )
            for name, scope in record.scopes.items()
        }
    except ValueError as error:  # a ValidationError is one
        raise ConfigError(
            f"the scope keys are not valid: {error}",
            remedy="scope names are lower-case words with dashes; `toolcell scope` writes the file",
        ) from None


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key is not base64 of {KEY_BYTES} bytes")
    return key
