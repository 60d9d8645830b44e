"""Opening a file that may have been put there by somebody else.

Owns one way of opening. Used wherever keys, trust or artifacts are read.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

__all__ = ["open_plain_file"]


def open_plain_file(path: Path) -> BufferedReader:
    """Opens `path` for reading. `OSError` where it is a link, a folder, a pipe or a device.

    The last name of the path is not followed where it is a link. A named pipe does not hold us up.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    # Before fdopen: for a folder that one raises and leaves the descriptor open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a plain file")
    return os.fdopen(descriptor, "rb")
