"""Small configuration files that only their owner may write: trust store and scope keys.

Owns how such a file is read, replaced, locked and watched. Knows nothing of what is in it. Used by
`toolcell.trust` and `toolcell.registry.scopes`.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from toolcell.errors import ConfigError
from toolcell.home import ensure_private_dir, writing
from toolcell.trust.plain_file import open_plain_file

__all__ = [
    "MAX_FILE_BYTES",
    "WatchedFile",
    "locked",
    "read_owned",
    "replace_owned",
    "sync_directory",
]

MAX_FILE_BYTES = 1024 * 1024
"""A trust store of this size holds some 4,000 keys."""

_SETTLED_NS = 100_000_000
"""A file that was changed this recently is read again: two changes within one tick of the file
system's clock (4 ms with HZ=250) look the same to `stat`."""

T = TypeVar("T")
_Signature = tuple[int, int, int, int]


def read_owned(path: Path, *, secret: bool = False) -> bytes | None:
    """The content of `path`, None where there is none.

    :class:`ConfigError` where it is a link, not a file, over :data:`MAX_FILE_BYTES`, somebody
    else's, or open to others: for writing, and with `secret` for reading too.
    """
    read = _read(path, secret)
    return None if read is None else read[0]


def replace_owned(path: Path, data: bytes) -> None:
    """Replaces `path` with `data` in one step, mode 0600: a reader sees the old or the new file.

    The caller holds :func:`locked`. So there is one name to write aside, and what a killed process
    left there, which may be a secret, is gone with the next change.
    """
    ensure_private_dir(path.parent)
    aside = path.with_name(f".{path.name}.new")
    with suppress(FileNotFoundError):
        aside.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with writing(path):
        try:
            with os.fdopen(os.open(aside, flags, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes the names in the folder `path` durable (fsync(2): a rename is one of its directory)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds off every other process that changes `path`. Readers need no lock."""
    ensure_private_dir(path.parent)
    lock = path.with_name(f".{path.name}.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with writing(lock):
        descriptor = os.open(lock, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class WatchedFile(Generic[T]):
    """The parsed content of an owner's file, parsed again when the file has changed.

    `parse` gets the bytes, or None where there is no file. An unchanged file costs one `stat`.
    A file that can't be read or parsed any more raises; the last good content is not used, since
    what was taken out of it (a key, a scope) must stop to count. Thread-safe.
    """

    def __init__(
        self, path: Path, parse: Callable[[bytes | None], T], *, secret: bool = False
    ) -> None:
        self.path = path
        self._parse = parse
        self._secret = secret
        self._lock = threading.Lock()
        self._seen: tuple[_Signature | None, T] | None = None

    def current(self) -> T:
        """The content as it is now."""
        seen = self._seen
        if seen is not None and seen[0] == _stat_signature(self.path):
            return seen[1]
        with self._lock:
            read = _read(self.path, self._secret)
            content = self._parse(None if read is None else read[0])
            settled = read is None or time.time_ns() - max(read[1][2:]) > _SETTLED_NS
            signature = None if read is None else read[1]
            self._seen = (signature, content) if settled else None
            return content


def _read(path: Path, secret: bool) -> tuple[bytes, _Signature] | None:
    try:
        opened = open_plain_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read: {error.strerror}",
            remedy="it must be a plain file of your own, not a link",
        ) from None
    with opened as file:
        info = os.fstat(file.fileno())
        _require_owned(path, info, secret)
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(
            f"{path} has more than {MAX_FILE_BYTES} bytes, the limit",
            remedy="remove what is expired or no longer used",
        )
    return data, _signature_of(info)


def _require_owned(path: Path, info: os.stat_result, secret: bool) -> None:
    closed = 0o077 if secret else 0o022
    if info.st_uid != os.geteuid() or info.st_mode & closed:
        what = "read or change" if secret else "change"
        raise ConfigError(
            f"{path} belongs to another user, or others may {what} it "
            f"(mode {info.st_mode & 0o777:o})",
            remedy=f"make it your own, then chmod 600 {path}",
        )


def _stat_signature(path: Path) -> _Signature | None:
    try:
        return _signature_of(os.stat(path, follow_symlinks=False))  # noqa: PTH116 - half the cost
    except FileNotFoundError:
        return None


def _signature_of(info: os.stat_result) -> _Signature:
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
