"""Stops the clock of a process that has not run yet, by rewriting its own copy of the vDSO.

A clock is read through the vDSO, code that the kernel maps into every process (vdso(7)), so no
filter sees it. Sending clocks through a filter instead would cost 10 s a build: the compiler reads
the time 700,000 times. So two of the vDSO's functions are overwritten, copy-on-write, while the
process stands at its `exec`: the clock gives a constant, and `getrandom` says ENOSYS, which makes
the C library use the system call (which `answers.py` answers).

Must never touch a process that already runs. Called by `supervisor.py`.
"""

import os
import platform
import struct
from dataclasses import dataclass
from pathlib import Path

FROZEN_TIME_S = 1_577_836_800
"""2020-01-01T00:00:00Z, for every clock.

A date that zip and pyc can hold, and as a monotonic time above every real uptime: a wait "until
now + 10 s" then lasts until it is woken, where a small figure would end it at once, over and over.
"""

_AT_NULL = 0
_AT_SYSINFO_EHDR = 33
_SHT_DYNSYM = 11
_VDSO_MAX_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Stubs:
    """What replaces the functions of a vDSO, by symbol: position-independent machine code."""

    by_symbol: dict[bytes, bytes]


_STUBS = {
    "x86_64": Stubs(
        {
            # int clock_gettime(edi clock, rsi struct timespec *)
            b"__vdso_clock_gettime": b"".join(
                (
                    b"\x48\xc7\x06" + struct.pack("<i", FROZEN_TIME_S),  # mov qword [rsi], time
                    b"\x48\xc7\x46\x08\0\0\0\0",  # mov qword [rsi + 8], 0
                    b"\x31\xc0",  # xor eax, eax
                    b"\xc3",  # ret
                )
            ),
            b"__vdso_getrandom": b"\x48\xc7\xc0\xda\xff\xff\xff\xc3",  # mov rax, -ENOSYS; ret
        }
    ),
    "aarch64": Stubs(
        {
            # int clock_gettime(w0 clock, x1 struct timespec *)
            b"__kernel_clock_gettime": struct.pack(
                "<6I",
                0xD2800002 | (FROZEN_TIME_S & 0xFFFF) << 5,  # movz x2, time[0:16]
                0xF2A00002 | (FROZEN_TIME_S >> 16) << 5,  # movk x2, time[16:32], lsl 16
                0xF9000022,  # str x2, [x1]
                0xF900043F,  # str xzr, [x1, 8]
                0x52800000,  # movz w0, 0
                0xD65F03C0,  # ret
            ),
            b"__kernel_getrandom": struct.pack("<2I", 0x928004A0, 0xD65F03C0),  # movn x0, 37; ret
        }
    ),
}


def freeze(pid: int) -> None:
    """Rewrites the vDSO of `pid`, a traced process that stopped at its `exec`.

    A process without a vDSO (a kernel that was started so) is left alone: its clocks run.
    """
    memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        base = _vdso_address(memory, pid)
        if base:
            image = os.pread(memory, _VDSO_MAX_BYTES, base)
            offsets = _functions(image)
            for symbol, code in _STUBS[platform.machine()].by_symbol.items():
                if symbol in offsets:
                    os.pwrite(memory, code, base + offsets[symbol])
    finally:
        os.close(memory)


def _vdso_address(memory: int, pid: int) -> int:
    """AT_SYSINFO_EHDR of the auxiliary vector, which lies above argv and envp on a new stack."""
    # proc(5): field 28 is startstack. Counted after the command name, which may hold spaces.
    stat = Path(f"/proc/{pid}/stat").read_text()
    position = int(stat.rpartition(")")[2].split()[28 - 3])
    position += 8 * (1 + _word(memory, position) + 1)
    while _word(memory, position):
        position += 8
    position += 8
    while (kind := _word(memory, position)) != _AT_NULL:
        if kind == _AT_SYSINFO_EHDR:
            return _word(memory, position + 8)
        position += 16
    return 0


def _functions(image: bytes) -> dict[bytes, int]:
    """Name to offset of the dynamic symbols of an ELF64 shared object, little-endian."""
    table_offset = struct.unpack_from("<Q", image, 40)[0]
    entry_size, count = struct.unpack_from("<HH", image, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", image, table_offset + i * entry_size)
        for i in range(count)
    ]
    found = {}
    for section in sections:
        _name, kind, _flags, _address, offset, size, link, *_rest = section
        if kind != _SHT_DYNSYM:
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, 24):
            name, value = struct.unpack_from("<I4xQ", image, at)
            found[image[strings + name : image.index(b"\0", strings + name)]] = value
    return found


def _word(memory: int, position: int) -> int:
    return int(struct.unpack("<Q", os.pread(memory, 8, position))[0])
