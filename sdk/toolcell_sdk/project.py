"""`tool.toml`: a tool's project file, read strictly.

Owns the fields, their bounds and their messages; an unknown field is an error that names it. It
mirrors the manifest, which the runtime makes from it (`toolcell.artifact.manifest`). Runs no code
of the project.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolcell_sdk.errors import ProjectError
from toolcell_sdk.plain_file import read_plain_file
from toolcell_sdk.wit import CAPABILITIES

__all__ = ["PROJECT_FILE", "Project", "load_project"]

PROJECT_FILE = "tool.toml"
MAX_PROJECT_FILE_BYTES = 16 * 1024
"""tomllib takes time with the square of a dotted key: 1 s for this much, 20 s for 64 KiB."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NUMBER = r"(0|[1-9][0-9]{0,8})"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-(a|b|rc)\.?[0-9]{{1,8}})?")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LARGEST = 2**53

LIMITS = (
    "cpu_time_ms",
    "wall_time_ms",
    "memory_mb",
    "max_processes",
    "max_open_files",
    "max_output_bytes",
    "max_log_bytes",
    "scratch_mb",
    "fuel",
)
"""The fields of `[limits]`: whole numbers from 1. A figure can only lower the policy's."""


@dataclass(frozen=True, slots=True)
class Project:
    """A tool's project. `folder` is where `tool.toml` lies; paths are relative to it."""

    folder: Path
    id: str
    name: str
    version: str
    module: str
    description: str = ""
    lane: str = "wasi"
    policy_class: str = "safe-default"
    capabilities: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    sandbox: Mapping[str, Any] = field(default_factory=dict)


_Check = Callable[[Any], str]
"""What is wrong with a value, or the empty string."""


def _text(pattern: re.Pattern[str] | None, what: str, limit: int) -> _Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or (pattern and not pattern.fullmatch(value)):
            return f"is {value!r:.80}; it must be {what}"
        if len(value) > limit:
            return f"has {len(value)} characters; the limit is {limit}"
        return ""

    return check


def _choice(*values: str) -> _Check:
    words = ", ".join(f'"{value}"' for value in values)
    return lambda value: "" if value in values else f"is {value!r:.80}; it must be one of {words}"


def _names(check_one: _Check) -> _Check:
    def check(value: Any) -> str:
        if not isinstance(value, list):
            return f"is {value!r:.80}; it must be a list of strings"
        if len(set(map(str, value))) != len(value):
            return "lists an entry twice"
        return next((problem for entry in value if (problem := check_one(entry))), "")

    return check


def _capability(value: Any) -> str:
    if value in CAPABILITIES:
        return ""
    near = difflib.get_close_matches(str(value), CAPABILITIES, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(CAPABILITIES)}"
    return f"names {value!r:.80}, which does not exist; {hint}"


def _folder(value: Any) -> str:
    parts = Path(str(value)).parts
    if isinstance(value, str) and parts and ".." not in parts and not Path(value).is_absolute():
        return ""
    return f"names {value!r:.80}; it must be a folder inside the project"


def _limit(value: Any) -> str:
    if type(value) is int and 1 <= value <= _LARGEST:
        return ""
    return f"is {value!r:.80}; it must be a whole number from 1"


def _truth(value: Any) -> str:
    return "" if isinstance(value, bool) else f"is {value!r:.80}; it must be true or false"


_DASHED = "lower-case letters, digits and single dashes, starting with a letter"
_TOOL: dict[str, _Check] = {
    "id": _text(_UUID, "a UUID in lower case", 36),
    "name": _text(_NAME, _DASHED, 64),
    "version": _text(_VERSION, "MAJOR.MINOR.PATCH, and -a1, -b1 or -rc1 before a release", 40),
    "description": _text(None, "a string", 4000),
    "module": _text(_MODULE, "the name of a Python module in this folder", 64),
    "lane": _choice("wasi", "oops"),
    "policy_class": _text(_NAME, _DASHED, 64),
    "capabilities": _names(_capability),
    "python_path": _names(_folder),
}
_REQUIRED = ("id", "name", "version", "module")
_LIMITS: dict[str, _Check] = dict.fromkeys(LIMITS, _limit)
_SANDBOX: dict[str, _Check] = {
    "required": _truth,
    "backend": _choice("", "wasi", "oops", "gvisor", "microvm", "trusted-local"),
    "filesystem": _choice("read-only-package", "ephemeral", "host"),
    "network": _choice("off", "outbound-https-only", "full"),
}
_TABLES = {"tool": _TOOL, "limits": _LIMITS, "sandbox": _SANDBOX}


def load_project(path: Path | str) -> Project:
    """Reads the project in the folder `path` (or at the `tool.toml` itself).

    Raises :class:`ProjectError`, which names file, table, field, value and what would do.
    """
    file = Path(path)
    if file.is_dir():
        file = file / PROJECT_FILE
    tables = _read(file)
    for name, table in tables.items():
        _check_table(file, name, table)
    tool: dict[str, Any] = tables.get("tool", {})
    for name in _REQUIRED:
        if name not in tool:
            raise ProjectError(f"{file}: [tool] has no `{name}`; it needs {', '.join(_REQUIRED)}")
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in tool.items()
    }
    fields |= {"limits": tables.get("limits", {}), "sandbox": tables.get("sandbox", {})}
    return Project(folder=file.parent, **fields)


def _read(file: Path) -> dict[str, Any]:
    try:
        raw = read_plain_file(file, MAX_PROJECT_FILE_BYTES)
    except FileNotFoundError:
        raise ProjectError(
            f"{file}: no such file; `toolcell new NAME` starts a tool with one"
        ) from None
    except OSError as error:
        raise ProjectError(f"{file}: {error.strerror}") from None
    if len(raw) > MAX_PROJECT_FILE_BYTES:
        limit = MAX_PROJECT_FILE_BYTES
        raise ProjectError(f"{file}: is too large; the limit is {limit} bytes")
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise ProjectError(f"{file}: not valid TOML: {error}") from None


def _check_table(file: Path, name: str, table: Any) -> None:
    checks = _TABLES.get(name)
    if checks is None:
        raise ProjectError(f"{file}: unknown table [{name}]; known: {', '.join(_TABLES)}")
    if not isinstance(table, dict):
        raise ProjectError(f"{file}: `{name}` must be a table: write [{name}]")
    for key, value in table.items():
        if key not in checks:
            near = difflib.get_close_matches(key, checks, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(checks)}"
            raise ProjectError(f"{file}: [{name}] has an unknown field `{key}`; {hint}")
        if problem := checks[key](value):
            raise ProjectError(f"{file}: [{name}] `{key}` {problem}")
