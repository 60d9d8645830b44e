"""Persistent namespaces: one SQLite file each, shared by threads and processes.

Owns the files and the connections. WAL mode: readers do not wait for a writer. SQLite's own
waiting for a lock can't be cancelled, so it is off, and a busy store is asked again until the
call's deadline. Foreign exceptions are mapped in `_retried` and nowhere else; no message names a
path.

Keys are stored as UTF-8 blobs: the order of their bytes is the order of their code points, and a
prefix is a range of the index.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from toolcell.broker.call import Call, Refusal, payload_size
from toolcell.broker.kv.store import Caps, Totals
from toolcell.errors import ConfigError, Status
from toolcell.home import ensure_private_dir
from toolcell.policy.envelope import KvPolicy

__all__ = ["KvPool", "SqliteStore"]

_T = TypeVar("_T")

_SUFFIX = ".sqlite3"
_VERSION = 1
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS entry (key BLOB NOT NULL UNIQUE, value BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS total (
        one INTEGER PRIMARY KEY CHECK (one = 1), keys INTEGER NOT NULL, bytes INTEGER NOT NULL
    );
    INSERT OR IGNORE INTO total VALUES (1, 0, 0);
    PRAGMA user_version = 1;
"""
_IDLE_CONNECTIONS = 4
"""Kept open per namespace: opening one takes 10 times as long as an average call."""

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class KvPool:
    """The namespaces below one folder, and connections to them that wait for the next run."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._idle: dict[str, list[sqlite3.Connection]] = {}
        self._closed = False

    def open(self, namespace: str, policy: KvPolicy) -> "SqliteStore":
        """The store `namespace` under the caps of `policy`. Opens nothing yet."""
        if self._folder is None:
            raise ConfigError(
                f"kv namespace `{namespace}` is granted, and there is no folder for it",
                remedy="give the runtime a home, or leave `capabilities.kv.namespace` empty",
            )
        return SqliteStore(self, namespace, policy)

    def lease(self, namespace: str) -> sqlite3.Connection:
        """A connection to `namespace` for one run."""
        with self._lock:
            idle = self._idle.get(namespace)
            if idle:
                return idle.pop()
        return self._connect(namespace)

    def give_back(self, namespace: str, connection: sqlite3.Connection) -> None:
        """Takes back a connection that is between two transactions."""
        with self._lock:
            idle = self._idle.setdefault(namespace, [])
            if not self._closed and not connection.in_transaction and len(idle) < _IDLE_CONNECTIONS:
                idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Closes the idle connections; leased ones close when they come back."""
        with self._lock:
            self._closed = True
            connections = [one for idle in self._idle.values() for one in idle]
            self._idle.clear()
        for connection in connections:
            connection.close()

    def _connect(self, namespace: str) -> sqlite3.Connection:
        assert self._folder is not None
        ensure_private_dir(self._folder)
        path = self._folder / f"{namespace}{_SUFFIX}"
        # Made here, so that it is private from the start; SQLite gives -wal and -shm the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=32
        )
        try:
            _prepare(connection, namespace)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(connection: sqlite3.Connection, namespace: str) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == _VERSION:
        return
    if version != 0:
        raise Refusal(
            "store",
            f"namespace `{namespace}` was written by another version ({version}) of toolcell",
            status=Status.UPSTREAM,
            remedy="update toolcell, or grant another namespace",
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


class SqliteStore:
    """One run's view of a namespace. Every method is one transaction, whole or not at all."""

    def __init__(self, pool: KvPool, namespace: str, policy: KvPolicy) -> None:
        self._pool = pool
        self._namespace = namespace
        self._caps = Caps(policy)
        self._connection: sqlite3.Connection | None = None

    def get(self, call: Call, key: str) -> str | None:
        """The value of `key`, or None."""

        def read(connection: sqlite3.Connection) -> str | None:
            row = connection.execute(
                "SELECT value FROM entry WHERE key = ?", (key.encode(),)
            ).fetchone()
            return None if row is None else str(row[0], "utf-8")

        return self._retried(call, read)

    def set(self, call: Call, key: str, value: str) -> None:
        """Sets `key`, within the caps."""
        self._caps.check_value(value)
        raw_key, raw = key.encode(), value.encode()

        def write(connection: sqlite3.Connection) -> None:
            old = _value_size(connection, raw_key)
            added_keys = 1 if old is None else 0
            added = len(raw) - old if old is not None else len(raw_key) + len(raw)
            self._caps.check_growth(_totals(connection), added_keys, added)
            connection.execute(
                "INSERT INTO entry VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (raw_key, raw),
            )
            _grow(connection, added_keys, added)

        self._retried(call, _transaction(write))

    def delete(self, call: Call, key: str) -> bool:
        """Removes `key`; whether it was there."""
        raw_key = key.encode()

        def remove(connection: sqlite3.Connection) -> bool:
            old = _value_size(connection, raw_key)
            if old is None:
                return False
            connection.execute("DELETE FROM entry WHERE key = ?", (raw_key,))
            _grow(connection, -1, -(len(raw_key) + old))
            return True

        return self._retried(call, _transaction(remove))

    def keys(self, call: Call, prefix: str) -> list[str]:
        """The keys that start with `prefix`, sorted."""
        low = prefix.encode()
        high = low + b"\xff"  # 0xff is in no UTF-8 text, so this is above every key with the prefix

        def read(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute(
                "SELECT key FROM entry WHERE key >= ? AND key < ? ORDER BY key", (low, high)
            )
            return _within_message(call, (str(key, "utf-8") for (key,) in rows))

        return self._retried(call, read)

    def close(self) -> None:
        """Gives the connection back. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(self._namespace, connection)

    def _retried(self, call: Call, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Does `work`, again and again while another process holds the lock, until the deadline."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                if self._connection is None:
                    self._connection = self._pool.lease(self._namespace)
                return work(self._connection)
            except sqlite3.Error as error:
                if not _is_busy(error):
                    raise self._failed(error) from None
            except (OSError, UnicodeDecodeError):
                raise self._refusal("it can't be opened or read") from None
            if call.remaining_s() <= pause_s:
                raise self._refusal("another process keeps it locked")
            call.wait(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _failed(self, error: sqlite3.Error) -> Refusal:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        reason = {
            sqlite3.SQLITE_FULL: "the disk is full",
            sqlite3.SQLITE_IOERR: "the disk does not answer",
            sqlite3.SQLITE_READONLY: "it can't be written to",
            sqlite3.SQLITE_CANTOPEN: "it can't be opened",
            sqlite3.SQLITE_CORRUPT: "its file is damaged",
            sqlite3.SQLITE_NOTADB: "its file is damaged",
        }.get(code, type(error).__name__)
        return self._refusal(reason)

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(
            "store",
            f"namespace `{self._namespace}` failed: {reason}",
            status=Status.UPSTREAM,
            remedy="an operator must look at the kv folder",
        )


def _within_message(call: Call, keys: Iterator[str]) -> list[str]:
    """The keys as a list. Another policy may have let in more of them than one answer can hold."""
    found = []
    size = 0
    for key in keys:
        size += payload_size(key)
        if size > call.session.envelope.max_message_bytes:
            raise call.message_too_large(size)
        found.append(key)
    return found


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


def _transaction(
    work: Callable[[sqlite3.Connection], _T],
) -> Callable[[sqlite3.Connection], _T]:
    """`work` between BEGIN and COMMIT; nothing of it stays where it raises."""

    def run(connection: sqlite3.Connection) -> _T:
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk rolls back by itself
                connection.execute("ROLLBACK")
            raise
        return result

    return run


def _value_size(connection: sqlite3.Connection, key: bytes) -> int | None:
    row = connection.execute("SELECT length(value) FROM entry WHERE key = ?", (key,)).fetchone()
    return None if row is None else int(row[0])


def _totals(connection: sqlite3.Connection) -> Totals:
    keys, size = connection.execute("SELECT keys, bytes FROM total").fetchone()
    return Totals(keys=keys, bytes=size)


def _grow(connection: sqlite3.Connection, keys: int, size: int) -> None:
    connection.execute("UPDATE total SET keys = keys + ?, bytes = bytes + ?", (keys, size))
