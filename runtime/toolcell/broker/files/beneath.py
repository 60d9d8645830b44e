"""Opening below a folder, and never anywhere else.

Owns the call of openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS: the kernel refuses a path
that leaves the folder or meets a link, also when somebody changes the tree at the same time. Where
a kernel is older than 5.6, or a seccomp profile hides the call, the path is walked a name at a time
with O_NOFOLLOW, which is as strict and slower.
"""

import ctypes
import errno
import os
from collections.abc import Sequence
from functools import cache

__all__ = ["open_beneath", "open_by_walking", "open_with_openat2"]

_SYS_OPENAT2 = 437  # the same on every architecture (include/uapi/asm-generic/unistd.h)
_RESOLVE_NO_XDEV = 0x01
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_RESOLVE = _RESOLVE_NO_XDEV | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH
_MAX_RETRIES = 16
"""openat2 answers EAGAIN where a rename crosses a `..`; ours have none, others may still move."""


class _OpenHow(ctypes.Structure):
    """`struct open_how` (openat2(2))."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _has_openat2() -> bool:
    try:
        probe = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.close(open_with_openat2(probe, (), os.O_PATH | os.O_DIRECTORY))
    except OSError:
        return False
    finally:
        os.close(probe)
    return True


def open_beneath(folder: int, names: Sequence[str], flags: int, mode: int = 0o600) -> int:
    """A descriptor of `names` below the descriptor `folder`; close-on-exec, links refused (ELOOP).

    Raises :class:`OSError` as open(2) does; EXDEV where the path would leave the folder.
    """
    if _has_openat2():
        return open_with_openat2(folder, names, flags, mode)
    return open_by_walking(folder, names, flags, mode)


def open_with_openat2(folder: int, names: Sequence[str], flags: int, mode: int = 0o600) -> int:
    """:func:`open_beneath` by the kernel's own rule."""
    how = _OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, _RESOLVE)
    path = os.fsencode("/".join(names) or ".")
    for _ in range(_MAX_RETRIES):
        descriptor = _libc().syscall(
            _SYS_OPENAT2, folder, path, ctypes.byref(how), ctypes.sizeof(how)
        )
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(code, os.strerror(code))


def open_by_walking(folder: int, names: Sequence[str], flags: int, mode: int = 0o600) -> int:
    """:func:`open_beneath` a name at a time. `names` hold no slash and no `..`.

    Not for O_PATH without O_DIRECTORY, which opens a link itself in spite of O_NOFOLLOW.
    """
    at = os.dup(folder)
    try:
        for name in names[:-1]:
            inner = os.open(
                name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at
            )
            os.close(at)
            at = inner
        last = names[-1] if names else "."
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=at)
    finally:
        os.close(at)
