"""Which shared libraries a program of this machine needs, and where its loader is.

Owns the reading of PT_INTERP (ELF-64, System V gABI 4.1) and the question to the loader itself
(`ld.so --list`, ld.so(8)). Asked of this machine's own interpreter and libraries only, never of a
file of an artifact.
"""

import re
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from toolcell.errors import LaneUnavailable

__all__ = ["libraries", "loader_of"]

_PT_INTERP = 3
_FOUND = re.compile(r"^\s*(\S+) => (/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
LIST_TIMEOUT_S = 30


def loader_of(program: Path) -> Path:
    """The path in PT_INTERP of `program`."""
    with program.open("rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            raise _unavailable(f"{program.name} is not a 64-bit little-endian ELF program")
        (offset,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        for number in range(count):
            file.seek(offset + number * size)
            header = file.read(size)
            if struct.unpack_from("<I", header)[0] == _PT_INTERP:
                start, length = struct.unpack_from("<Q", header, 8)[0], header[32:40]
                file.seek(start)
                return Path(file.read(struct.unpack("<Q", length)[0]).rstrip(b"\0").decode())
    raise _unavailable(f"{program.name} is linked statically: it needs no base")


def libraries(loader: Path, programs: Iterable[Path]) -> dict[str, Path]:
    """Name of each shared library that `programs` need -> its file. One that is missing is left
    out, with what needs it: an extension module of Python that nobody could import here either.
    """
    found: dict[str, Path] = {}
    for program in programs:
        done = subprocess.run(  # noqa: S603 - the loader of our own interpreter
            [str(loader), "--list", str(program)],
            capture_output=True,
            text=True,
            timeout=LIST_TIMEOUT_S,
            check=False,
            env={},
        )
        for name, place in _FOUND.findall(done.stdout):
            found.setdefault(name, Path(place))
    return found


def _unavailable(why: str) -> LaneUnavailable:
    return LaneUnavailable(
        f"no base tree can be made here: {why}",
        remedy="name a folder of your own in the setting `bases` of the oops lane",
        details={"feature": "base"},
    )
