"""The files of one audit log: their names, and how they are opened.

    audit.jsonl          the lines that are being written
    audit.jsonl.000001   full files, by number; never written again
    audit.jsonl.head     the head record, and the lock that every writer takes

Owns the names and the rule that nobody else may write to them. Used by the sink and the verifier.
"""

import errno
import fcntl
import os
import re
import stat
import time
from pathlib import Path

from toolcell.errors import ConfigError

__all__ = ["LogFiles", "lock", "open_private", "same_file"]

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class LogFiles:
    """The paths of the log at `path`."""

    def __init__(self, path: Path) -> None:
        self.active = path
        self.head = path.with_name(path.name + ".head")

    def full(self, generation: int) -> Path:
        """Where the file of number `generation` goes once it is full."""
        return self.active.with_name(f"{self.active.name}.{generation:06d}")

    def all_full(self) -> list[tuple[int, Path]]:
        """Every full file that is there with its number, oldest first."""
        name = re.compile(re.escape(self.active.name) + r"\.([0-9]{6,8})")
        found = []
        for entry in self.active.parent.iterdir():
            match = name.fullmatch(entry.name)
            if match is not None:
                found.append((int(match[1]), entry))
        return sorted(found)


def open_private(path: Path, flags: int) -> int:
    """Opens a file of the log, made with mode 0600 where `flags` says so. Follows no link.

    Others may read it, where the operator lets them (a log shipper), but not write: ConfigError.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _check_owner(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def lock(descriptor: int, operation: int, *, timeout_s: float) -> None:
    """Takes a `flock`. Never waits for ever on a process that was stopped: TimeoutError."""
    started = 0.0
    pause_s = 0.000_1
    while True:
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            started = started or now
            if now > started + timeout_s:
                raise TimeoutError(
                    errno.ETIMEDOUT, f"another process held the log's lock for {timeout_s:g} s"
                ) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.005)
        else:
            return


def same_file(path: Path, descriptor: int) -> bool:
    """Whether `descriptor` is what `path` names now: not moved away, removed or replaced."""
    try:
        named = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _check_owner(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"{path.name} of the audit log is not a regular file")
    if info.st_uid != os.geteuid() or info.st_mode & _WRITABLE_BY_OTHERS:
        raise ConfigError(
            f"{path.name} of the audit log belongs to another user, or others may write to it "
            f"(mode {info.st_mode & 0o777:o})",
            remedy=f"chown it to yourself and chmod 600 {path}",
        )
