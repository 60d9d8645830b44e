"""Policy files on disk: found, bounded, and read only where nobody else may have written them.

Owns every file access of the policy room. It knows nothing of what is in a file beyond that it is
TOML (`toolcell.policy.document` does). Called by `toolcell.policy.book` and `toolcell policy`.

**Whose file.** A policy grants authority, so who can write one can grant. A file in the home's
`policies/` must be a plain file (no link) of the user who runs toolcell, or of root, that neither
group nor others may write; the folder likewise. A file that is named for a call may belong to
anybody and be a link, because whoever names it answers for it, but one that *everybody* may write
is refused all the same. Modes are never repaired in silence.
"""

import os
import stat
import time
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolcell.errors import ConfigError
from toolcell.toml_text import parse_toml

__all__ = [
    "MAX_FILES",
    "MAX_FILE_BYTES",
    "PolicyFile",
    "Stamp",
    "policy_files",
    "read_policy_file",
    "stamp_of",
]

MAX_FILE_BYTES = 256 * 1024
MAX_FILES = 64
"""Files in one `policies/` folder."""

Stamp = tuple[int, ...]
"""What tells that a file changed: device, inode, size, times, mode and owner.

Empty for a file that was read within `_SETTLED_NS` of its last change: a second change in the same
tick of the file system's clock would leave no trace, so such a file counts as changed once more.
"""

_SETTLED_NS = 100_000_000  # the kernel stamps with its tick, up to 10 ms (HZ=100)


class PolicyFile(Struct, frozen=True, kw_only=True):
    """A file as it was read: its TOML, and the stamp of the very descriptor that was read."""

    path: Path
    raw: dict[str, Any]
    stamp: Stamp


def policy_files(folder: Path) -> list[Path]:
    """The `*.toml` files of `folder`, sorted; none where there is no such folder."""
    try:
        info = folder.lstat()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{folder} can't be read: {error.strerror}") from None
    if not stat.S_ISDIR(info.st_mode):
        raise ConfigError(f"{folder} is not a folder", remedy="make it one, or remove it")
    _refuse_foreign(folder, info)
    found = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    if len(found) > MAX_FILES:
        raise ConfigError(
            f"{folder} has {len(found)} policy files; the limit is {MAX_FILES}",
            remedy="put several classes into one file",
        )
    return found


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of the file at `path` now; None where there is none."""
    try:
        return _stamp(path.stat())
    except OSError:
        return None


def _stamp(info: os.stat_result) -> Stamp:
    return (
        info.st_dev,
        info.st_ino,
        info.st_size,
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_mode,
        info.st_uid,
    )


def read_policy_file(path: Path, *, ours: bool) -> PolicyFile:
    """Reads `path`. `ours`: it lies in the home and must be the owner's alone to write.

    :class:`ConfigError` for a file that is missing, not a file, not safe, too large (256 KiB), not
    UTF-8, or not TOML.
    """
    # O_NONBLOCK: opening a FIFO must not wait for its writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if ours else 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        link = ours and path.is_symlink()
        raise ConfigError(
            f"policy file {path} can't be read: {'it is a link' if link else error.strerror}",
            remedy="copy the file into the folder" if link else "check the path and its rights",
        ) from None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"policy file {path} is not a plain file", remedy="name a TOML file")
        if ours:
            _refuse_foreign(path, info)
        elif info.st_mode & stat.S_IWOTH:
            raise ConfigError(
                f"policy file {path} may be written by everybody (mode {_mode(info)})",
                remedy=f"chmod o-w {path}, after a look at what it grants",
            )
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(
            f"policy file {path} has more than {MAX_FILE_BYTES} bytes",
            remedy="split it into several files",
        )
    fresh = time.time_ns() - info.st_ctime_ns < _SETTLED_NS
    return PolicyFile(path=path, raw=_toml(path, data), stamp=() if fresh else _stamp(info))


def _refuse_foreign(path: Path, info: os.stat_result) -> None:
    if info.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"{path} belongs to another user (uid {info.st_uid})",
            remedy=f"chown it to yourself, after a look at what it grants: {path}",
        )
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"{path} may be written by others than its owner (mode {_mode(info)})",
            remedy=f"chmod go-w {path}, after a look at what it grants",
        )


def _mode(info: os.stat_result) -> str:
    return f"{stat.S_IMODE(info.st_mode):04o}"


def _toml(path: Path, data: bytes) -> dict[str, Any]:
    try:
        return parse_toml(data)
    except ValueError as error:
        raise ConfigError(
            f"policy file {path} is not TOML: {error}", remedy="see docs/policy.md"
        ) from None
