"""Blobs: archives under the SHA-256 of their bytes.

Owns the folder, the steps by which a blob gets there, and the sweeping of what a killed publisher
left. Knows no names and no versions. Used by `toolcell.registry.publishing`.

    registry/
      blobs/sha256/ab/ab…   an archive; never changed once it is there
      incoming/             archives that are being written
      .publish.lock         held shared while publishing, exclusively while sweeping
"""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolcell.home import ensure_private_dir, writing
from toolcell.trust.owned_file import sync_directory
from toolcell.trust.plain_file import open_plain_file

__all__ = ["BlobStore"]


class BlobStore:
    """The blobs below the folder `root`, made where it is missing."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / "incoming"
        self._blobs = root / "blobs" / "sha256"
        for folder in (root, self._incoming, root / "blobs", self._blobs):
            ensure_private_dir(folder)

    def path(self, blob: str) -> Path:
        """Where the blob is, if it is there."""
        return self._blobs / blob[:2] / blob

    def is_whole(self, blob: str) -> bool:
        """Whether the blob is there, and still is what was put there."""
        try:
            with open_plain_file(self.path(blob)) as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == blob
        except OSError:
            return False

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Holds off sweepers until what was added is in the index. Publishers run side by side."""
        with self._locked(fcntl.LOCK_SH):
            yield

    def add(self, data: bytes) -> str:
        """Puts `data` there durably; returns its name. Inside :meth:`publishing` only.

        Written aside, synced and renamed, so that the final name never stands for half a blob,
        also after a power cut.
        """
        blob = hashlib.sha256(data).hexdigest()
        aside = self._incoming / f"{os.getpid()}.{secrets.token_hex(8)}"
        target = self.path(blob)
        ensure_private_dir(target.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with writing(target):
            try:
                with os.fdopen(os.open(aside, flags, 0o600), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                aside.replace(target)
            finally:
                with suppress(FileNotFoundError):
                    aside.unlink()
            sync_directory(target.parent)
            sync_directory(self._blobs)
        return blob

    def sweep(self, referenced: Callable[[], frozenset[str]]) -> int:
        """Removes what belongs to no version and no living publisher; returns how many files.

        Does nothing while somebody publishes. `referenced` is asked after the lock is held. A
        killed publisher's lock ends with it, so there is no age to guess.
        """
        with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB) as held:
            if not held:
                return 0
            keep = referenced()
            stale = [*self._incoming.iterdir()]
            stale += [path for path in self._blobs.glob("*/*") if path.name not in keep]
            for path in stale:
                with suppress(FileNotFoundError):
                    path.unlink()
            return len(stale)

    @contextmanager
    def _locked(self, how: int) -> Iterator[bool]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._root / ".publish.lock", flags, 0o600)
        try:
            try:
                fcntl.flock(descriptor, how)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(descriptor)
