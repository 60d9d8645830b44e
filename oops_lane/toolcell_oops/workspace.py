"""Unpacked artifacts of one process, and nobody else's.

Owns a private folder under the lane's cache: what a cell sees as `/tool` lies there, sealed, while
the artifact is prepared. The folder goes with the process; what a killed one left behind is found
by its lock, which the kernel released, and removed by the next.
"""

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from toolcell.errors import ConfigError
from toolcell.home import ensure_private_dir
from toolcell.lane import Artifact
from toolcell_oops.base.tree import discard, seal

__all__ = ["Workspace"]

_PREFIX = "run-"
_LOCK = "lock"


class Workspace:
    """A folder that lives as long as this object. Thread-safe: every tree has a name of its own."""

    def __init__(self, parent: Path) -> None:
        ensure_private_dir(parent)
        _reap(parent)
        self._folder = parent / f"{_PREFIX}{secrets.token_hex(8)}"
        self._folder.mkdir(mode=0o700)
        self._lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def unpack(self, artifact: Artifact) -> Path:
        """A sealed tree with the files of `artifact`, each as it was verified. What is in `bin/`
        can be executed.
        """
        root = self._folder / secrets.token_hex(8)
        root.mkdir(mode=0o700)
        try:
            for name in artifact.manifest.files:
                target = root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(artifact.read(name))
                target.chmod(0o700 if name.startswith("bin/") else 0o600)
            seal(root)
        except OSError as error:
            discard(root)
            raise ConfigError(
                f"the artifact can't be unpacked: {error.strerror}",
                remedy="free some space where the home folder of toolcell is",
            ) from None
        except BaseException:
            discard(root)
            raise
        return root

    def close(self) -> None:
        """Removes everything. Idempotent."""
        if self._lock >= 0:
            discard(self._folder)
            os.close(self._lock)
            self._lock = -1


def _reap(parent: Path) -> None:
    """Removes the folders of processes that are gone."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # being made, or being removed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            with contextlib.suppress(OSError):
                discard(folder)
        finally:
            os.close(lock)
