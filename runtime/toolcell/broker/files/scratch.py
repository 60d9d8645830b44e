"""One run's files, under quotas.

Owns the folder, what is in it and the count of it. A file is written beside the tree and renamed
into place, so that a reader sees the old one or the new one; the tree is only ever reached through
its descriptor. Used by `fs.*` of one run.
"""

import errno
import os
import shutil
import stat
from itertools import count
from pathlib import Path

from toolcell.broker.call import Refusal
from toolcell.broker.files.beneath import open_beneath
from toolcell.broker.files.root import ScratchRoot
from toolcell.broker.interface import FileEntry
from toolcell.errors import Status

__all__ = ["MAX_ENTRIES", "Scratch"]

MAX_ENTRIES = 1024
"""Files and folders of one run."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_NONBLOCK  # a FIFO, were there one, must not block the host
Names = tuple[str, ...]


class Scratch:
    """A scratch space of at most `max_bytes`. Made on first use, removed by `close`.

    `max_bytes` and the number of entries hold for what goes through this object.
    """

    def __init__(self, root: ScratchRoot, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._base = root.make()
        self._numbers = count(1)
        try:
            (self._base / "tree").mkdir(mode=0o700)
            (self._base / "new").mkdir(mode=0o700)
            flags = _FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC
            self._tree = os.open(self._base / "tree", flags)
            self._new = os.open(self._base / "new", flags)
        except OSError:
            shutil.rmtree(self._base, ignore_errors=True)
            raise
        self.bytes_used = 0
        self.entries = 0

    @property
    def path(self) -> Path:
        """The folder on the host that a guest knows as `/scratch`. Never for a guest to see."""
        return self._base / "tree"

    def read(self, names: Names, max_bytes: int) -> bytes:
        """The file `names`, at most `max_bytes` (413)."""
        descriptor = self._open(names, _FILE)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise _not_a_file()
            if info.st_size > max_bytes:
                raise _over("max_message_bytes", max_bytes, info.st_size, Status.TOO_LARGE)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(max_bytes)
        finally:
            os.close(descriptor)

    def write(self, names: Names, data: bytes) -> None:
        """Puts `data` in the file `names`, whole or not at all; makes the folders that it needs."""
        if not names:
            raise _not_a_file()
        old = self._size(names)
        growth = len(data) - (old or 0)
        if growth > 0 and self.bytes_used + growth > self._max_bytes:
            raise _over("scratch_mb", self._max_bytes, self.bytes_used + growth, Status.TOO_LARGE)
        self._check_entries(1 if old is None else 0)
        parent = self._make_folders(names[:-1])
        try:
            self._place(parent, names[-1], data)
        finally:
            os.close(parent)
        self.bytes_used += growth
        self.entries += 1 if old is None else 0

    def entries_of(self, names: Names) -> list[FileEntry]:
        """What is in the folder `names`, by name. Anything but files and folders is left out."""
        descriptor = self._open(names, _FOLDER)
        try:
            with os.scandir(descriptor) as found:
                entries = [_entry(one) for one in found]
        finally:
            os.close(descriptor)
        return sorted((one for one in entries if one is not None), key=lambda one: one.name)

    def remove(self, names: Names) -> None:
        """Removes the file `names`, or the folder with all that is in it."""
        if not names:
            raise Refusal("path", "/scratch itself can't be removed", status=Status.MALFORMED)
        parent = self._open(names[:-1], _FOLDER)
        try:
            name = names[-1]
            try:
                info = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    self._forget_tree(names)
                    shutil.rmtree(name, dir_fd=parent)
                else:
                    os.unlink(name, dir_fd=parent)
                    self.bytes_used -= info.st_size
                self.entries -= 1
            except OSError as error:
                raise _mapped(error) from None
        finally:
            os.close(parent)

    def close(self) -> None:
        """Removes everything. Idempotent."""
        if self._tree < 0:
            return
        os.close(self._tree)
        os.close(self._new)
        self._tree = self._new = -1
        self._root.remove(self._base)

    # --- beneath the tree ---

    def _open(self, names: Names, flags: int) -> int:
        try:
            return open_beneath(self._tree, names, flags)
        except OSError as error:
            raise _mapped(error) from None

    def _size(self, names: Names) -> int | None:
        """The size of the file that `names` would replace, or None where there is none."""
        try:
            descriptor = open_beneath(self._tree, names, _FILE)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _mapped(error) from None
        try:
            info = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise _not_a_file()
        return info.st_size

    def _make_folders(self, names: Names) -> int:
        """A descriptor of the folder `names`, made where it is missing."""
        at = os.dup(self._tree)
        try:
            for name in names:
                inner = self._enter(at, name)
                os.close(at)
                at = inner
        except OSError as error:
            os.close(at)
            raise _mapped(error) from None
        except BaseException:
            os.close(at)
            raise
        return at

    def _enter(self, folder: int, name: str) -> int:
        try:
            return open_beneath(folder, (name,), _FOLDER)
        except FileNotFoundError:
            self._check_entries(2)  # the folder, and what is to go into it
            os.mkdir(name, mode=0o700, dir_fd=folder)
            self.entries += 1
            return open_beneath(folder, (name,), _FOLDER)

    def _place(self, parent: int, name: str, data: bytes) -> None:
        """Writes `data` beside the tree, then renames it to `name` in the folder `parent`."""
        aside = str(next(self._numbers))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(aside, flags, 0o600, dir_fd=self._new)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.rename(aside, name, src_dir_fd=self._new, dst_dir_fd=parent)
            except BaseException:
                os.unlink(aside, dir_fd=self._new)
                raise
        except OSError as error:
            raise _mapped(error) from None

    def _forget_tree(self, names: Names) -> None:
        """Takes what is in the folder `names` off the count."""
        folder = self._open(names, _FOLDER)
        try:
            with os.scandir(folder) as found:
                inner = [(one.name, one.stat(follow_symlinks=False)) for one in found]
        finally:
            os.close(folder)
        for name, info in inner:
            self.entries -= 1
            if stat.S_ISDIR(info.st_mode):
                self._forget_tree((*names, name))
            else:
                self.bytes_used -= info.st_size

    def _check_entries(self, added: int) -> None:
        if added and self.entries + added > MAX_ENTRIES:
            raise _over("files", MAX_ENTRIES, self.entries + added, Status.QUOTA)


def _entry(found: "os.DirEntry[str]") -> FileEntry | None:
    info = found.stat(follow_symlinks=False)
    if stat.S_ISDIR(info.st_mode):
        return FileEntry(name=found.name, kind="directory", size=0)
    if stat.S_ISREG(info.st_mode):
        return FileEntry(name=found.name, kind="file", size=info.st_size)
    return None


def _over(limit: str, allowed: int, used: int, status: int) -> Refusal:
    return Refusal(
        limit,
        f"`{limit}` allows {allowed}, this makes {used}",
        status=status,
        remedy="remove files, write less, or raise the limit in the policy",
        details={"allowed": allowed, "used": used},
    )


def _not_a_file() -> Refusal:
    return Refusal("path", "it is a folder, not a file", status=Status.MALFORMED)


_REFUSALS = {
    errno.ENOENT: ("path", "there is no such file or folder", Status.NOT_FOUND),
    errno.ENOTDIR: ("path", "a part of the path is a file, not a folder", Status.MALFORMED),
    errno.EISDIR: ("path", "it is a folder, not a file", Status.MALFORMED),
    errno.ELOOP: ("path.link", "a part of the path is a link", Status.NOT_GRANTED),
    errno.EXDEV: ("path.outside", "the path leads out of /scratch", Status.NOT_GRANTED),
    errno.ENAMETOOLONG: ("path", "the path is too long", Status.TOO_LARGE),
    errno.ENOSPC: ("disk", "the host's disk is full", Status.UPSTREAM),
    errno.EDQUOT: ("disk", "the host's disk quota is used up", Status.UPSTREAM),
}


def _mapped(error: OSError) -> Refusal:
    """`error` as a refusal, without the host's path."""
    rule, message, status = _REFUSALS.get(
        error.errno or 0, ("disk", f"the host's disk: {error.strerror}", Status.UPSTREAM)
    )
    return Refusal(rule, message, status=status)
