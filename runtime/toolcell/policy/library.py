"""The policies that are in force at one moment: shipped classes, the home's files, named files.

Owns the loading of all of them into one immutable catalog per file named, and the stamps by which
a change is noticed. It composes nothing. Called by `toolcell.policy.book`.
"""

import threading
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from toolcell.errors import ConfigError
from toolcell.policy.classes import Catalog, extend, nearest, shipped
from toolcell.policy.compose import Grant
from toolcell.policy.document import Document, Problem, parse, refuse
from toolcell.policy.files import PolicyFile, Stamp, policy_files, read_policy_file, stamp_of

__all__ = ["Library", "NamedFile", "beside", "is_file_name", "together"]

MAX_NAMED_FILES = 256
"""Files outside the home that one library keeps; naming one more is refused."""


class NamedFile(Struct, frozen=True, kw_only=True):
    """A file that a call named: its own classes, and the one that is meant where none is named.

    `catalog` has the home's entries too. The file's names hide those of the home, never the
    shipped ones.
    """

    catalog: Catalog
    classes: tuple[str, ...]
    policy: str | None


class Library:
    """A snapshot of every policy, loaded whole. Immutable but for files that calls name later.

    `folder` None: no home, the shipped classes only. Any problem in the folder is a
    :class:`ConfigError` here: one bad file stops them all, because a policy that silently is not
    there could be the one that narrows.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._named: dict[Path, NamedFile] = {}
        self._paths = tuple(policy_files(folder)) if folder is not None else ()
        read = [read_policy_file(path, ours=True) for path in self._paths]
        self._stamps: dict[Path, Stamp] = {file.path: file.stamp for file in read}
        self.catalog, problems = together(read)
        refuse(problems)

    def file(self, path: Path) -> NamedFile:
        """What `path` holds, next to the home's policies. Read once."""
        with self._lock:
            known = self._named.get(path)
            if known is None:
                if len(self._named) >= MAX_NAMED_FILES:
                    raise ConfigError(
                        f"more than {MAX_NAMED_FILES} policy files were named",
                        remedy="put them into the home's `policies/` and name their classes",
                    )
                known = self._named[path] = self._load_named(path)
            return known

    def _load_named(self, path: Path) -> NamedFile:
        file = read_policy_file(path, ours=False)
        document, catalog, problems = beside(self.catalog, file)
        refuse(problems)
        self._stamps[path] = file.stamp
        own = tuple(spec.name for spec in document.classes)
        policy = document.policy or (own[0] if len(own) == 1 else None)
        return NamedFile(catalog=catalog, classes=own, policy=policy)

    def changed(self) -> bool:
        """Whether a file was added, removed or altered since it was read. Stats, reads nothing."""
        paths = tuple(policy_files(self._folder)) if self._folder is not None else ()
        if paths != self._paths:
            return True
        with self._lock:
            stamps = list(self._stamps.items())
        return any(stamp_of(path) != stamp for path, stamp in stamps)

    def grant(self, reference: str | Path) -> Grant:
        """The class of that name; or of that file, `FILE#NAME` where it has several.

        A string is a file where it has a `/` or ends in `.toml`.
        """
        if isinstance(reference, str) and not is_file_name(reference):
            return _named(self.catalog, reference)
        name, _, choice = str(reference).partition("#")
        file = self.file(Path(name).absolute())
        chosen = choice or file.policy
        if chosen in file.classes:
            return file.catalog.grants[chosen]
        listed = ", ".join(f"{name}#{each}" for each in file.classes[:10])
        raise ConfigError(
            f"{name} has no class `{choice[:80]}`"
            if choice
            else f"{name} does not say which policy is meant: it has {len(file.classes)} classes",
            remedy=f"name one: {listed}" if listed else "write fields or [classes.NAME] into it",
        )

    def catalog_of(self, reference: str | Path | None) -> Catalog:
        """Where the masks of a call under `reference` are looked up."""
        if reference is None or (isinstance(reference, str) and not is_file_name(reference)):
            return self.catalog
        return self.file(Path(str(reference).partition("#")[0]).absolute()).catalog


def is_file_name(reference: str) -> bool:
    """Whether `reference` names a file rather than a class."""
    return "/" in reference or reference.partition("#")[0].endswith(".toml")


def together(files: Iterable[PolicyFile]) -> tuple[Catalog, list[Problem]]:
    """The shipped classes and the files of a home, which may extend each other's classes."""
    together, problems = Document(), list[Problem]()
    for file in files:
        document, found = parse(file.raw, f"policies/{file.path.name}", file.path.stem)
        together.classes += document.classes
        together.masks += document.masks
        problems += found
    catalog, found = extend(shipped(), together)
    return catalog, [*problems, *found]


def beside(home: Catalog, file: PolicyFile) -> tuple[Document, Catalog, list[Problem]]:
    """`home` and a named file, whose names hide those of the home but not the shipped ones."""
    document, problems = parse(file.raw, str(file.path), file.path.stem)
    own = set(document.names()) - set(shipped().entries())
    base = Catalog(
        grants={name: grant for name, grant in home.grants.items() if name not in own},
        masks={name: mask for name, mask in home.masks.items() if name not in own},
    )
    catalog, found = extend(base, document)
    return document, catalog, [*problems, *found]


def _named(catalog: Catalog, name: str) -> Grant:
    grant = catalog.grants.get(name)
    if grant is not None:
        return grant
    if name in catalog.masks:
        raise ConfigError(
            f"`{name}` is a mask, and a mask grants nothing", remedy=f"use --mask {name}"
        )
    raise ConfigError(
        f"no policy class `{name[:80]}`",
        remedy=f"{nearest(name, catalog.grants)}; or name a file (*.toml)",
    )
