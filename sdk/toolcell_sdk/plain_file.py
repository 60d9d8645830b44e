"""Reading a file that the project, or the guest of a build, may have put there.

Owns one way of reading: never through a link, never a pipe or a device, never without a bound.
Used for `tool.toml` and for what a component says of itself while it is built.
"""

import errno
import os
import stat
from pathlib import Path

__all__ = ["read_plain_file"]


def read_plain_file(path: Path, limit: int) -> bytes:
    """The bytes of `path`, at most `limit` + 1 of them, so that the caller sees what is too much.

    `OSError` where it is a link, a folder, a pipe or a device. A pipe does not hold us up.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    # Before fdopen: for a folder that one raises and leaves the descriptor open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a plain file")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit + 1)
