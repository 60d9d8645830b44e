"""The digest of a folder, and a folder without owners' whims: what makes a tree content-addressed.

Owns one rule: a tree is plain files, folders and relative links, read-only for everyone, and its
digest covers every name, mode, link and byte. Knows nothing of bases or artifacts.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from toolcell.errors import ConfigError

__all__ = ["discard", "seal", "tree_digest"]

MAX_FILES = 50_000
MAX_BYTES = 4 * 1024**3


def seal(root: Path) -> None:
    """Makes everything below `root` read-only for everyone, programs executable for everyone."""
    for path in _walk(root):
        if path.is_symlink():
            continue
        mode = path.stat().st_mode
        executable = stat.S_ISDIR(mode) or mode & stat.S_IXUSR
        path.chmod(0o555 if executable else 0o444)
    root.chmod(0o555)


def tree_digest(root: Path) -> str:
    """Hex SHA-256 over every entry below `root`: name, kind, mode, and content or link.

    Raises :class:`ConfigError` for what no tree may hold: devices, sockets, links that leave it,
    set-id bits, or too much.
    """
    digest = hashlib.sha256()
    size = 0
    for files, path in enumerate(_walk(root), start=1):
        name = path.relative_to(root).as_posix()
        found = path.lstat()
        mode = stat.S_IMODE(found.st_mode)
        size += found.st_size
        if files > MAX_FILES or size > MAX_BYTES:
            raise _refused(f"it has more than {MAX_FILES} files or {MAX_BYTES} bytes")
        if stat.S_ISLNK(found.st_mode):
            target = str(path.readlink())
            _require_inside(root, path, target)
            entry = f"l {target}"
        elif stat.S_ISDIR(found.st_mode):
            entry = f"d {mode:o}"
        elif stat.S_ISREG(found.st_mode):
            if mode & (stat.S_ISUID | stat.S_ISGID):
                raise _refused(f"`{name}` has a set-id bit")
            entry = f"f {mode:o} {_file_digest(path)}"
        else:
            raise _refused(f"`{name}` is neither a file, a folder nor a link")
        digest.update(f"{name}\0{entry}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def discard(root: Path) -> None:
    """Removes a tree, sealed or not. Idempotent."""
    if not root.exists():
        return
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o700)
    shutil.rmtree(root)


def _walk(root: Path) -> Iterator[Path]:
    """Everything below `root`, sorted by name, folders before what is in them."""
    with os.scandir(root) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        path = Path(entry.path)
        yield path
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(path)


def _file_digest(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_inside(root: Path, link: Path, target: str) -> None:
    if Path(target).is_absolute():
        raise _refused(f"the link `{link.name}` is absolute")
    where = Path(os.path.normpath(link.parent / target))
    if not where.is_relative_to(root):
        raise _refused(f"the link `{link.name}` leaves it")


def _refused(why: str) -> ConfigError:
    return ConfigError(
        f"a tree for cells can't be used: {why}",
        remedy="make it of plain files, folders and relative links",
    )
