"""The index: an SQLite file that says which artifact has which name and version.

Owns tables, transactions and the mapping of SQLite's errors. Decides nothing: what a row says is
checked against signed bytes and keyed hashes by whoever reads it. Safe between processes (WAL) and
threads (one connection under a lock).
"""

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from toolcell.errors import ConfigError, InternalError, ToolcellError
from toolcell.trust.owned_file import locked

__all__ = ["Change", "Index", "MembershipRow", "ToolRow", "VersionRow"]

Row = TypeVar("Row", bound=Struct)

_BUSY_TIMEOUT_S = 10.0
_SCHEMA_VERSION = 1
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE tool (
    name TEXT PRIMARY KEY,
    tool_id TEXT NOT NULL UNIQUE,
    publisher TEXT NOT NULL,
    policy TEXT
) STRICT;
CREATE TABLE version (
    name TEXT NOT NULL REFERENCES tool (name),
    version TEXT NOT NULL,
    tool_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    blob TEXT NOT NULL,
    lane TEXT NOT NULL,
    publisher TEXT NOT NULL,
    key_id TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    published_at TEXT NOT NULL,
    yanked_at TEXT,
    yanked_why TEXT,
    PRIMARY KEY (name, version)
) STRICT;
CREATE TABLE membership (
    scope TEXT NOT NULL,
    name TEXT NOT NULL REFERENCES tool (name),
    tool_id TEXT NOT NULL,
    mac BLOB NOT NULL,
    added_at TEXT NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT;
PRAGMA user_version = {_SCHEMA_VERSION};
COMMIT;
"""


class ToolRow(Struct, frozen=True):
    """A name: whose it is, and the policy class that the operator bound to it."""

    name: str
    tool_id: str
    publisher: str
    policy: str | None


class VersionRow(Struct, frozen=True):
    """A published version. `blob` is the SHA-256 of the archive, `digest` the artifact's."""

    name: str
    version: str
    tool_id: str
    digest: str
    blob: str
    lane: str
    publisher: str
    key_id: str
    size_bytes: int
    published_at: str
    yanked_at: str | None = None
    yanked_why: str | None = None


class MembershipRow(Struct, frozen=True):
    """An entry in a scope, which counts only where `mac` verifies."""

    scope: str
    name: str
    tool_id: str
    mac: bytes
    added_at: str


class Change:
    """One write transaction. Valid inside `Index.change()` only."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def tool(self, name: str) -> ToolRow | None:
        """The row of `name` as this transaction sees it."""
        return _first(self._connection, ToolRow, "SELECT * FROM tool WHERE name = ?", name)

    def tool_with_id(self, tool_id: str) -> ToolRow | None:
        """The row that holds `tool_id`."""
        return _first(self._connection, ToolRow, "SELECT * FROM tool WHERE tool_id = ?", tool_id)

    def version(self, name: str, version: str) -> VersionRow | None:
        """The row of that version."""
        query = "SELECT * FROM version WHERE name = ? AND version = ?"
        return _first(self._connection, VersionRow, query, name, version)

    def put_tool(self, row: ToolRow) -> None:
        """Inserts or replaces a name."""
        self._connection.execute(
            "INSERT INTO tool VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
            "tool_id = excluded.tool_id, publisher = excluded.publisher, policy = excluded.policy",
            (row.name, row.tool_id, row.publisher, row.policy),
        )

    def put_version(self, row: VersionRow) -> None:
        """Inserts or replaces a version."""
        marks = ", ".join("?" * len(row.__struct_fields__))
        values = [getattr(row, name) for name in row.__struct_fields__]
        self._connection.execute(f"INSERT OR REPLACE INTO version VALUES ({marks})", values)  # noqa: S608

    def put_membership(self, row: MembershipRow) -> None:
        """Inserts or replaces an entry in a scope."""
        self._connection.execute(
            "INSERT OR REPLACE INTO membership VALUES (?, ?, ?, ?, ?)",
            (row.scope, row.name, row.tool_id, row.mac, row.added_at),
        )

    def delete_membership(self, scope: str, name: str) -> bool:
        """Removes an entry; False where there was none."""
        query = "DELETE FROM membership WHERE scope = ? AND name = ?"
        return self._connection.execute(query, (scope, name)).rowcount > 0

    def memberships(self, scope: str) -> list[MembershipRow]:
        """Every entry of `scope`."""
        query = "SELECT * FROM membership WHERE scope = ? ORDER BY name"
        return [MembershipRow(*row) for row in self._connection.execute(query, (scope,))]


class Index:
    """The index in the file `path`, made where it is missing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._own_changes = 0
        self._connection: sqlite3.Connection | None = None
        with _mapped(), locked(path):
            self._prepare()
        _OPEN.add(self)

    def close(self) -> None:
        """Closes the file. Idempotent."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def stamp(self) -> tuple[int, int]:
        """Changes whenever the index does, by whichever process. Costs some 2 us."""
        with self._lock, _mapped():
            # data_version counts the commits of other connections only.
            (version,) = self._connect().execute("PRAGMA data_version").fetchone()
            return version, self._own_changes

    def tool(self, name: str) -> ToolRow | None:
        """The row of `name`."""
        with self._lock, _mapped():
            return _first(self._connect(), ToolRow, "SELECT * FROM tool WHERE name = ?", name)

    def tools(self) -> list[ToolRow]:
        """Every name."""
        with self._lock, _mapped():
            rows = self._connect().execute("SELECT * FROM tool ORDER BY name")
            return [ToolRow(*row) for row in rows]

    def versions(self, name: str | None = None) -> list[VersionRow]:
        """The versions of `name`, or of every tool."""
        query = "SELECT * FROM version WHERE name = ?1 OR ?1 IS NULL"
        with self._lock, _mapped():
            return [VersionRow(*row) for row in self._connect().execute(query, (name,))]

    def memberships(self, scope: str | None = None, name: str | None = None) -> list[MembershipRow]:
        """The entries of `scope` and `name`, None being any."""
        query = (
            "SELECT * FROM membership WHERE (scope = ?1 OR ?1 IS NULL) "
            "AND (name = ?2 OR ?2 IS NULL) ORDER BY scope, name"
        )
        with self._lock, _mapped():
            return [MembershipRow(*row) for row in self._connect().execute(query, (scope, name))]

    def blobs(self) -> frozenset[str]:
        """Every blob that a version refers to."""
        with self._lock, _mapped():
            rows = self._connect().execute("SELECT DISTINCT blob FROM version")
            return frozenset(blob for (blob,) in rows)

    @contextmanager
    def change(self) -> Iterator[Change]:
        """A write transaction: all of it is seen, or none, and none where the block raises.

        Waits up to 10 s for another process's.
        """
        with self._lock, _mapped():
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Change(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._own_changes += 1

    def _prepare(self) -> None:
        connection = self._connect()
        # The change to WAL and the tables are made under the file lock: SQLite's busy handler is
        # not called for a change of journal mode.
        connection.execute("PRAGMA journal_mode = WAL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            connection.executescript(_SCHEMA)
        elif version != _SCHEMA_VERSION:
            raise ConfigError(
                f"the registry's index has format {version}; this toolcell reads {_SCHEMA_VERSION}",
                remedy="use the toolcell that wrote it, or publish into a new home folder",
            )

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                self._path,
                timeout=_BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
            for pragma in ("synchronous = FULL", "foreign_keys = ON", "trusted_schema = OFF"):
                self._connection.execute(f"PRAGMA {pragma}")
        return self._connection

    def leave_to_parent(self) -> None:
        """In a forked child: an SQLite connection must not be used or closed there.

        (https://www.sqlite.org/howtocorrupt.html, section 2.6.)
        """
        _INHERITED.append(self._connection)
        self._connection = None
        self._lock = threading.RLock()


_OPEN: "weakref.WeakSet[Index]" = weakref.WeakSet()
_INHERITED: list[sqlite3.Connection | None] = []


def _after_fork() -> None:
    for index in list(_OPEN):
        index.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def _first(connection: sqlite3.Connection, kind: type[Row], query: str, *values: str) -> Row | None:
    rows = connection.execute(query, values).fetchall()
    return kind(*rows[0]) if rows else None


@contextmanager
def _mapped() -> Iterator[None]:
    """The one place where SQLite's errors become ours."""
    try:
        yield
    except ToolcellError:
        raise
    except UnicodeEncodeError:  # a name from a command line or a caller, with lone surrogates
        raise ConfigError(
            "a name or a reason is not valid UTF-8", remedy="write it in plain text"
        ) from None
    except sqlite3.OperationalError as error:
        raise InternalError(
            f"the registry's index can't be used: {error}",
            remedy="another process may hold it, or the disk may be full: try again",
        ) from error
    except sqlite3.DatabaseError as error:
        raise ConfigError(
            f"the registry's index is damaged: {error}",
            remedy="restore it from a backup, or move `registry` away and publish again",
        ) from error
