"""The registry: resolves a name, a version range and a scope to a verified artifact.

Owns the order of the checks of a resolve and what is remembered between two of them. Trusts no row
of the index: name, version, id and digest are compared with the signed manifest, a scope's entry
with its keyed hash. Used by the runtime and the command line; thread-safe; any number of processes
may publish and resolve at the same time.

What is asked on every resolve, remembered or not: does the entry in the scope verify, does the
key that signed still count now. A change to trust store, scope keys or index, by whichever
process, throws away what was remembered.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct, structs

from toolcell.artifact.manifest import ClassName
from toolcell.artifact.open import (
    Contents,
    VerifiedArtifact,
    open_artifact,
    read_artifact_file,
    read_contents,
)
from toolcell.artifact.schema import MethodSchemas
from toolcell.errors import ArtifactRejected, ConfigError, ToolNotFound
from toolcell.home import Home
from toolcell.registry.blobs import BlobStore
from toolcell.registry.index import Change, Index, MembershipRow, VersionRow
from toolcell.registry.membership import DEFAULT_SCOPE, Scopes, no_such_scope
from toolcell.registry.publishing import Published, Request, publish
from toolcell.registry.scope_keys import ScopeFile, ScopeKeys
from toolcell.registry.versions import parse_range, parse_version
from toolcell.trust.store import TrustFile, TrustStore

__all__ = ["Registry", "Resolution"]

MAX_REMEMBERED = 4096
_TRIES = 3
"""A blob may be replaced (a renewed signature) and swept between our two looks."""


class Resolution(Struct, frozen=True):
    """What a name stands for now. `policy`: the class that the operator bound to it, or None."""

    artifact: VerifiedArtifact
    scope: str
    policy: str | None


class _Remembered(Struct, frozen=True):
    resolution: Resolution
    membership: MembershipRow
    keys: ScopeKeys
    stamp: tuple[int, int]
    trust: TrustStore
    scopes: Mapping[str, ScopeKeys]


class Registry:
    """The registry in the folder `root`.

    `trust`: whose signatures count, asked on every resolve. `scope_keys`: the file of them.
    """

    def __init__(self, root: Path, trust: TrustFile, scope_keys: Path) -> None:
        self._trust = trust
        self._blobs = BlobStore(root)
        self._index = Index(root / "index.sqlite")
        self._scope_file = ScopeFile(scope_keys)
        self.scopes = Scopes(self._index, self._scope_file)
        self._opening = threading.Lock()
        self._artifacts: dict[str, VerifiedArtifact] = {}
        self._remembered: dict[tuple[str, str, str], _Remembered] = {}

    @classmethod
    def open(cls, home: Home, trust: TrustFile | None = None) -> Self:
        """The registry of `home`, with its trust store unless told otherwise."""
        return cls(home.registry, trust or TrustFile(home.trust), home.scopes)

    def close(self) -> None:
        """Closes the index. Idempotent."""
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- resolve ----------------------------------------------------------------------------

    def resolve(
        self,
        name: str,
        version_range: str = "",
        *,
        scope: str = DEFAULT_SCOPE,
        now: datetime | None = None,
    ) -> Resolution:
        """The newest version of `name` in `version_range` that `scope` holds.

        Versions that are yanked are passed over. :class:`ToolNotFound` where there is none;
        :class:`PolicyDenied` where the scope's entry does not verify; :class:`ArtifactRejected`
        where the artifact, or the key that signed it, does not count (any more): there is no
        falling back to an older version. A repeated resolve costs some 10 us.
        """
        trust = self._trust.current()
        scopes = self._scope_file.current()
        stamp = self._index.stamp()
        asked = (name, version_range, scope)
        known = self._remembered.get(asked)
        if (
            known is None
            or known.stamp != stamp
            or known.trust is not trust
            or known.scopes is not scopes
        ):
            known = self._find(asked, trust, scopes, stamp)
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[asked] = known
        self.scopes.require_member(known.membership, known.keys)
        known.resolution.artifact.key.require_valid(now or datetime.now(UTC))
        return known.resolution

    def _find(
        self,
        asked: tuple[str, str, str],
        trust: TrustStore,
        scopes: Mapping[str, ScopeKeys],
        stamp: tuple[int, int],
    ) -> _Remembered:
        name, version_range, scope = asked
        membership, keys = self._membership(name, scope, scopes)
        for tries_left in reversed(range(_TRIES)):
            row = self._choose(name, version_range, membership)
            try:
                artifact = self._open(row, trust)
                break
            except ArtifactRejected as error:
                if error.details.get("reason") != "not_a_file" or not tries_left:
                    raise
        tool = self._index.tool(name)
        bound = _class_name(tool.policy) if tool else None
        resolution = Resolution(artifact, scope, bound)
        return _Remembered(resolution, membership, keys, stamp, trust, scopes)

    def _membership(
        self, name: str, scope: str, scopes: Mapping[str, ScopeKeys]
    ) -> tuple[MembershipRow, ScopeKeys]:
        keys = scopes.get(scope)
        rows = self._index.memberships(scope, name)
        if keys is None and scope != DEFAULT_SCOPE:  # that one is made by the first publisher
            raise no_such_scope(scope)
        if keys is None or not rows:
            raise ToolNotFound(
                f"tool {name[:64]!a} is not in scope {scope[:64]!a}",
                remedy=f"publish it, or `toolcell scope add {scope[:64]} {name[:64]}`; "
                "see `toolcell list`",
                details={"tool": name[:64], "scope": scope[:64]},
            )
        self.scopes.require_member(rows[0], keys)
        return rows[0], keys

    def _choose(self, name: str, version_range: str, membership: MembershipRow) -> VersionRow:
        wanted = parse_range(version_range)
        rows = [row for row in self._index.versions(name) if row.tool_id == membership.tool_id]
        fitting = [row for row in rows if wanted.admits(parse_version(row.version))]
        usable = [row for row in fitting if row.yanked_at is None]
        if usable:
            return max(usable, key=lambda row: parse_version(row.version))
        if fitting:
            newest = max(fitting, key=lambda row: parse_version(row.version))
            raise ToolNotFound(
                f"{name} {newest.version} was withdrawn: {newest.yanked_why}",
                remedy=f"use another version, or `toolcell yank --undo {name} {newest.version}`",
                details={"tool": name, "version": newest.version},
            )
        versions = sorted((row.version for row in rows), key=parse_version, reverse=True)
        raise ToolNotFound(
            f"no version of {name} is in the range `{wanted.text or '*'}`; published: "
            f"{', '.join(versions[:10]) or 'none'}{', …' if len(versions) > 10 else ''}",
            remedy="ask for one of those (a pre-release only by its own name)",
            details={"tool": name, "range": wanted.text},
        )

    def _open(self, row: VersionRow, trust: TrustStore) -> VerifiedArtifact:
        """The artifact of `row`: verified when first opened, then kept without its bytes."""
        with self._opening:
            known = self._artifacts.get(row.blob)
            if known is None:
                path = self._blobs.path(row.blob)
                with self._damage_named(row):
                    known = open_artifact(path, trust).kept_at(path)
                if len(self._artifacts) >= MAX_REMEMBERED:
                    self._artifacts.clear()
                self._artifacts[row.blob] = known
        artifact = known.under(trust)
        manifest = artifact.manifest
        found = (manifest.name, manifest.version, manifest.id, artifact.digest)
        if found != (row.name, row.version, row.tool_id, row.digest):
            raise ArtifactRejected(
                f"the registry's index says {row.name} {row.version}, the signed manifest says "
                f"{manifest.name} {manifest.version}",
                remedy="publish the version again",
                details={"reason": "index_mismatch"},
            )
        return artifact

    @contextmanager
    def _damage_named(self, row: VersionRow) -> Iterator[None]:
        """Says of a blob that is not what was published whose it is, and what heals it."""
        try:
            yield
        except ArtifactRejected as error:
            if self._blobs.is_whole(row.blob):
                raise
            missing = error.details.get("reason") == "not_a_file"
            what = "is missing" if missing else f"is damaged: {error.message}"
            raise ArtifactRejected(
                f"the registry's copy of {row.name} {row.version} {what}",
                remedy="publish the same artifact again: that puts its copy back",
                status=error.status,
                details=error.details,
            ) from None

    # --- change -----------------------------------------------------------------------------

    def publish(
        self,
        source: Path | bytes,
        *,
        scope: str = DEFAULT_SCOPE,
        policy: str | None = None,
        transfer: bool = False,
        now: datetime | None = None,
    ) -> Published:
        """Verifies the artifact in `source` and publishes it into `scope`. See `publishing`."""
        archive = source if isinstance(source, bytes) else read_artifact_file(source)
        artifact = open_artifact(archive, self._trust.current(), now)
        MethodSchemas(artifact.manifest)
        request = Request(
            artifact=artifact,
            archive=archive,
            scope=scope,
            keys=self.scopes.for_publishing(scope),
            policy=_class_name(policy),
            transfer=transfer,
        )
        return publish(request, self._index, self._blobs)

    def yank(self, name: str, version: str, why: str | None = None) -> str:
        """Withdraws a version: it stays on disk, and no resolve finds it any more.

        Returns the reason that counts now: `why`, else the one of an earlier withdrawal.
        """
        with self._index.change() as change:
            row = _published(change, name, version)
            reason = why or row.yanked_why or "no reason given"
            when = row.yanked_at or datetime.now(UTC).isoformat(timespec="seconds")
            change.put_version(structs.replace(row, yanked_at=when, yanked_why=reason))
        return reason

    def unyank(self, name: str, version: str) -> None:
        """Takes a withdrawal back."""
        with self._index.change() as change:
            row = _published(change, name, version)
            change.put_version(structs.replace(row, yanked_at=None, yanked_why=None))

    def bind_policy(self, name: str, policy: str | None) -> None:
        """Binds the policy class `policy` to the tool `name`; None takes the binding back."""
        with self._index.change() as change:
            row = change.tool(name)
            if row is None:
                raise ToolNotFound(
                    f"no tool {name[:64]!a} is published", remedy="see `toolcell list`"
                )
            change.put_tool(structs.replace(row, policy=_class_name(policy)))

    # --- look -------------------------------------------------------------------------------

    def versions(self, name: str | None = None) -> list[VersionRow]:
        """What the index says is published, newest first. Not verified: for display."""
        rows = self._index.versions(name)
        return sorted(rows, key=lambda row: (row.name, _descending(row.version)))

    def bindings(self) -> dict[str, str | None]:
        """Every tool, with the policy class that is bound to it. For display."""
        return {row.name: row.policy for row in self._index.tools()}

    def look(self, name: str, version_range: str = "", *, scope: str = DEFAULT_SCOPE) -> Contents:
        """What :meth:`resolve` would take, whether or not the key that signed it counts.

        For looking at it only: the archive is whole, and its publisher is not proven.
        """
        membership, _ = self._membership(name, scope, self._scope_file.current())
        row = self._choose(name, version_range, membership)
        with self._damage_named(row):
            contents = read_contents(self._blobs.path(row.blob))
            contents.check_files()
        return contents

    def sweep(self) -> int:
        """Removes what killed publishers left; returns how many files. Publishing does it too."""
        return self._blobs.sweep(self._index.blobs)


def _class_name(policy: str | None) -> str | None:
    """`policy`, a class that is bound to a tool. Never a file: whoever can write to the index could
    name one of their own, which grants whatever they like.
    """
    try:
        return msgspec.convert(policy, ClassName | None)
    except msgspec.ValidationError:
        raise ConfigError(
            f"{str(policy)[:64]!a} can't be bound to a tool: it is not the name of a policy class",
            remedy="bind a class of the home's policies: `toolcell policy bind TOOL CLASS`",
        ) from None


def _published(change: Change, name: str, version: str) -> VersionRow:
    row = change.version(name, version)
    if row is None:
        raise ToolNotFound(
            f"no version {version[:64]!a} of tool {name[:64]!a} is published",
            remedy="see `toolcell list`",
        )
    return row


def _descending(version: str) -> tuple[int, ...]:
    return tuple(-figure for figure in parse_version(version))
