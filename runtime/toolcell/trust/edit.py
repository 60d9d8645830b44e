"""Changes to the trust store: add, revoke, remove.

Owns the writing of `trust.toml`, one change at a time under a lock, each replacing the file in one
step. Comments that were written into the file by hand are not kept. Used by `toolcell trust` and
`toolcell keygen --trust`.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

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
"""Digits that a key id must be given by, at least."""
_WHOLE_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)


class _Place(NamedTuple):
    """A key in the record. `publisher` empty: known by its revocation alone."""

    key_id: str
    publisher: str
    place: int
    revoked: Revocation | None


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
        for known in _places(record):
            if known.key_id == public.id:
                raise _known_already(known)
        added = KeyRecord(
            public_key=str(public), not_before=not_before, not_after=not_after, comment=comment
        )
        keys = record.publishers.get(publisher, PublisherRecord()).keys
        _write(path, _with_keys(record, publisher, (*keys, added)))


def revoke_key(path: Path, key_prefix: str, why: str, when: datetime | None = None) -> str:
    """Revokes the key whose id begins with `key_prefix`; returns its full id.

    It counts at once, in every process, for whatever the key ever signed. A key that is not in
    the store is revoked by its full id: then nobody adds it later.
    """
    revocation = Revocation(when=when or datetime.now(UTC).replace(microsecond=0), why=why)
    with locked(path):
        record = parse_record(read_owned(path))
        key_id = key_prefix.lower()
        if _WHOLE_ID.fullmatch(key_id) and key_id not in {each.key_id for each in _places(record)}:
            revoked_keys = {**record.revoked_keys, key_id: revocation}
            _write(path, msgspec.structs.replace(record, revoked_keys=revoked_keys))
            return key_id
        found = _locate(record, key_prefix)
        if found.revoked is not None:
            raise ConfigError(
                f"{_name(found)} is revoked already: {found.revoked.why}",
                remedy="nothing is left to do: whatever it signed is refused",
            )
        keys = list(record.publishers[found.publisher].keys)
        keys[found.place] = msgspec.structs.replace(keys[found.place], revoked=revocation)
        _write(path, _with_keys(record, found.publisher, tuple(keys)))
    return found.key_id


def remove_key(path: Path, key_prefix: str, *, force: bool = False) -> str:
    """Forgets the key whose id begins with `key_prefix`; returns its full id.

    What it signed is refused from now on, as signed by an unknown key. :class:`ConfigError` for a
    revoked one unless `force`: without its revocation, anybody may be talked into trusting it.
    """
    with locked(path):
        record = parse_record(read_owned(path))
        found = _locate(record, key_prefix)
        if found.revoked is not None and not force:
            raise ConfigError(
                f"{_name(found)} is revoked ({found.revoked.why}); to remove it forgets that",
                remedy="leave it: what it signed is refused. Only where the revocation was a "
                f"mistake: `toolcell trust remove --force {found.key_id[:16]}`",
            )
        revoked_keys = dict(record.revoked_keys)
        revoked_keys.pop(found.key_id, None)
        record = msgspec.structs.replace(record, revoked_keys=revoked_keys)
        if found.publisher:
            keys = record.publishers[found.publisher].keys
            left = keys[: found.place] + keys[found.place + 1 :]
            record = _with_keys(record, found.publisher, left)
        _write(path, record)
    return found.key_id


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
    for key_id, each in record.revoked_keys.items():
        yield f"[revoked_keys.{key_id}]"
        yield f"when = {each.when.isoformat()}"
        yield f"why = {toml_text(each.why)}"


def toml_text(text: str) -> str:
    """`text` as a TOML basic string. JSON's escapes are TOML's, but for DEL (TOML 1.0, String)."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _with_keys(record: StoreRecord, publisher: str, keys: tuple[KeyRecord, ...]) -> StoreRecord:
    publishers = dict(record.publishers)
    publishers[publisher] = PublisherRecord(keys=keys)
    if not keys:
        del publishers[publisher]
    return msgspec.structs.replace(record, publishers=publishers)


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


def _places(record: StoreRecord) -> list[_Place]:
    """Every key that the record knows, once."""
    places = {}
    for publisher, entry in record.publishers.items():
        for index, key in enumerate(entry.keys):
            key_id = PublicKey.parse(key.public_key).id
            revoked = key.revoked or record.revoked_keys.get(key_id)
            places[key_id] = _Place(key_id, publisher, index, revoked)
    for key_id, revocation in record.revoked_keys.items():
        places.setdefault(key_id, _Place(key_id, "", 0, revocation))
    return list(places.values())


def _locate(record: StoreRecord, key_prefix: str) -> _Place:
    """The one key whose id begins with `key_prefix`."""
    if len(key_prefix) < _MIN_PREFIX:
        raise ConfigError(
            f"{key_prefix!a} is too short for a key id",
            remedy=f"give at least {_MIN_PREFIX} digits of it; see `toolcell trust list`",
        )
    found = [each for each in _places(record) if each.key_id.startswith(key_prefix.lower())]
    if len(found) != 1:
        what = "no key" if not found else f"{len(found)} keys"
        raise ConfigError(
            f"{what} in the trust store with an id that begins with {key_prefix[:64]!a}",
            remedy="see `toolcell trust list`; a key that is not in it is revoked by its full id, "
            "64 digits",
        )
    return found[0]


def _name(place: _Place) -> str:
    owner = f" of `{place.publisher}`" if place.publisher else ""
    return f"key {place.key_id[:16]}{owner}"


def _known_already(known: _Place) -> ConfigError:
    if known.revoked is not None:
        owner = f", as a revoked key of `{known.publisher}`" if known.publisher else ", as revoked"
        return ConfigError(
            f"key {known.key_id[:16]} is in the trust store{owner}: {known.revoked.why}",
            remedy="have its publisher make a new key, and trust that one",
        )
    return ConfigError(
        f"key {known.key_id[:16]} is in the trust store, as a key of `{known.publisher}`",
        remedy=f"`toolcell trust remove {known.key_id[:16]}` first, if it is to change",
    )
