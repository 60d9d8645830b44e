"""Hostile zips: a signed artifact, and what the format lets an attacker do to it.

Each trick keeps the archive one that `zipfile` opens, so that a reader which trusts the format is
fooled; the tests show that too.
"""

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable

from artifact_maker import signed

LOCAL = struct.Struct("<4s5H3L2H")
END = struct.Struct("<4s4H2LH")


def entries(raw: bytes) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return archive.infolist()


def rewritten(
    change: Callable[[zipfile.ZipFile, dict[str, bytes]], None], raw: bytes | None = None
) -> bytes:
    """An artifact that is packed again by `change`, with dates, modes and order as ours."""
    with zipfile.ZipFile(io.BytesIO(raw or signed())) as source:
        files = {name: source.read(name) for name in source.namelist()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        change(archive, files)
    return out.getvalue()


def put(archive: zipfile.ZipFile, name: str, data: bytes, mode: int = 0o100644) -> zipfile.ZipInfo:
    """Adds a file as our own writer would."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.create_system = 3
    info.external_attr = mode << 16
    archive.writestr(info, data)
    return info


def put_all(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
    """Adds every one of `files`, sorted."""
    for name in sorted(files):
        put(archive, name, files[name])


def with_extra_entry(name: str, data: bytes = b"evil", mode: int = 0o100644) -> bytes:
    """The artifact and one more entry, called `name`."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        for each in sorted([*files, name]):
            put(archive, each, files.get(each, data), mode if each == name else 0o100644)

    return rewritten(change)


def with_link() -> bytes:
    """`tool.wasm` becomes a symbolic link to /etc/passwd."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        put_all(archive, {name: files[name] for name in files if name != "tool.wasm"})
        put(archive, "tool.wasm", b"/etc/passwd", stat.S_IFLNK | 0o777)

    return rewritten(change)


def with_device() -> bytes:
    """`tool.wasm` says that it is a character device."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        put_all(archive, {name: files[name] for name in files if name != "tool.wasm"})
        put(archive, "tool.wasm", files["tool.wasm"], stat.S_IFCHR | 0o600)

    return rewritten(change)


def compressed(method: int = zipfile.ZIP_DEFLATED, data: bytes | None = None) -> bytes:
    """`tool.wasm` compressed; with `data`, something else: 64 MiB of zeros are 64 KiB."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        put_all(archive, {name: files[name] for name in files if name != "tool.wasm"})
        info = zipfile.ZipInfo("tool.wasm", (1980, 1, 1, 0, 0, 0))
        info.create_system, info.compress_type = 3, method
        info.external_attr = 0o100644 << 16
        archive.writestr(info, files["tool.wasm"] if data is None else data)

    return rewritten(change)


def with_duplicate() -> bytes:
    """A second `tool.wasm`: readers differ in which one they take."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        put_all(archive, files)
        put(archive, "tool.wasm", b"evil")

    return rewritten(change)


def unsorted() -> bytes:
    """The same files in another order."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        for name in sorted(files, reverse=True):
            put(archive, name, files[name])

    return rewritten(change)


def with_comment() -> bytes:
    """A comment at the end of the archive: room for anything."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        put_all(archive, files)
        archive.comment = b"evil"

    return rewritten(change)


def with_entry_comment() -> bytes:
    """A comment in the directory's entry of a file."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        put_all(archive, files)
        archive.infolist()[0].comment = b"evil"

    return rewritten(change)


def with_extra_field() -> bytes:
    """An extra field: room for data, and a second name (Info-ZIP's Unicode path, 0x7075)."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o100644 << 16
            info.extra = struct.pack("<HH4s", 0x7075, 4, b"evil") if name == "tool.wasm" else b""
            archive.writestr(info, files[name])

    return rewritten(change)


def with_date() -> bytes:
    """Another date: the same files, but not the same bytes."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o100644 << 16
            archive.writestr(info, files[name])

    return rewritten(change)


def with_data_descriptor() -> bytes:
    """Sizes and CRC after the data, zero in the header (general purpose bit 3)."""

    class Stream(io.RawIOBase):
        """Can't seek, so zipfile has to write descriptors."""

        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data) -> int:
            self.data += bytes(data)
            return len(data)

    stream = Stream()
    with zipfile.ZipFile(io.BytesIO(signed())) as source:
        files = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(stream, "w") as archive:
        put_all(archive, files)
    return stream.data


def as_zip64() -> bytes:
    """Sizes in 64 bits, in an extra field."""

    def change(archive: zipfile.ZipFile, files: dict[str, bytes]) -> None:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o100644 << 16
            with archive.open(info, "w", force_zip64=True) as file:
                file.write(files[name])

    return rewritten(change)


def prepended() -> bytes:
    """A program in front: the file is a script and an archive at once."""
    return b"#!/bin/sh\nrm -rf ~\nexit\n" + signed()


def appended() -> bytes:
    """Data behind the end."""
    return signed() + b"evil"


def second_archive() -> bytes:
    """Another whole archive behind: readers that look from the end see that one."""
    return signed() + signed({"tool.wasm": b"evil"})


def gap_before_directory() -> bytes:
    """Data between the last file and the directory, with the offset corrected."""
    raw = signed()
    start = END.unpack(raw[-END.size :])[6]
    fields = list(END.unpack(raw[-END.size :]))
    fields[6] += 4
    return raw[:start] + b"evil" + raw[start : -END.size] + END.pack(*fields)


def directory_says_otherwise() -> bytes:
    """The directory has another CRC than the header: readers differ in which one they check."""
    raw = bytearray(signed())
    start = END.unpack(raw[-END.size :])[6]
    raw[start + 16] ^= 1
    return bytes(raw)


def with_unlisted_file() -> bytes:
    """A file that is in the archive's body and not in its directory."""
    raw = signed()
    start = END.unpack(raw[-END.size :])[6]
    fields = list(END.unpack(raw[-END.size :]))
    hidden = local_file(b"zz.so", b"evil")
    fields[6] += len(hidden)
    return raw[:start] + hidden + raw[start : -END.size] + END.pack(*fields)


def with_encrypted_flag() -> bytes:
    """General purpose bit 0 in the header of the first file."""
    raw = bytearray(signed())
    raw[6] |= 1
    return bytes(raw)


def overlapping() -> bytes:
    """Two entries of the directory that point at the same data: a bomb without compression."""
    raw = signed()
    start = END.unpack(raw[-END.size :])[6]
    fields = list(END.unpack(raw[-END.size :]))
    directory = raw[start : -END.size]
    first = directory[: 46 + struct.unpack_from("<H", directory, 28)[0]]
    fields[3] += 1
    fields[4] += 1
    fields[5] += len(first)
    return raw[:start] + first + directory + END.pack(*fields)


def claims(size: int) -> bytes:
    """A header that promises `size` bytes which are not there."""
    name = b"tool.wasm"
    return LOCAL.pack(b"PK\x03\x04", 20, 0, 0, 0, 33, 0, size, size, len(name), 0) + name


def local_file(name: bytes, data: bytes) -> bytes:
    """A file's header and its data, as our own writer makes them."""
    sizes = (zlib.crc32(data), len(data), len(data), len(name), 0)
    return LOCAL.pack(b"PK\x03\x04", 20, 0, 0, 0, 33, *sizes) + name + data
