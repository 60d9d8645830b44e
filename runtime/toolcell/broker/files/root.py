"""Where scratch spaces are made.

Owns one folder per runtime, below one folder per user, both for the owner alone. The runtime holds
a lock on its folder for as long as it lives; the kernel drops the lock with the process, so a
folder without one is what a crashed host left behind, and the next start removes it.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
import threading
from itertools import count
from pathlib import Path

from toolcell.home import ensure_private_dir

__all__ = ["ScratchRoot"]

_RUN_PREFIX = "run-"


class ScratchRoot:
    """Makes folders for runs, after removing what is left of runtimes that are gone.

    `folder` None: `toolcell-UID` in the temporary folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        base = Path(tempfile.gettempdir())
        self._folder = folder if folder is not None else base / f"toolcell-{os.geteuid()}"
        self._lock = threading.Lock()
        self._own: Path | None = None
        self._own_fd = -1
        self._numbers = count(1)
        self._closed = False

    def make(self) -> Path:
        """An empty folder for one run, mode 0700."""
        with self._lock:
            if self._own is None:
                self.reap()
                ensure_private_dir(self._folder)
                self._own, self._own_fd = _locked_folder(self._folder)
            path = self._own / str(next(self._numbers))
        path.mkdir(mode=0o700)
        return path

    def remove(self, path: Path) -> None:
        """Removes a folder that `make` gave out, with all that is in it."""
        shutil.rmtree(path)

    def reap(self) -> int:
        """Removes the folders of runtimes that are gone; returns how many."""
        if not self._folder.exists():
            return 0
        ensure_private_dir(self._folder)
        reaped = 0
        for path in sorted(self._folder.glob(f"{_RUN_PREFIX}*")):
            if path != self._own and _remove_if_unlocked(path):
                reaped += 1
        return reaped

    def close(self) -> None:
        """Removes this runtime's folder and lets its lock go. Idempotent."""
        with self._lock:
            own, self._own = self._own, None
            descriptor, self._own_fd = self._own_fd, -1
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)
            os.close(descriptor)


def _locked_folder(folder: Path) -> tuple[Path, int]:
    """A new folder in `folder`, and a descriptor that holds the lock on it."""
    while True:
        path = folder / f"{_RUN_PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
        path.mkdir(mode=0o700)
        descriptor = _lock(path)
        if descriptor is None:
            continue
        # Between mkdir and flock another runtime may have taken it for a leftover.
        if _is_same(path, descriptor):
            return path, descriptor
        os.close(descriptor)


def _remove_if_unlocked(path: Path) -> bool:
    descriptor = _lock(path)
    if descriptor is None:
        return False
    try:
        shutil.rmtree(path)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock on `path`; None where another has it, or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _is_same(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    return False
