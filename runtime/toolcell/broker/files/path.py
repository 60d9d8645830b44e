"""Paths as a tool writes them: `/scratch/…`, taken apart before the file system sees them.

Owns the syntax and its bounds. What comes out is a tuple of plain names; `..` and links can't be
among them, so a path can't lead out even before the kernel checks it again.
"""

from toolcell.broker.call import Refusal, shown
from toolcell.errors import Status

__all__ = ["MAX_DEPTH", "MAX_NAME_BYTES", "parts_of"]

MAX_DEPTH = 16
"""Names in a path below `/scratch`."""
MAX_NAME_BYTES = 255  # NAME_MAX, limits.h

_ROOT = "scratch"


def parts_of(path: str) -> tuple[str, ...]:
    """The names of `path` below `/scratch`; none for `/scratch` itself.

    `//` and `.` are dropped and `..` takes a name back. A :class:`Refusal` where the path leads
    outside (403) or a name is not one (400).
    """
    if not path.startswith("/"):
        raise Refusal(
            "path",
            f"`{shown(path)}` is not an absolute path",
            status=Status.MALFORMED,
            remedy="write /scratch/…",
        )
    names: list[str] = []
    for name in path.split("/"):
        if name in {"", "."}:
            continue
        if name == "..":
            if len(names) <= 1:
                raise _outside(path)
            names.pop()
            continue
        _check_name(name)
        names.append(name)
        if names[0] != _ROOT:
            raise _outside(path)
        if len(names) > MAX_DEPTH + 1:
            raise Refusal(
                "path",
                f"`{shown(path)}` is more than {MAX_DEPTH} folders deep",
                status=Status.TOO_LARGE,
            )
    if not names:
        raise _outside(path)
    return tuple(names[1:])


def _check_name(name: str) -> None:
    if any(char < " " or char == "\x7f" for char in name):
        raise Refusal("path", f"`{shown(name)}` holds a control character", status=Status.MALFORMED)
    if len(name.encode()) > MAX_NAME_BYTES:
        raise Refusal(
            "path",
            f"a name of {len(name.encode())} bytes; the limit is {MAX_NAME_BYTES}",
            status=Status.TOO_LARGE,
        )


def _outside(path: str) -> Refusal:
    return Refusal(
        "path.outside",
        f"`{shown(path)}` is not below /scratch",
        status=Status.NOT_GRANTED,
        remedy="files live in /scratch",
    )
