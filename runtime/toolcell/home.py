"""The home: where an installation keeps its state.

Owns the layout and the rule that nobody but the owner may read or write it. Reads and writes
nothing in it: each room does that for its own files.

    home/
      registry/        content-addressed artifacts and their index
      trust.toml       publishers and their keys
      scopes.toml      scope keys (secret)
      policies/        *.toml, the operator's policy classes
      policy.key       key of the policy digest (secret)
      secrets.toml     credentials that the broker may add (secret)
      keys/            the owner's signing keys (secret)
      cache/LANE/      things that can be made again
      kv/              persistent namespaces
      scratch/         files of runs that are under way
      audit.jsonl      the audit log
      audit.key        key of its chain (secret)
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from toolcell.errors import ConfigError

__all__ = [
    "HOME_VARIABLE",
    "Home",
    "ensure_private_dir",
    "given_key",
    "link_new",
    "owner_only_key",
    "writing",
]

HOME_VARIABLE = "TOOLCELL_HOME"


class Home:
    """Paths below one home folder. `root` None: `$TOOLCELL_HOME`, else the XDG data folder.

    Creating the object creates the folder with mode 0700. A folder that belongs to somebody else,
    or that others may write to, is a :class:`ConfigError`: keys and the registry are in it.
    """

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root).resolve() if root is not None else _default_root()
        ensure_private_dir(self.root)
        self.registry = self.root / "registry"
        self.trust = self.root / "trust.toml"
        self.scopes = self.root / "scopes.toml"
        self.policies = self.root / "policies"
        self.policy_key = self.root / "policy.key"
        self.secrets = self.root / "secrets.toml"
        self.keys = self.root / "keys"
        self.kv = self.root / "kv"
        self.scratch = self.root / "scratch"
        self.audit = self.root / "audit.jsonl"
        self.audit_key = self.root / "audit.key"

    def cache(self, lane: str) -> Path:
        """The cache folder of `lane`, created with mode 0700."""
        path = self.root / "cache" / lane
        ensure_private_dir(path)
        return path


def _default_root() -> Path:
    named = os.environ.get(HOME_VARIABLE)
    if named:
        return Path(named).resolve()
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "toolcell"


def ensure_private_dir(path: Path) -> None:
    """Makes `path` (mode 0700) and refuses one that is not the owner's alone to write."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.stat()
    except OSError as error:
        raise ConfigError(
            f"{path} can't be used: {error.strerror}",
            remedy=f"name a folder of your own in ${HOME_VARIABLE}",
        ) from None
    if not stat.S_ISDIR(info.st_mode):
        raise ConfigError(f"{path} is not a folder", remedy=f"set ${HOME_VARIABLE} to a folder")
    if info.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} belongs to another user (uid {info.st_uid})",
            remedy=f"use a folder of your own: ${HOME_VARIABLE} or --home names the home",
        )
    if info.st_mode & 0o022:
        raise ConfigError(
            f"others may write to {path} (mode {stat.S_IMODE(info.st_mode):04o})",
            remedy=f"chmod 700 {path}, after a look at what is in it",
        )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Makes an `OSError` of the block a :class:`ConfigError` that names `path`.

    The kernel's own names no file where a write fails: "No space left on device", and that is all.
    `FileExistsError` passes: it is an answer.
    """
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise ConfigError(
            f"{path} can't be written: {error.strerror or error}",
            remedy="make room on its disk, or check the rights of its folder; "
            "what was there before is unchanged",
        ) from error


def owner_only_key(path: Path, size: int = 32) -> bytes:
    """The secret key in `path`, made on first use. Mode 0600 is required, never repaired.

    Two processes that make it at the same time end up with the same key: it is written aside and
    linked into place, and whoever comes second reads what the first one linked.
    """
    ensure_private_dir(path.parent)
    if not path.exists():
        with writing(path), contextlib.suppress(FileExistsError):
            link_new(path, secrets.token_bytes(size), 0o600)
    return _read_owner_only(path, size, "move it away, and a new one is made")


def given_key(path: Path, size: int = 32) -> bytes:
    """The secret key in `path`, which somebody named: never made, and never to be thrown away."""
    return _read_owner_only(path, size, "name the file of the right key")


def link_new(path: Path, data: bytes, mode: int) -> None:
    """Writes the file `path`, which must not exist yet: it is there with all of `data`, or not.

    Written beside it and linked into place. `FileExistsError` where it exists, `OSError` where it
    can't be written; nothing is left then.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(aside, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(aside, path)
    finally:
        aside.unlink()


def _read_owner_only(path: Path, size: int, otherwise: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise ConfigError(
                f"{path} holds a secret, and others may read it (mode {info.st_mode & 0o777:o})",
                remedy=f"chmod 600 {path}, or {otherwise}",
            )
        key = file.read(size + 1)
    if len(key) != size:
        raise ConfigError(
            f"{path} has {len(key)} bytes, a key has {size}",
            remedy=otherwise,
        )
    return key
