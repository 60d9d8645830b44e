"""The folder of base trees: found by digest, checked before use, made when missing.

Owns the layout and the belief: a tree is used only after its digest was computed in this process
and is the one in its name. One that is not is thrown away and made again, or refused where it came
from the operator.

    folder/
      trees/DIGEST/            a sealed tree
      NAME-FINGERPRINT         the digest of what the recipe NAME made
"""

import contextlib
import os
import re
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from toolcell.errors import ArtifactRejected, ConfigError
from toolcell.home import ensure_private_dir
from toolcell.lane import WarnHook
from toolcell_oops.base.recipes import RECIPES, fingerprint
from toolcell_oops.base.tree import discard, seal, tree_digest

__all__ = ["Base", "BaseStore"]

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Base(Struct, frozen=True):
    """A checked tree. `folders` are the names at its top, which a cell gets one by one."""

    name: str
    digest: str
    root: Path
    folders: tuple[str, ...]


class BaseStore:
    """Bases by name. Thread-safe; any number of processes may share the folder.

    `own` maps a name to `{"path": …, "digest": …}`, an operator's tree that is used where it is.
    """

    def __init__(
        self, folder: Path, own: Mapping[str, tuple[Path, str]], warn: WarnHook | None
    ) -> None:
        self._folder = folder
        self._trees = folder / "trees"
        self._own = own
        self._warn = warn
        self._lock = threading.Lock()
        self._checked: dict[str, Base] = {}
        ensure_private_dir(folder)
        ensure_private_dir(self._trees)

    def get(self, name: str) -> Base:
        """The base `name`, checked in this process. Making `python` takes some seconds."""
        with self._lock:
            base = self._checked.get(name)
            if base is None:
                base = self._checked[name] = self._find(name)
            return base

    def _find(self, name: str) -> Base:
        if name in self._own:
            return self._operators(name, *self._own[name])
        if name not in RECIPES:
            known = ", ".join(sorted({*RECIPES, *self._own}))
            raise ArtifactRejected(
                f"it runs on the base `{name}`, which is not here; known: {known}",
                remedy="name the folder in the setting `bases` of the oops lane",
                details={"reason": "base"},
            )
        pointer = self._folder / f"{name}-{fingerprint(name)}"
        return self._kept(name, pointer) or self._made(name, pointer)

    def _operators(self, name: str, root: Path, digest: str) -> Base:
        if not root.is_dir():
            raise ConfigError(f"the base `{name}` is not a folder: {root}")
        found = tree_digest(root)
        if found != digest:
            raise ConfigError(
                f"the base `{name}` has the digest {found}, not the configured one",
                remedy="look at what was changed in it; then configure the new digest",
            )
        return _base(name, digest, root)

    def _kept(self, name: str, pointer: Path) -> Base | None:
        try:
            digest = pointer.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
        root = self._trees / digest
        if not _DIGEST.fullmatch(digest) or not root.is_dir():
            return None
        if tree_digest(root) == digest:
            return _base(name, digest, root)
        if self._warn is not None:
            self._warn("oops.base_altered", f"the base `{name}` was altered on disk: made again")
        discard(root)
        return None

    def _made(self, name: str, pointer: Path) -> Base:
        making = self._trees / f".making-{os.getpid()}-{secrets.token_hex(8)}"
        making.mkdir(mode=0o700)
        try:
            RECIPES[name](making)
            seal(making)
            digest = tree_digest(making)
            root = self._trees / digest
            making.chmod(0o755)  # to rename a folder, its `..` must be writable
            try:
                making.rename(root)
            except OSError:
                if tree_digest(root) != digest:  # not somebody's who was faster
                    raise
            root.chmod(0o555)
        finally:
            discard(making)
        beside = pointer.with_name(f".{pointer.name}-{secrets.token_hex(8)}")
        beside.write_text(digest, encoding="ascii")
        with contextlib.suppress(FileNotFoundError):
            beside.replace(pointer)
        return _base(name, digest, root)


def _base(name: str, digest: str, root: Path) -> Base:
    return Base(name, digest, root, tuple(sorted(entry.name for entry in root.iterdir())))
