"""Changes to the trust store: add, revoke, remove.

Owns the writing of `trust.toml`, one change at a time under a lock, each replacing the file in one
step. Comments that were written into the file by hand are not kept. Used by `toolcell trust` and
`toolcell keygen --trust`.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from toolcell.errors import ConfigError, InternalError
from toolcell.trust.keys import PublicKey
from toolcell.trust.owned_file import locked, read_owned, replace_owned
from toolcell.trust.store import (
    KeyRecord,
    PublisherRecord,
    Revocation,
    StoreRecord,
    TrustStore,
    parse_record,
)

__all__ = ["add_key", "remove_key", "revoke_key", "to_toml", "toml_text"]

_HEADER = "# Whose signatures count. Written by `toolcell trust`, which keeps no comments.\n"
_MIN_PREFIX = 8


def add_key(
    path: Path,
    publisher: str,
    public: PublicKey,
    *,
    not_before: datetime | None = None,
    not_after: datetime | None = None,
    comment: str = "",
) -> None:
    """Trusts `public` as a key of `publisher`.

    :class:`ConfigError` where the key is in the store already, for whomever: a revoked key is
    not brought back by adding it again.
    """
    with locked(path):
        record = parse_record(read_owned(path))
        known = TrustStore.from_record(record).keys.get(public.id)
        if known is not None:
            revoked = "revoked " if known.revoked else ""
            raise ConfigError(
                f"key {public.id[:16]} is in the trust store, as a {revoked}key of "
                f"`{known.publisher}`",
                remedy=f"`toolcell trust remove {public.id[:16]}` first, if it is to change",
            )
        added = KeyRecord(
            public_key=str(public), not_before=not_before, not_after=not_after, comment=comment
        )
        keys = record.publishers.get(publisher, PublisherRecord()).keys
        _write(path, _with_keys(record, publisher, (*keys, added)))


def revoke_key(path: Path, key_prefix: str, why: str, when: datetime | None = None) -> str:
    """Revokes the key whose id begins with `key_prefix`; returns its full id.

    It counts at once, in every process, for whatever the key ever signed.
    """
    revocation = Revocation(when=when or datetime.now(UTC).replace(microsecond=0), why=why)
    with locked(path):
        record = parse_record(read_owned(path))
        publisher, index, key_id = _locate(record, key_prefix)
        keys = list(record.publishers[publisher].keys)
        if keys[index].revoked is not None:
            raise ConfigError(f"key {key_id[:16]} of `{publisher}` is revoked already")
        keys[index] = msgspec.structs.replace(keys[index], revoked=revocation)
        _write(path, _with_keys(record, publisher, tuple(keys)))
    return key_id


def remove_key(path: Path, key_prefix: str) -> str:
    """Forgets the key whose id begins with `key_prefix`; returns its full id.

    What it signed is refused from now on, as signed by an unknown key.
    """
    with locked(path):
        record = parse_record(read_owned(path))
        publisher, index, key_id = _locate(record, key_prefix)
        keys = record.publishers[publisher].keys
        _write(path, _with_keys(record, publisher, keys[:index] + keys[index + 1 :]))
    return key_id


def to_toml(record: StoreRecord) -> str:
    """`record` as TOML. Reading it gives an equal record."""
    return "\n".join((_HEADER, *_lines(record)))


def _lines(record: StoreRecord) -> Iterator[str]:
    for publisher, entry in record.publishers.items():
        yield f"[publishers.{toml_text(publisher)}]"
        for key in entry.keys:
            yield f"[[publishers.{toml_text(publisher)}.keys]]"
            yield f"public_key = {toml_text(key.public_key)}"
            if key.not_before is not None:
                yield f"not_before = {key.not_before.isoformat()}"
            if key.not_after is not None:
                yield f"not_after = {key.not_after.isoformat()}"
            if key.comment:
                yield f"comment = {toml_text(key.comment)}"
            if key.revoked is not None:
                when, why = key.revoked.when.isoformat(), toml_text(key.revoked.why)
                yield f"revoked = {{ when = {when}, why = {why} }}"
        yield ""


def toml_text(text: str) -> str:
    """`text` as a TOML basic string. JSON's escapes are TOML's, but for DEL (TOML 1.0, String)."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _with_keys(record: StoreRecord, publisher: str, keys: tuple[KeyRecord, ...]) -> StoreRecord:
    publishers = dict(record.publishers)
    publishers[publisher] = PublisherRecord(keys=keys)
    if not keys:
        del publishers[publisher]
    return StoreRecord(publishers=publishers)


def _write(path: Path, record: StoreRecord) -> None:
    try:
        data = to_toml(record).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            "a comment or reason is not valid UTF-8", remedy="write it in plain text"
        ) from None
    # What was given on a command line passes the same checks as what is read from a file.
    reread = parse_record(data)
    TrustStore.from_record(reread)
    if reread != record:
        raise InternalError("the trust store would read back as something else; it is unchanged")
    replace_owned(path, data)


def _locate(record: StoreRecord, key_prefix: str) -> tuple[str, int, str]:
    """Publisher, place and id of the one key whose id begins with `key_prefix`."""
    if len(key_prefix) < _MIN_PREFIX:
        raise ConfigError(
            f"`{key_prefix}` is too short for a key id",
            remedy=f"give at least {_MIN_PREFIX} digits of it; see `toolcell trust list`",
        )
    found = [
        (publisher, index, key_id)
        for publisher, entry in record.publishers.items()
        for index, key in enumerate(entry.keys)
        if (key_id := PublicKey.parse(key.public_key).id).startswith(key_prefix.lower())
    ]
    if len(found) != 1:
        what = "no key" if not found else f"{len(found)} keys"
        raise ConfigError(
            f"{what} in the trust store with an id that begins with `{key_prefix}`",
            remedy="see `toolcell trust list`",
        )
    return found[0]
