"""Scopes: named sets of tools, whose entries are proven by a keyed hash.

Owns making, checking and re-making of entries. An entry that somebody wrote into the index without
the scope's key does not count, and says so. Used by the registry and `toolcell scope`.
"""

import re
from datetime import UTC, datetime

from msgspec import Struct

from toolcell.errors import ConfigError, PolicyDenied, ToolNotFound
from toolcell.registry.index import Change, Index, MembershipRow
from toolcell.registry.scope_keys import ScopeFile, ScopeKeys, membership_message

__all__ = ["DEFAULT_SCOPE", "ScopeListing", "Scopes", "no_such_scope", "put_member"]

DEFAULT_SCOPE = "default"
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z][a-z0-9]*(-[a-z0-9]+)*", re.ASCII)


class ScopeListing(Struct, frozen=True, kw_only=True):
    """A scope for people. `tampered`: names whose entry does not verify."""

    name: str
    tools: tuple[str, ...]
    tampered: tuple[str, ...]
    rotated_at: datetime | None
    previous_key_valid: bool


class Scopes:
    """The scopes of one registry. Thread-safe; safe between processes."""

    def __init__(self, index: Index, file: ScopeFile) -> None:
        self._index = index
        self._file = file

    def keys(self, scope: str) -> ScopeKeys:
        """The keys of `scope`. :class:`ToolNotFound` where there is no such scope."""
        keys = self._file.current().get(scope)
        if keys is None:
            raise no_such_scope(scope)
        return keys

    def create(self, scope: str) -> None:
        """Makes `scope`, with a key of its own. :class:`ConfigError` where it is there."""
        if not _NAME.fullmatch(scope):
            raise ConfigError(
                f"{scope[:64]!a} is not a name for a scope",
                remedy="use lower-case letters and digits, with dashes between; at most 64",
            )
        if scope in self._file.current():
            raise ConfigError(f"scope `{scope}` exists", remedy="choose another name")
        self._file.create(scope)

    def for_publishing(self, scope: str) -> ScopeKeys:
        """The keys of `scope`; the default scope is made when it is first needed."""
        return self._file.create(scope) if scope == DEFAULT_SCOPE else self.keys(scope)

    def add(self, scope: str, name: str) -> None:
        """Puts the tool `name`, which is published, into `scope`."""
        keys = self.for_publishing(scope)
        with self._index.change() as change:
            tool = change.tool(name)
            if tool is None:
                raise ToolNotFound(
                    f"no tool `{name}` is published", remedy="`toolcell publish` it first"
                )
            put_member(change, keys, scope, tool.tool_id, name)

    def remove(self, scope: str, name: str) -> None:
        """Takes `name` out of `scope`; it stays in the registry and in other scopes."""
        self.keys(scope)
        with self._index.change() as change:
            if not change.delete_membership(scope, name):
                raise ToolNotFound(
                    f"tool `{name}` is not in scope `{scope}`", remedy="see `toolcell scope list`"
                )

    def rotate(self, scope: str, *, drop_previous: bool = False) -> None:
        """Gives `scope` a new key. Entries that verify are made again under it.

        The old key stays valid beside the new one until the next rotation, so that an entry made
        by a process that has not yet noticed still counts; with `drop_previous` it ends at once.
        """
        # One rotation at a time: two of them between the steps of a third would end the key that
        # its entries are still under. Killed between the two steps, entries are under the previous
        # key, which is valid; the next rotation makes them again before that key ends.
        with self._file.rotating():
            self._remake(scope, self.keys(scope))
            self._remake(scope, self._file.change(scope, ScopeKeys.rotated))
            if drop_previous:
                self._file.change(scope, ScopeKeys.without_previous)

    def require_member(self, row: MembershipRow, keys: ScopeKeys) -> None:
        """:class:`PolicyDenied` where the entry `row` was not made with a key of its scope."""
        if not keys.verifies(row.mac, membership_message(row.scope, row.tool_id, row.name)):
            raise PolicyDenied(
                f"the entry of `{row.name}` in scope `{row.scope}` was not made with a key of "
                "that scope",
                remedy=f"if it belongs there: `toolcell scope add {row.scope} {row.name}`",
                details={"reason": "membership", "scope": row.scope},
            )

    def listing(self) -> list[ScopeListing]:
        """Every scope with its tools."""
        rows = self._index.memberships()
        listed = []
        for scope, keys in sorted(self._file.current().items()):
            members = [row for row in rows if row.scope == scope]
            proven = {row.name for row in members if _verifies(row, keys)}
            listed.append(
                ScopeListing(
                    name=scope,
                    tools=tuple(sorted(proven)),
                    tampered=tuple(row.name for row in members if row.name not in proven),
                    rotated_at=keys.rotated_at,
                    previous_key_valid=keys.has_previous,
                )
            )
        return listed

    def _remake(self, scope: str, keys: ScopeKeys) -> None:
        with self._index.change() as change:
            for row in change.memberships(scope):
                # One that does not verify stays as it is: a rotation must not make it count.
                if _verifies(row, keys):
                    put_member(change, keys, scope, row.tool_id, row.name)


def put_member(change: Change, keys: ScopeKeys, scope: str, tool_id: str, name: str) -> None:
    """Writes the entry of `name` in `scope`, proven with the scope's current key."""
    mac = keys.mac(membership_message(scope, tool_id, name))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    change.put_membership(MembershipRow(scope, name, tool_id, mac, now))


def _verifies(row: MembershipRow, keys: ScopeKeys) -> bool:
    return keys.verifies(row.mac, membership_message(row.scope, row.tool_id, row.name))


def no_such_scope(scope: str) -> ToolNotFound:
    """The error for a scope that nobody made."""
    return ToolNotFound(
        f"there is no scope {scope[:64]!a}",
        remedy="see `toolcell scope list`, or make it with `toolcell scope create`",
        details={"scope": scope[:64]},
    )
