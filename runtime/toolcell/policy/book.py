"""The policy book: the long-lived, thread-safe way to the effective envelope of a call.

Owns the memory of what was composed before, so that a call costs a look-up, and the moments at
which files are looked at again. It decides nothing: classes come from `toolcell.policy.library`,
composition from `toolcell.policy.compose`. Called by the runtime once per call.

**Freshness.** At most once in `check_every_ms`, a call looks at the stamps of the policy files
first (no reading). If one changed, everything is loaded again before that call goes on; a file
that is now wrong is a :class:`ConfigError` for every call until it is corrected, because going on
with the old text could mean going on with authority that the operator has just taken away.
"""

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolcell.artifact.manifest import Manifest
from toolcell.artifact.strict_json import finite_float
from toolcell.errors import ConfigError, PolicyDenied
from toolcell.home import Home, owner_only_key
from toolcell.policy.classes import Catalog, nearest
from toolcell.policy.compose import Denial, Grant, Mask, effective
from toolcell.policy.document import parse_mask
from toolcell.policy.envelope import PolicyEnvelope, canonical_json, policy_digest
from toolcell.policy.library import Library, is_file_name

__all__ = ["MaskChoice", "PolicyBook", "PolicyChoice", "Ruling"]

PolicyChoice = str | Path | PolicyEnvelope | None
"""A class name, a file, an envelope of the embedding program, or None: the manifest's class."""

MaskChoice = str | Mapping[str, Any]
"""Names of masks or classes (several joined by `,` or `|`), or a partial envelope."""

MAX_MASKS = 16
"""Masks of one call, names counted one by one."""
MAX_MASK_BYTES = 64 * 1024
"""A partial envelope that arrives with a call, as JSON."""
_MASK_DECODER = msgspec.json.Decoder(dict, float_hook=finite_float)


class Ruling(Struct, frozen=True, kw_only=True):
    """What a call may use, with the digest that goes on its events and its result.

    `policy` is the name of the class, `origin` the file that it was written in.
    """

    envelope: PolicyEnvelope
    digest: str
    denied: tuple[Denial, ...]
    policy: str
    origin: str


class PolicyBook:
    """Rulings by artifact, policy and masks. Thread-safe.

    `home` None: the shipped classes only, and a digest key that lives as long as the book.
    `check_every_ms` (default 1000, 0 is every call) bounds how long a change to a file can go
    unnoticed; :meth:`reload` notices at once. `max_rulings` bounds the memory; the oldest go first.
    """

    def __init__(
        self, home: Home | None = None, *, check_every_ms: int = 1000, max_rulings: int = 4096
    ) -> None:
        self._folder = home.policies if home is not None else None
        self._key = owner_only_key(home.policy_key) if home is not None else _passing_key()
        self._check_every_s = check_every_ms / 1000
        self._max_rulings = max_rulings
        self._lock = threading.Lock()
        self._state: tuple[Library | None, dict[Any, Ruling]] = (Library(self._folder), {})
        self._next_check_s = time.monotonic() + self._check_every_s

    def ruling(
        self,
        manifest: Manifest,
        artifact_digest: str,
        policy: PolicyChoice = None,
        masks: Sequence[MaskChoice] = (),
    ) -> Ruling:
        """What a call of this artifact may use under `policy`, narrowed by `masks`.

        `policy` None takes the class that the manifest names, where an operator said that a
        manifest may choose it (the shipped ones are such), else :class:`PolicyDenied`.
        :class:`ConfigError` for a policy or mask that does not exist or is wrong.
        """
        if time.monotonic() >= self._next_check_s:
            self._look_at_files()
        library, rulings = self._state
        policy = _absolute(policy)
        key = (artifact_digest, policy, _mask_key(masks) if masks else ())
        known = rulings.get(key)
        if known is not None:
            return known
        if library is None:
            library, rulings = self._load()
        made = self._rule(library, manifest, policy, key[2])
        with self._lock:
            while len(rulings) >= self._max_rulings:
                del rulings[next(iter(rulings))]
            rulings[key] = made
        return made

    def _rule(
        self, library: Library, manifest: Manifest, policy: PolicyChoice, masks: tuple[Any, ...]
    ) -> Ruling:
        if isinstance(policy, PolicyEnvelope):
            grant = Grant(name="(given)", envelope=_checked(policy), origin="the host program")
            catalog = library.catalog
        elif policy is None:
            grant, catalog = _chosen_by(manifest, library.catalog), library.catalog
        else:
            grant, catalog = library.grant(policy), library.catalog_of(policy)
        found = effective(manifest, grant, _find_masks(masks, catalog))
        return Ruling(
            envelope=found.envelope,
            digest=self.digest(found.envelope),
            denied=found.denied,
            policy=grant.name,
            origin=grant.origin,
        )

    def grant(self, policy: str | Path) -> Grant:
        """The policy of that name or file, as granted. :class:`ConfigError` if there is none."""
        return self._library().grant(policy)

    def masks(self, masks: Sequence[MaskChoice], policy: PolicyChoice = None) -> list[Grant | Mask]:
        """What `masks` name, looked up as for a call under `policy`."""
        library = self._library()
        named = None if isinstance(policy, PolicyEnvelope) else policy
        return _find_masks(_mask_key(masks), library.catalog_of(named))

    def chosen_by(self, manifest: Manifest) -> Grant:
        """The class that `manifest` gets where nobody names a policy. May be refused."""
        return _chosen_by(manifest, self._library().catalog)

    def digest(self, envelope: PolicyEnvelope) -> str:
        """The policy digest of `envelope` under this installation's key."""
        return policy_digest(envelope, self._key)

    def catalog(self) -> Catalog:
        """Every shipped class and mask and every one of the home's files."""
        return self._library().catalog

    def reload(self) -> bool:
        """Looks at every file now. True where something had changed and was loaded again."""
        with self._lock:
            return self._refresh_locked()

    def _library(self) -> Library:
        if time.monotonic() >= self._next_check_s:
            self._look_at_files()
        return self._state[0] or self._load()[0]

    def _look_at_files(self) -> None:
        """The check that is due. One thread makes it; the others wait for its outcome."""
        with self._lock:
            if time.monotonic() < self._next_check_s:
                return
            self._refresh_locked()
            self._next_check_s = time.monotonic() + self._check_every_s

    def _refresh_locked(self) -> bool:
        """Loads everything again where a file changed. Whatever fails leaves nothing in force."""
        library = self._state[0]
        try:
            if library is not None and not library.changed():
                return False
        except ConfigError:
            self._state = (None, {})
            raise
        self._load_locked()
        return True

    def _load(self) -> tuple[Library, dict[Any, Ruling]]:
        with self._lock:
            return self._load_locked()

    def _load_locked(self) -> tuple[Library, dict[Any, Ruling]]:
        self._state = (None, {})
        state = (Library(self._folder), dict[Any, Ruling]())
        self._state = state
        return state


def _absolute(policy: PolicyChoice) -> PolicyChoice:
    """`policy`, a file by its full path: the working folder may change between two calls."""
    if isinstance(policy, Path) or (isinstance(policy, str) and is_file_name(policy)):
        return Path(policy).absolute()
    return policy


def _passing_key() -> bytes:
    return secrets.token_bytes(32)


def _checked(envelope: PolicyEnvelope) -> PolicyEnvelope:
    """`envelope`, which Python code built, held to the same types and ranges as a file."""
    try:
        return msgspec.convert(msgspec.to_builtins(envelope), PolicyEnvelope)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the given envelope is not valid: {error}", remedy="see docs/policy.md for the ranges"
        ) from None


def _chosen_by(manifest: Manifest, catalog: Catalog) -> Grant:
    grant = catalog.grants.get(manifest.policy_class)
    if grant is not None and grant.manifest_may_choose:
        return grant
    reason = "an operator did not let manifests choose it" if grant else "it does not exist here"
    raise PolicyDenied(
        f"{manifest.name} {manifest.version} asks for the policy class `{manifest.policy_class}`; "
        f"{reason}",
        remedy=(
            "name a policy for the call (--policy), bind one to the tool in the registry, or set "
            "`manifest_may_choose = true` in the class"
        ),
        details={"policy": manifest.policy_class},
    )


def _mask_key(masks: Sequence[MaskChoice]) -> tuple[str | bytes, ...]:
    """`masks` one by one, hashable: a name as text, a partial envelope as canonical JSON."""
    if isinstance(masks, str | Mapping):
        masks = (masks,)
    key: list[str | bytes] = []
    for mask in masks:
        if isinstance(mask, str):
            key += [name.strip() for name in mask.replace("|", ",").split(",")]
        else:
            key.append(_mask_json(mask))
    if len(key) > MAX_MASKS:
        raise ConfigError(
            f"{len(key)} masks; the limit is {MAX_MASKS}", remedy="write one mask that has it all"
        )
    return tuple(key)


def _mask_json(mask: Mapping[str, Any]) -> bytes:
    try:
        raw = canonical_json(mask)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"a mask is a name or a partial envelope that is JSON-ready: {error}",
            remedy='write it like {"allow_network_egress": false}',
        ) from None
    if len(raw) > MAX_MASK_BYTES:
        raise ConfigError(
            f"a mask has {len(raw)} bytes; the limit is {MAX_MASK_BYTES}", remedy="name a class"
        )
    return raw


def _find_masks(masks: tuple[str | bytes, ...], catalog: Catalog) -> list[Grant | Mask]:
    found: list[Grant | Mask] = []
    for number, mask in enumerate(masks, 1):
        if isinstance(mask, bytes):
            found.append(parse_mask(_MASK_DECODER.decode(mask), f"mask {number} of the call"))
            continue
        entry = catalog.entries().get(mask)
        if entry is None:
            raise ConfigError(
                f"no mask or class `{mask[:80]}`", remedy=nearest(mask, catalog.entries())
            )
        found.append(entry)
    return found
