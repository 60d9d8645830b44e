"""The trust store: publisher names, their keys, and when each key counts.

Owns the model of `trust.toml`, its strict reading, and the answer to "does this key count now?".
Changes nothing (`toolcell.trust.edit` does) and verifies no signature (`toolcell.artifact.dsse`
does). Used by artifacts and the registry.

    [publishers.acme]
    [[publishers.acme.keys]]
    public_key = "…"                       # base64, as `toolcell keygen` prints it, or PEM
    not_before = 2026-01-01T00:00:00Z      # optional, inclusive
    not_after = 2027-01-01T00:00:00Z       # optional, exclusive
    comment = "build server"               # optional
    revoked = { when = 2026-05-01T12:00:00Z, why = "laptop stolen" }   # optional

    [revoked_keys.<key id, in full>]       # of keys that never were in this store
    when = 2026-05-01T12:00:00Z
    why = "named in the publisher's notice"
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from toolcell.errors import ArtifactRejected, ConfigError
from toolcell.toml_text import parse_toml
from toolcell.trust.keys import PublicKey
from toolcell.trust.owned_file import WatchedFile, read_owned

__all__ = [
    "MAX_KEYS_PER_PUBLISHER",
    "KeyRecord",
    "PublisherRecord",
    "Revocation",
    "StoreRecord",
    "TrustFile",
    "TrustStore",
    "TrustedKey",
    "parse_record",
]

MAX_KEYS_PER_PUBLISHER = 64
_OTHER_KEY = "have the publisher sign with a key that is valid, and trust that one"

PublisherName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*\Z", max_length=64)]
KeyId = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Instant = Annotated[datetime, Meta(tz=True)]
"""With a UTC offset: a local time would mean another instant on another machine."""


class Revocation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The end of a key. It counts from the moment that it is written, whatever `when` says.

    `when` and `why` are for people: an artifact carries no time that could be believed, so a
    signature made before the key was lost can't be told from one made after.
    """

    when: Instant
    why: Annotated[str, Meta(min_length=1, max_length=500)]


class KeyRecord(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One `[[publishers.NAME.keys]]`."""

    public_key: Annotated[str, Meta(max_length=1000)]
    not_before: Instant | None = None
    not_after: Instant | None = None
    comment: Annotated[str, Meta(max_length=500)] = ""
    revoked: Revocation | None = None


class PublisherRecord(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One `[publishers.NAME]`."""

    keys: Annotated[tuple[KeyRecord, ...], Meta(max_length=MAX_KEYS_PER_PUBLISHER)] = ()


class StoreRecord(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    publishers: dict[PublisherName, PublisherRecord] = {}
    revoked_keys: dict[KeyId, Revocation] = {}


class TrustedKey(Struct, frozen=True, kw_only=True):
    """A publisher's key, with what limits it."""

    publisher: str
    public: PublicKey
    not_before: datetime | None = None
    not_after: datetime | None = None
    comment: str = ""
    revoked: Revocation | None = None

    @property
    def id(self) -> str:
        """The key id."""
        return self.public.id

    def state(self, now: datetime) -> str:
        """`valid`, `revoked`, `not_yet_valid` or `expired`."""
        if self.revoked is not None:
            return "revoked"
        if self.not_before is not None and now < self.not_before:
            return "not_yet_valid"
        if self.not_after is not None and now >= self.not_after:
            return "expired"
        return "valid"

    def require_valid(self, now: datetime) -> None:
        """:class:`ArtifactRejected` unless the key counts at `now`; `details["reason"]` is why."""
        state = self.state(now)
        if state == "valid":
            return
        name = f"key {self.id[:16]} of publisher `{self.publisher}`"
        if state == "revoked" and self.revoked is not None:
            message = f"{name} was revoked at {self.revoked.when.isoformat()}: {self.revoked.why}"
        elif state == "expired" and self.not_after is not None:
            message = f"{name} expired at {self.not_after.isoformat()}; it is {now.isoformat()}"
        else:
            begin = "" if self.not_before is None else self.not_before.isoformat()
            message = f"{name} is valid from {begin} on; it is {now.isoformat()}"
        raise ArtifactRejected(
            message,
            remedy=_OTHER_KEY,
            details={"reason": state, "key_id": self.id, "publisher": self.publisher},
        )


class TrustStore:
    """What `trust.toml` said at one moment. Immutable."""

    def __init__(
        self, keys: Iterable[TrustedKey] = (), revoked: Mapping[str, Revocation] | None = None
    ) -> None:
        self._keys: dict[str, TrustedKey] = {}
        self._revoked = dict(revoked or {})
        for key in keys:
            other = self._keys.setdefault(key.id, key)
            if other is not key:
                raise ConfigError(
                    f"key {key.id[:16]} is trusted twice, for `{other.publisher}` and "
                    f"`{key.publisher}`",
                    remedy="a key belongs to one publisher: remove one of the two entries",
                )

    @classmethod
    def load(cls, path: Path) -> "TrustStore":
        """Reads `path`; no file is an empty store. :class:`ConfigError` where it is wrong."""
        return cls.parse(read_owned(path))

    @classmethod
    def parse(cls, raw: bytes | None) -> "TrustStore":
        """Reads the TOML text `raw`."""
        return cls.from_record(parse_record(raw))

    @classmethod
    def from_record(cls, record: StoreRecord) -> "TrustStore":
        """The store that `record` describes. Each key is parsed, each id made from its key."""
        return cls(
            (
                _trusted(publisher, key, record.revoked_keys)
                for publisher, entry in record.publishers.items()
                for key in entry.keys
            ),
            record.revoked_keys,
        )

    @property
    def keys(self) -> Mapping[str, TrustedKey]:
        """Every key, by its id."""
        return self._keys

    @property
    def revoked_elsewhere(self) -> Mapping[str, Revocation]:
        """Revocations, by key id, of keys that the store does not hold."""
        return {id_: each for id_, each in self._revoked.items() if id_ not in self._keys}

    def state(self, key_id: str, now: datetime) -> str:
        """The state of that key (see :meth:`TrustedKey.state`), or `unknown_key`."""
        key = self._keys.get(key_id)
        if key is not None:
            return key.state(now)
        return "revoked" if key_id in self._revoked else "unknown_key"

    def find(self, key_id: str) -> TrustedKey:
        """The key `key_id`, whether valid or not. :class:`ArtifactRejected` where unknown, or known
        by its revocation alone."""
        key = self._keys.get(key_id)
        if key is not None:
            return key
        revocation = self._revoked.get(key_id)
        if revocation is None:
            raise ArtifactRejected(
                f"signed with key {key_id[:16]}, which the trust store does not know",
                remedy="if you trust its publisher: `toolcell trust add PUBLISHER PUBLIC_KEY`",
                details={"reason": "unknown_key", "key_id": key_id},
            )
        raise ArtifactRejected(
            f"signed with key {key_id[:16]}, which was revoked at "
            f"{revocation.when.isoformat()}: {revocation.why}",
            remedy=_OTHER_KEY,
            details={"reason": "revoked", "key_id": key_id},
        )

    def verify(self, key_id: str, now: datetime | None = None) -> TrustedKey:
        """The key `key_id`, which counts at `now` (default: the present).

        :class:`ArtifactRejected` with `details["reason"]` `unknown_key`, `revoked`,
        `not_yet_valid` or `expired`.
        """
        key = self.find(key_id)
        key.require_valid(now or datetime.now(UTC))
        return key


class TrustFile:
    """The trust store in a file, as it is now. An unchanged file costs one `stat`. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._file = WatchedFile(path, TrustStore.parse)

    def current(self) -> TrustStore:
        """The store. :class:`ConfigError` where the file is wrong: then nothing is trusted."""
        return self._file.current()


def parse_record(raw: bytes | None) -> StoreRecord:
    """The record in the TOML text `raw`; None is an empty one."""
    try:
        return msgspec.convert(parse_toml(raw or b""), StoreRecord)
    except ValueError as error:  # a ValidationError is one
        raise ConfigError(
            f"the trust store is not valid: {error}",
            remedy="correct trust.toml; `toolcell trust` writes it for you",
        ) from None


def _trusted(
    publisher: str, record: KeyRecord, revoked_keys: Mapping[str, Revocation]
) -> TrustedKey:
    try:
        public = PublicKey.parse(record.public_key)
    except ConfigError as error:
        raise ConfigError(
            f"trust store, publisher `{publisher}`: {error.message}", remedy=error.remedy
        ) from None
    if record.not_before and record.not_after and record.not_before >= record.not_after:
        raise ConfigError(
            f"trust store, publisher `{publisher}`: key {public.id[:16]} has not_before "
            f"{record.not_before.isoformat()} at or after not_after {record.not_after.isoformat()}",
            remedy="a key is valid from not_before until just before not_after",
        )
    return TrustedKey(
        publisher=publisher,
        public=public,
        not_before=record.not_before,
        not_after=record.not_after,
        comment=record.comment,
        revoked=record.revoked or revoked_keys.get(public.id),
    )
