"""The program that decodes one picture and then ends. Run by path; its host imports a number.

Owns its own confinement, which stands before a byte of the picture is read: limits on memory, CPU
time, files and size, no new privileges, and a seccomp filter that leaves memory, the two pipes and
the end. Where any of that can't be had it refuses to work (exit status 3). It imports Pillow and
the standard library only, so that it starts fast; it gets an empty environment.

    worker.py SITE PARENT_PID CPU_S MEMORY_BYTES MAX_PIXELS WIDTH HEIGHT FORMAT

Reads the picture from standard input; writes one line of JSON (`made` with `width` and `height`, or
`failed` with `error` and `reason`) and the encoded picture to standard output.
"""

import ctypes
import errno
import importlib
import io
import json
import os
import resource
import signal
import struct
import sys
import warnings
from typing import Any

EXIT_UNCONFINED = 3

# Everything that a decoder or an encoder may import in the middle of its work, when it can't.
_IMPORTED_LATE = (
    "copy",
    "PIL.GifImagePlugin",
    "PIL.ImageColor",
    "PIL.ImageFile",
    "PIL.ImageFilter",
    "PIL.ImageOps",
    "PIL.ImagePalette",
    "PIL.JpegImagePlugin",
    "PIL.MpoImagePlugin",
    "PIL.PngImagePlugin",
    "PIL.TiffImagePlugin",
    "PIL.WebPImagePlugin",
)

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2

_RET_KILL = 0x80000000  # SECCOMP_RET_KILL_PROCESS
_RET_ERRNO = 0x00050000 | errno.EPERM
_RET_ALLOW = 0x7FFF0000
_PROT_EXEC = 4
_OFFSET_NR, _OFFSET_ARCH, _OFFSET_ARG_2 = 0, 4, 32  # struct seccomp_data, little-endian

# Offsets are for the names in order: read write close lseek munmap brk rt_sigaction
# rt_sigprocmask rt_sigreturn sched_yield mremap madvise getpid gettid exit futex clock_gettime
# exit_group getrandom. Then the two that may not make memory executable: mmap mprotect. Then what
# answers EPERM, because an import that comes late asks for it and can do without: open, stat and
# their kin.
_SYSTEM_CALLS = {
    "x86_64": (
        0xC000003E,
        (0, 1, 3, 8, 11, 12, 13, 14, 15, 24, 25, 28, 39, 186, 60, 202, 228, 231, 318),
        (9, 10),
        (2, 4, 5, 6, 16, 21, 79, 89, 257, 262, 332),
    ),
    "aarch64": (
        0xC00000B7,
        (63, 64, 57, 62, 215, 214, 134, 135, 139, 124, 216, 233, 172, 178, 93, 98, 113, 94, 278),
        (222, 226),
        (17, 29, 48, 56, 78, 79, 80, 291),
    ),
}


class _Unconfined(Exception):
    """A stage of the confinement failed."""


def confine(parent: int, cpu_s: int, memory_bytes: int) -> None:
    """Gives up everything but memory, time and the two pipes. For good."""
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 3,
        resource.RLIMIT_NPROC: 0,
    }
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        raise _Unconfined("parent")
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _load_filter()


def _prctl(option: int, argument: int) -> None:
    none = ctypes.c_ulong(0)
    if ctypes.CDLL(None).prctl(option, ctypes.c_ulong(argument), none, none, none) != 0:
        raise _Unconfined(f"prctl {option}")


def _load_filter() -> None:
    machine = os.uname().machine
    if machine not in _SYSTEM_CALLS or sys.byteorder != "little":
        raise _Unconfined(machine)
    program = _filter(*_SYSTEM_CALLS[machine])
    code = ctypes.create_string_buffer(b"".join(program))

    class _Fprog(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    fprog = _Fprog(len(program), ctypes.addressof(code))
    prctl = ctypes.CDLL(None).prctl
    if prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(fprog)) != 0:
        raise _Unconfined("seccomp")


def _filter(
    arch: int, allowed: tuple[int, ...], without_exec: tuple[int, ...], denied: tuple[int, ...]
) -> list[bytes]:
    """The filter as BPF (linux/filter.h). What is not listed ends the process."""
    load, equal, any_bit, answer = 0x20, 0x15, 0x45, 0x06

    def op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("<HBBI", code, if_true, if_false, value)

    program = [
        op(load, _OFFSET_ARCH),
        op(equal, arch, 1, 0),
        op(answer, _RET_KILL),
        op(load, _OFFSET_NR),
    ]
    for number in allowed:
        program += [op(equal, number, 0, 1), op(answer, _RET_ALLOW)]
    for number in denied:
        program += [op(equal, number, 0, 1), op(answer, _RET_ERRNO)]
    for number in without_exec:
        program += [
            op(equal, number, 0, 4),
            op(load, _OFFSET_ARG_2),
            op(any_bit, _PROT_EXEC, 0, 1),
            op(answer, _RET_KILL),
            op(answer, _RET_ALLOW),
        ]
    return [*program, op(answer, _RET_KILL)]


def resize(data: bytes, max_pixels: int, box: tuple[int, int], target: str) -> tuple[Any, bytes]:
    """The picture scaled to fit inside `box`, without metadata; and as `target` bytes."""
    from PIL import Image, ImageOps

    formats = ["PNG", "JPEG", "WEBP", "GIF"]
    with Image.open(io.BytesIO(data), formats=formats) as opened:
        if opened.width * opened.height > max_pixels:
            raise ValueError("more pixels than its header said")
        orientation = opened.getexif().get(0x0112, 1)
        turned = orientation in {5, 6, 7, 8}
        width, height = _fitted(
            (opened.height, opened.width) if turned else (opened.width, opened.height), box
        )
        if opened.format == "JPEG":  # decodes at a half, a quarter or an eighth where that will do
            opened.draft(None, (height, width) if turned else (width, height))
        opened.load()
        picture = ImageOps.exif_transpose(opened) or opened
    picture = _plain(picture)
    if picture.size != (width, height):
        picture = picture.resize((width, height), Image.Resampling.LANCZOS)
    if target == "jpeg" and picture.mode == "RGBA":
        picture = _on_white(picture)
    picture.info = {}
    out = io.BytesIO()
    options: dict[str, Any] = {"jpeg": {"quality": 85}, "webp": {"quality": 80}}.get(target, {})
    picture.save(out, format=target, **options)
    return picture, out.getvalue()


def _fitted(size: tuple[int, int], box: tuple[int, int]) -> tuple[int, int]:
    """`size` scaled so that it touches `box` from inside; no side falls below one pixel."""
    width, height = size
    if width * box[1] >= height * box[0]:
        return box[0], max(1, round(height * box[0] / width))
    return max(1, round(width * box[1] / height)), box[1]


def _plain(picture: Any) -> Any:
    """In one of the modes that every target takes: L, RGB or RGBA."""
    if picture.mode.startswith("I;16"):
        picture = picture.point(lambda value: value / 256).convert("L")
    if picture.mode in {"L", "RGB", "RGBA"} and "transparency" not in picture.info:
        return picture
    alpha = "transparency" in picture.info or picture.mode in {"LA", "PA", "La", "RGBa"}
    return picture.convert("RGBA" if alpha else "RGB")


def _on_white(picture: Any) -> Any:
    from PIL import Image

    ground = Image.new("RGB", picture.size, (255, 255, 255))
    ground.paste(picture, mask=picture.getchannel("A"))
    return ground


def _read_all() -> bytes:
    parts = []
    while part := os.read(0, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _fail(error: str, reason: str) -> None:
    head = {"kind": "failed", "error": error, "reason": reason[:200]}
    _write_all(json.dumps(head).encode() + b"\n")


def main(arguments: list[str]) -> int:
    """Runs the program; returns its exit status."""
    site, *numbers, target = arguments
    parent, cpu_s, memory_bytes, max_pixels, width, height = map(int, numbers)
    sys.path.append(site)
    for name in _IMPORTED_LATE:
        importlib.import_module(name)
    from PIL import Image

    Image.preinit()
    Image.MAX_IMAGE_PIXELS = max_pixels
    warnings.simplefilter("error")
    try:
        confine(parent, cpu_s, memory_bytes)
    except (_Unconfined, OSError, ValueError):
        return EXIT_UNCONFINED
    try:
        data = _read_all()
        picture, encoded = resize(data, max_pixels, (width, height), target)
    except MemoryError:
        _fail("memory", "it needs more memory than a picture may take")
    except Exception as error:  # noqa: BLE001 - whatever a decoder raises is the picture's doing
        _fail("picture", f"{type(error).__name__}: {error}")
    else:
        head = {"kind": "made", "width": picture.width, "height": picture.height}
        _write_all(json.dumps(head).encode() + b"\n" + encoded)
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
