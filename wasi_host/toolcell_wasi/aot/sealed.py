"""A file in memory that nobody can change any more: `memfd_create(2)` with seals (`fcntl(2)`).

What was checked in it is what is mapped from it: there is no path between the two that anybody
could replace.
"""

import fcntl
import os
from typing import Self

SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


class SealedFile:
    """Takes bytes until `seal`, gives them out after it. Close it, or use it as a context."""

    def __init__(self, name: str) -> None:
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)

    @classmethod
    def of(cls, name: str, data: bytes | memoryview) -> Self:
        """A sealed file that holds `data`."""
        file = cls(name)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file.fd, rest) :]
            file.seal()
        except BaseException:
            file.close()
            raise
        return file

    def seal(self) -> None:
        """Makes it unchangeable, also for whoever else has it open."""
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS)

    @property
    def size(self) -> int:
        """Bytes in it."""
        return os.fstat(self.fd).st_size

    def read(self, max_bytes: int) -> bytes:
        """The bytes from the start, at most `max_bytes`."""
        return os.pread(self.fd, min(self.size, max_bytes), 0)

    @property
    def path(self) -> str:
        """A name under which this process can open it."""
        return f"/proc/self/fd/{self.fd}"

    def close(self) -> None:
        """Closes it. What is mapped from it stays mapped. Idempotent."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
