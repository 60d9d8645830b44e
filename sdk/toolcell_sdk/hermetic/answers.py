"""The answers that a hermetic build gets from the kernel: the same on every machine, every time.

Owns what a build may learn of its surroundings: no entropy, a clock that stands still, files
without a date or an inode of their own, directories in sorted order. Must never change what a file
*contains* or whether a call is allowed: each answer is made by doing the same call with the same
arguments. Called by `supervisor.py`.
"""

import hashlib
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path

from toolcell_sdk.hermetic import kernel
from toolcell_sdk.hermetic.vdso import FROZEN_TIME_S

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_PATH_MAX = 4096
_EFAULT = 14
_EINVAL = 22
_DIRECTORY_BLOCK = 4096
# Folders of Rust's `tempfile`. Their names come from the number of threads, so from the number of
# processors; the order in which they are made does not.
_TEMPORARY = re.compile(r"\.tmp[A-Za-z0-9]{6}")


class Answers:
    """Answers calls of the processes under one build root.

    `root` is the build's own folder: inode numbers are made from paths relative to it, so that a
    build does not depend on where it ran.
    """

    def __init__(self, machine: kernel.Machine, root: str) -> None:
        self._root = root
        self._memory: dict[int, int] = {}
        self._temporary: dict[str, int] = {}
        self._listings: dict[int, list[bytes]] = {}
        handlers: dict[str, Callable[[kernel.Call], int | None]] = {
            "getrandom": self._getrandom,
            "getdents64": self._getdents64,
            "statx": self._statx,
            "close": self._forget_listing,
            "lseek": self._forget_listing,
        }
        self._handlers = {number: handlers[name] for name, number in machine.calls.items()}

    def answer(self, call: kernel.Call) -> int | None:
        """Does what the call asks, into the caller's memory.

        Returns its value, a negative errno, or None where the kernel is to do it.
        """
        try:
            return self._handlers[call.number](call)
        except OSError as error:
            return -(error.errno or _EFAULT)

    def close(self) -> None:
        """Closes the descriptors on the callers' memory."""
        for descriptor in self._memory.values():
            os.close(descriptor)
        self._memory.clear()

    def _getrandom(self, call: kernel.Call) -> int:
        # A function of the length alone: threads ask in an order that nobody can repeat.
        address, length, _flags = call.args[:3]
        length = min(length, 1 << 16)
        self._write(call, address, hashlib.shake_128(b"toolcell %d" % length).digest(length))
        return length

    def _statx(self, call: kernel.Call) -> int:
        _dirfd, path_address, flags, mask, address = call.args[:5]
        flags &= 0xFFFFFFFF
        path = self._path(call, self._read_string(call, path_address), flags)
        if path.endswith("/") and flags & _AT_EMPTY_PATH:
            # A magic link of /proc is to be followed: it is the descriptor itself.
            path, flags = path[:-1], flags & ~(_AT_SYMLINK_NOFOLLOW | _AT_EMPTY_PATH)
        result = kernel.statx(path, flags, mask & 0xFFFFFFFF)
        if isinstance(result, int):
            return result
        self._write(call, address, self._without_identity(result, self._name(path)))
        return 0

    def _without_identity(self, statx: bytes, name: str) -> bytes:
        fields = bytearray(statx)
        is_directory = (struct.unpack_from("=H", fields, 28)[0] & 0o170000) == 0o040000
        struct.pack_into("=II", fields, 4, 4096, 0)  # block size; attributes, low half
        struct.pack_into("=I", fields, 12, 0)
        struct.pack_into("=III", fields, 16, 1, 0, 0)  # links, owner, group
        struct.pack_into("=Q", fields, 32, _inode(name))
        if is_directory:
            struct.pack_into("=Q", fields, 40, _DIRECTORY_BLOCK)
        struct.pack_into("=QQ", fields, 48, 8, 0)  # blocks, attribute mask
        for offset in (64, 80, 96, 112):  # access, birth, change, modification
            struct.pack_into("=qII", fields, offset, FROZEN_TIME_S, 0, 0)
        struct.pack_into("=IIQ", fields, 136, 0, 1, 0)  # device, mount
        return bytes(fields)

    def _getdents64(self, call: kernel.Call) -> int:
        # By descriptor alone: a build is one process.
        descriptor, address, room = call.args[:3]
        if descriptor not in self._listings:
            self._listings[descriptor] = self._listing(call.tid, descriptor)
        waiting = self._listings[descriptor]
        chunk = b""
        while waiting and len(chunk) + len(waiting[0]) <= room:
            chunk += waiting.pop(0)
        if waiting and not chunk:
            return -_EINVAL
        self._write(call, address, chunk)
        return len(chunk)

    def _forget_listing(self, call: kernel.Call) -> None:
        # The descriptor's next reader starts at the first entry. Only a rewind is ever asked for:
        # our offsets mean nothing to the kernel.
        self._listings.pop(call.args[0], None)

    def _listing(self, tid: int, descriptor: int) -> list[bytes]:
        directory = f"/proc/{tid}/fd/{descriptor}"
        with os.scandir(directory + "/") as entries:
            kinds = {os.fsencode(entry.name): _kind(entry) for entry in entries}
        kinds |= {b".": _DT_DIR, b"..": _DT_DIR}
        base = self._name(directory)
        listing = []
        for index, (name, kind) in enumerate(sorted(kinds.items())):
            inode = _inode(f"{base}/{os.fsdecode(name)}")
            length = (19 + len(name) + 1 + 7) & ~7
            header = struct.pack("=QqHB", inode, index + 1, length, kind)
            listing.append((header + name).ljust(length, b"\0"))
        return listing

    def _path(self, call: kernel.Call, path: str, flags: int) -> str:
        if path.startswith("/"):
            return path
        dirfd = call.args[0] & 0xFFFFFFFF
        signed = dirfd - (1 << 32) if dirfd >> 31 else dirfd
        base = f"/proc/{call.tid}/" + ("cwd" if signed == _AT_FDCWD else f"fd/{signed}")
        if not path and not flags & _AT_EMPTY_PATH:
            raise FileNotFoundError(2, "empty path")
        return f"{base}/{path}"

    def _name(self, path: str) -> str:
        """The path as the build knows it: magic links resolved, relative to the build's root."""
        parts = path.split("/", 5)
        if path.startswith("/proc/") and len(parts) > 3:
            depth = 4 if parts[3] == "cwd" else 5
            path = "/".join([str(Path("/".join(parts[:depth])).readlink()), *parts[depth:]])
        return _TEMPORARY.sub(self._numbered, os.path.normpath(path).removeprefix(self._root))

    def _numbered(self, match: re.Match[str]) -> str:
        number = self._temporary.setdefault(match[0], len(self._temporary))
        return f"temporary-{number}"

    def _read_string(self, call: kernel.Call, address: int) -> str:
        if not address:
            return ""
        # A page at a time: the string may end just before a hole.
        text = b""
        while b"\0" not in text and len(text) < _PATH_MAX:
            step = 4096 - (address + len(text)) % 4096
            text += os.pread(self._memory_of(call), step, address + len(text))
        return os.fsdecode(text.partition(b"\0")[0])

    def _write(self, call: kernel.Call, address: int, data: bytes) -> None:
        if os.pwrite(self._memory_of(call), data, address) != len(data):
            raise OSError(_EFAULT, "short write to the caller's memory")

    def _memory_of(self, call: kernel.Call) -> int:
        if call.tid not in self._memory:
            self._memory[call.tid] = os.open(f"/proc/{call.tid}/mem", os.O_RDWR | os.O_CLOEXEC)
        return self._memory[call.tid]


_DT_DIR = 4
_DT_REG = 8
_DT_LNK = 10


def _kind(entry: os.DirEntry[str]) -> int:
    if entry.is_symlink():
        return _DT_LNK
    return _DT_DIR if entry.is_dir(follow_symlinks=False) else _DT_REG


def _inode(name: str) -> int:
    digest = hashlib.sha256(os.fsencode(name)).digest()
    # 48 bits: some C libraries refuse an inode that does not fit their ino_t.
    return int.from_bytes(digest[:6], "big") | 1
