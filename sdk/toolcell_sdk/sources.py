"""Which files of a project are part of the tool.

Its modules and packages; never its tests, its documents or its build. Shared by the linter, which
reads them, and the builder, which copies them. Opens no file.
"""

from collections.abc import Iterator
from pathlib import Path

from toolcell_sdk.errors import ProjectError
from toolcell_sdk.project import Project

__all__ = ["author_files", "plain_files", "vendored_folder"]

_NOT_SOURCE = frozenset({"__pycache__", "build", "tests", "node_modules"})


def author_files(project: Project) -> list[Path]:
    """The tool's own source, sorted: its modules, and its packages with all that is in them."""
    folder = project.folder
    files = [
        file
        for path in sorted(folder.glob("*.py"))
        if not path.name.startswith("test_") and path.name != "conftest.py"
        for file in plain_files(path)
    ]
    vendored = {Path(name).parts[0] for name in project.python_path}
    for package in sorted(folder.iterdir()):
        if (package / "__init__.py").is_file() and package.name not in vendored | _NOT_SOURCE:
            files += plain_files(package)
    if not any(file in files for file in _module_files(project)):
        places = " or ".join(str(file) for file in _module_files(project))
        raise ProjectError(f"{places}: no such file; `module` in tool.toml names it")
    return files


def _module_files(project: Project) -> tuple[Path, Path]:
    return (
        project.folder / f"{project.module}.py",
        project.folder / project.module / "__init__.py",
    )


def vendored_folder(project: Project, name: str) -> Path:
    """The folder `name` of `python_path`. No part of the way to it may be a link, which could lead
    out of the project: whoever builds it would pack files of their own into the tool.
    """
    folder = project.folder
    for part in Path(name).parts:
        folder /= part
        if folder.is_symlink():
            raise _linked(folder)
    if not folder.is_dir():
        raise ProjectError(f"{folder}: no such folder; `python_path` in tool.toml names it")
    return folder


def plain_files(path: Path) -> Iterator[Path]:
    """All files at and below `path`, sorted. A link is refused: it could leave the project."""
    if path.is_symlink():
        raise _linked(path)
    if path.is_dir():
        for child in sorted(path.iterdir()):
            if child.name not in {"__pycache__", ".git"} and child.suffix != ".pyc":
                yield from plain_files(child)
    elif path.is_file():
        yield path


def _linked(path: Path) -> ProjectError:
    return ProjectError(f"{path}: a link; the source of a tool holds plain files only")
