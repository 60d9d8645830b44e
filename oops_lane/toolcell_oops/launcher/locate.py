"""Finds the program `toolcell-native`.

Owns the order: the wheel's scripts folder, then the newest build in the source tree, then `PATH`. A
program that somebody else could have written is not taken.
"""

import os
import shutil
import stat
import sysconfig
from pathlib import Path

from toolcell.errors import LaneUnavailable

__all__ = ["PROGRAM", "locate"]

PROGRAM = "toolcell-native"
_SOURCE_TREE = Path(__file__).parents[3]


def locate(configured: str = "") -> Path:
    """The program; `configured` is the lane's setting `launcher`, which comes before all others.

    :class:`LaneUnavailable` where there is none, or where others may write to it.
    """
    places = [Path(configured)] if configured else list(_places())
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            path = place.resolve()
            _require_safe(path)
            return path
    raise LaneUnavailable(
        f"the launcher `{PROGRAM}` is not installed",
        remedy="pip install ./native, or cargo build --release in native/",
        details={"feature": "launcher"},
    )


def _places() -> list[Path]:
    found = [Path(sysconfig.get_path("scripts")) / PROGRAM]
    built = (_SOURCE_TREE / "native" / "target" / kind / PROGRAM for kind in ("release", "debug"))
    found += sorted(filter(Path.is_file, built), key=lambda path: -path.stat().st_mtime)
    on_path = shutil.which(PROGRAM)
    return [*found, Path(on_path)] if on_path else found


def _require_safe(path: Path) -> None:
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LaneUnavailable(
            f"`{PROGRAM}` belongs to somebody else, or others may write to it",
            remedy="chmod go-w it, and let it belong to root or to you",
            details={"feature": "launcher"},
        )
