"""Names of the files in an artifact: which are allowed, and which clash.

Owns one rule for writer and reader. A name that passes means the same file on every system: no
path can leave the folder that an artifact is unpacked in, and no two names meet there.
"""

import itertools
import re
from collections.abc import Sequence

from toolcell.errors import ArtifactRejected

__all__ = ["MANIFEST_NAME", "MAX_NAME_BYTES", "SIGNATURE_NAME", "check_names"]

MANIFEST_NAME = "manifest.json"
SIGNATURE_NAME = "signature.dsse.json"
MAX_NAME_BYTES = 200

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+/-]*", re.ASCII)


def check_names(names: Sequence[str]) -> None:
    """Refuses a name that is unsafe, that comes twice, or that is out of order (byte order).

    Names that differ in case only, or where one is a folder in the other, clash: on a file system
    that folds case they would be one file, and what is run would depend on the machine.
    """
    for name in names:
        _check_name(name)
    for before, after in itertools.pairwise(names):
        if before == after:
            raise _rejected("duplicate_name", f"`{after}` is in the archive twice")
        if before > after:
            raise _rejected("name_order", f"`{after}` comes after `{before}`; names are sorted")
    _check_clashes(names)


def _check_name(name: str) -> None:
    shown = name[:MAX_NAME_BYTES]
    if len(name) > MAX_NAME_BYTES:
        raise _rejected(
            "name_length", f"`{shown}…` has {len(name)} characters; the limit is {MAX_NAME_BYTES}"
        )
    if not _NAME.fullmatch(name):
        raise _rejected(
            "unsafe_name",
            f"{shown!a} is not a file name that an artifact may have (letters, digits, `._+-/`; "
            "no leading `/` or `.`)",
        )
    if any(part in ("", ".", "..") or part.endswith(".") for part in name.split("/")):
        raise _rejected("unsafe_name", f"`{shown}` has an empty part, or one that ends in a dot")


def _check_clashes(names: Sequence[str]) -> None:
    """Each path, folders included, must have one spelling and be a file or a folder, not both."""
    spelled: dict[str, tuple[str, bool]] = {}
    for name in names:
        parts = name.split("/")
        for depth in range(1, len(parts) + 1):
            path, is_file = "/".join(parts[:depth]), depth == len(parts)
            other, other_is_file = spelled.setdefault(path.lower(), (path, is_file))
            if other != path:
                raise _rejected("case_clash", f"`{path}` and `{other}` differ in case only")
            if is_file != other_is_file:
                raise _rejected("file_and_folder", f"`{path}` is a file and a folder")


def _rejected(reason: str, message: str) -> ArtifactRejected:
    return ArtifactRejected(
        message,
        remedy="build the artifact again with `toolcell build`",
        status=400,
        details={"reason": reason},
    )
