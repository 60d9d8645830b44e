"""Copies what goes into a component to a folder of its own, with bounds.

Owns the layout of a build folder. The compiler sees only the copy, so nothing is left behind in the
author's folder and nothing else of the machine gets in. Called by `build`.
"""

import itertools
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import toolcell_sdk
from toolcell_sdk import wit
from toolcell_sdk.errors import BuildError, ProjectError
from toolcell_sdk.project import Project
from toolcell_sdk.sources import author_files, plain_files, vendored_folder

__all__ = ["Staged", "flatten", "stage"]

MAX_SOURCE_BYTES = 64 * 1024 * 1024
MAX_SOURCE_FILES = 10_000

ENTRY_MODULE = "toolcell_entry"
_DESCRIPTION = "description.json"

GUEST_PARTS = (
    "__init__.py",
    "capabilities",
    "component.py",
    "dispatch.py",
    "errors.py",
    "methods.py",
    "shapes",
    "transport.py",
)
"""The part of the SDK that lives in a component."""

_ENTRY = """\
try:
    import {module}
except SystemExit as error:
    # It would end the compiler's guest without a word.
    raise RuntimeError(f"the module called sys.exit({{error.code!r}})") from None

from toolcell_sdk.component import Guest, seal

__all__ = ["Guest"]

seal({description!r})
"""


@dataclass(slots=True)
class Staged:
    """A build folder. `mounts` become `/0`, `/1`, … in the interpreter: source, SDK, vendored."""

    root: Path
    mounts: list[Path] = field(default_factory=list)

    @property
    def wit(self) -> Path:
        """The tool's world."""
        return self.root / "wit"

    @property
    def component(self) -> Path:
        """Where the compiler writes."""
        return self.root / "tool.wasm"

    @property
    def description(self) -> Path:
        """Where the component leaves its methods, while its snapshot is taken."""
        return self.mounts[1] / _DESCRIPTION

    @property
    def temporary(self) -> Path:
        """The compiler's TMPDIR."""
        return self.root / "tmp"


def stage(project: Project, root: Path) -> Staged:
    """Lays the build folder out under `root`, which is empty and resolved.

    Raises :class:`ProjectError` for a module that is not there, a link, or too much source.
    """
    staged = Staged(root)
    staged.temporary.mkdir()
    budget = _Budget()
    source = root / "source"
    for file in author_files(project):
        budget.copy(file, source / file.relative_to(project.folder))
    sdk = root / "sdk"
    here = Path(toolcell_sdk.__file__).parent
    for part in GUEST_PARTS:
        for file in plain_files(here / part):
            budget.copy(file, sdk / "toolcell_sdk" / file.relative_to(here))
    entry = _ENTRY.format(module=project.module, description=f"/1/{_DESCRIPTION}")
    (sdk / f"{ENTRY_MODULE}.py").write_text(entry, encoding="utf-8")
    staged.mounts = [source, sdk]
    for index, name in enumerate(project.python_path):
        folder = vendored_folder(project, name)
        target = root / f"vendored-{index}"
        target.mkdir()
        for file in plain_files(folder):
            budget.copy(file, target / file.relative_to(folder))
        staged.mounts.append(target)
    wit.write_world(staged.wit, project.capabilities)
    return staged


def flatten(root: Path) -> None:
    """Moves each folder below `root` to the top of it, so that no depth is left to its removal.

    The guest of a build may nest folders deeper than `shutil.rmtree` can recurse.
    """
    top = root / "flat"
    top.mkdir()
    pending = [root]
    numbers = itertools.count()
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as entries:
            inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        pending += [
            Path(path).rename(top / str(next(numbers))) for path in inner if path != str(top)
        ]


class _Budget:
    """Copies, until there is too much."""

    def __init__(self) -> None:
        self._bytes = 0
        self._files = 0

    def copy(self, file: Path, target: Path) -> None:
        if file.is_symlink():
            raise ProjectError(f"{file}: a link; the source of a tool holds plain files only")
        self._files += 1
        self._bytes += file.stat().st_size
        if self._files > MAX_SOURCE_FILES:
            raise BuildError(f"the source has more than {MAX_SOURCE_FILES} files, at {file}")
        if self._bytes > MAX_SOURCE_BYTES:
            raise BuildError(f"the source has more than {MAX_SOURCE_BYTES} bytes, at {file}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
