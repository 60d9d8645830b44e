"""The archive: one zip, and exactly one byte sequence for what is in it.

Owns writer and reader of the container. The reader accepts nothing but what the writer makes from
the same files, byte for byte, so every trick of the format (data before, after or between, links,
comments, extra fields, duplicate names, headers that disagree, compression bombs) is impossible
rather than looked for. Believes nothing and unpacks nothing. Used by `toolcell.artifact.open`,
`build` and `signature`.

Files are stored, not compressed: the bytes of a deflate stream differ between zlib versions, no
decompressor sees hostile input, and opening a Python component (18.4 MB; 6.2 MB deflated) costs
15 ms rather than 70. Layout: PKWARE APPNOTE 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16.
"""

import stat
import struct
import zlib
from collections.abc import Mapping
from typing import NoReturn

from msgspec import Struct

from toolcell.artifact.names import check_names
from toolcell.errors import ArtifactRejected

__all__ = [
    "MAX_ARCHIVE_BYTES",
    "MAX_FILES",
    "MAX_FILE_BYTES",
    "Span",
    "read_archive",
    "write_archive",
]

MAX_ARCHIVE_BYTES = 256 * 1024 * 1024
MAX_FILES = 4096
"""Files in one archive, manifest and signature included."""
MAX_FILE_BYTES = 128 * 1024 * 1024

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_LOCAL_MAGIC, _CENTRAL_MAGIC, _END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"

_VERSION_NEEDED = 20
_MADE_BY_UNIX = 3 << 8 | _VERSION_NEEDED
_MIDNIGHT = 0
_FIRST_OF_1980 = 1 << 5 | 1
"""1980-01-01, the first day that MS-DOS dates can express."""

_LOCAL_FIELDS = (
    ("version_needed", _VERSION_NEEDED),
    ("flags", 0),
    ("method", 0),
    ("time", _MIDNIGHT),
    ("date", _FIRST_OF_1980),
)


class Span(Struct, frozen=True):
    """Where the data of a file lies in the archive."""

    offset: int
    size: int


class _Entry(Struct, frozen=True):
    name: bytes
    size: int
    crc: int
    header_offset: int

    def local_header(self) -> bytes:
        fixed = (value for _, value in _LOCAL_FIELDS)
        sizes = (self.crc, self.size, self.size, len(self.name), 0)
        return _LOCAL.pack(_LOCAL_MAGIC, *fixed, *sizes) + self.name

    def central_header(self) -> bytes:
        fixed = (_MADE_BY_UNIX, *(value for _, value in _LOCAL_FIELDS))
        sizes = (self.crc, self.size, self.size, len(self.name), 0, 0)
        where = (0, 0, _mode(self.name) << 16, self.header_offset)
        return _CENTRAL.pack(_CENTRAL_MAGIC, *fixed, *sizes, *where) + self.name


def write_archive(files: Mapping[str, bytes]) -> bytes:
    """The archive of `files`. The same files give the same bytes, everywhere and always.

    :class:`ArtifactRejected` for a name or a size that the reader would refuse.
    """
    names = sorted(files)
    check_names(names)
    _check_counts(len(names), sum(len(data) for data in files.values()))
    parts: list[bytes] = []
    entries: list[_Entry] = []
    offset = 0
    for name in names:
        data = files[name]
        if len(data) > MAX_FILE_BYTES:
            _too_large(f"`{name}`", len(data), MAX_FILE_BYTES)
        entry = _Entry(name.encode("ascii"), len(data), zlib.crc32(data), offset)
        parts += (entry.local_header(), data)
        offset += len(parts[-2]) + len(data)
        entries.append(entry)
    archive = b"".join((*parts, _tail(entries, offset)))
    check_size(len(archive))
    return archive


def read_archive(raw: bytes) -> dict[str, Span]:
    """Finds the files in `raw`, which must be what :func:`write_archive` makes of them.

    Walks from the first byte to the last, so there is no second place to look for a directory.
    Copies no data and allocates nothing in proportion to a figure in a header.
    :class:`ArtifactRejected` otherwise; `details["reason"]` says which rule it broke.
    """
    check_size(len(raw))
    view = memoryview(raw)
    entries: list[_Entry] = []
    spans: dict[str, Span] = {}
    names: list[str] = []
    offset = 0
    while view[offset : offset + 4] == _LOCAL_MAGIC:
        _check_counts(len(entries) + 1, 0)
        entry = _read_entry(view, offset)
        start = offset + _LOCAL.size + len(entry.name)
        names.append(_decoded(entry.name))
        spans[names[-1]] = Span(start, entry.size)
        entries.append(entry)
        offset = start + entry.size
    if not entries:
        _refuse("not_an_archive", "it does not begin with the header of a file")
    check_names(names)
    _check_tail(bytes(view[offset:]), entries, offset)
    return spans


def _read_entry(view: memoryview, offset: int) -> _Entry:
    """The file whose header is at `offset`; its fields, its size and its CRC are checked."""
    if len(view) < offset + _LOCAL.size:
        _refuse("truncated", f"it ends inside the header at byte {offset}")
    header = _LOCAL.unpack_from(view, offset)
    crc, stored_size, size, name_size, extra_size = header[6:]
    start = offset + _LOCAL.size + name_size
    name = bytes(view[offset + _LOCAL.size : start])
    shown = f"{name[:100]!a}"[1:]
    for (field, expected), value in zip(_LOCAL_FIELDS, header[1:6], strict=True):
        if value != expected:
            _refuse(field, f"{shown} has {field} {value}; an artifact has {expected}")
    if extra_size:
        _refuse("extra_field", f"{shown} has an extra field of {extra_size} bytes")
    if stored_size != size:
        _refuse("sizes_differ", f"{shown} is stored in {stored_size} bytes and has {size}")
    if size > MAX_FILE_BYTES:
        _too_large(shown, size, MAX_FILE_BYTES)
    if start + size > len(view):
        missing = start + size - len(view)
        _refuse("truncated", f"{missing} bytes of {shown} are missing")
    if zlib.crc32(view[start : start + size]) != crc:
        _refuse("crc", f"{shown} does not have the CRC-32 that its header says")
    return _Entry(name, size, crc, offset)


def _check_tail(tail: bytes, entries: list[_Entry], offset: int) -> None:
    """The rest of the archive must be the directory of what came before it, and nothing else."""
    expected = _tail(entries, offset)
    if tail == expected:
        return
    if expected.startswith(tail):
        _refuse("truncated", f"the last {len(expected) - len(tail)} bytes are missing")
    if tail.startswith(expected):
        _refuse("trailing_data", f"{len(tail) - len(expected)} bytes come after the archive's end")
    position = 0
    for entry in entries:
        header = entry.central_header()
        found = tail[position : position + len(header)]
        if found != header:
            _refuse(*_central_difference(found, entry))
        position += len(header)
    _refuse("end_record", "its end record is not the one of these files (a comment, a disk number)")


def _central_difference(found: bytes, entry: _Entry) -> tuple[str, str]:
    name = entry.name.decode("ascii")
    if len(found) >= _CENTRAL.size and found.startswith(_CENTRAL_MAGIC):
        mode = _CENTRAL.unpack_from(found)[15] >> 16
        if stat.S_ISLNK(mode):
            return "link", f"`{name}` is a symbolic link"
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            return "special_file", f"`{name}` is not a plain file (mode {mode:o})"
    return "directory", f"the directory's entry for `{name}` is not the one of that file"


def _tail(entries: list[_Entry], offset: int) -> bytes:
    directory = b"".join(entry.central_header() for entry in entries)
    count = len(entries)
    return directory + _END.pack(_END_MAGIC, 0, 0, count, count, len(directory), offset, 0)


def _mode(name: bytes) -> int:
    """Programs of the oops lane can be run where the archive is unpacked by hand."""
    return stat.S_IFREG | (0o755 if name.startswith(b"bin/") else 0o644)


def _decoded(name: bytes) -> str:
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        _refuse("unsafe_name", f"{name[:100]!a} is not ASCII")


def check_size(size: int) -> None:
    """Refuses an archive of `size` bytes where that is over :data:`MAX_ARCHIVE_BYTES`."""
    if size > MAX_ARCHIVE_BYTES:
        _too_large("the archive", size, MAX_ARCHIVE_BYTES)


def _check_counts(files: int, total_bytes: int) -> None:
    if files > MAX_FILES:
        _too_large("the archive", files, MAX_FILES, unit="files")
    check_size(total_bytes)


def _too_large(what: str, value: int, limit: int, unit: str = "bytes") -> NoReturn:
    raise ArtifactRejected(
        f"{what} has {value} {unit}; the limit is {limit}",
        remedy="put less into the artifact",
        status=413,
        details={"reason": "too_large", "limit": limit, "value": value},
    )


def _refuse(reason: str, message: str) -> NoReturn:
    raise ArtifactRejected(
        f"not an artifact as `toolcell build` makes it: {message}",
        remedy="get it again from its publisher; if it is your own, build it again",
        status=400,
        details={"reason": reason},
    )
