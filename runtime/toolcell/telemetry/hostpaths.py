"""Which folders of this host must not show in a log, and what is shown instead.

Owns the list and how a prefix is recognised in a text. Used by `toolcell.telemetry.redact` only.
"""

import os
import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

import toolcell
from toolcell.home import Home

__all__ = ["host_paths", "path_pattern"]

_SAID_TOO_OFTEN = ("", "/", "/usr", "/usr/local", ".")
"""They are no secret, and half of all paths begin with one."""


def host_paths(home: Home | None) -> dict[str | os.PathLike[str], str]:
    """Prefix -> what to show: this process's folders and, where given, those of `home`."""
    named: list[tuple[str | os.PathLike[str], str]] = [
        (_working_folder(), "<cwd>"),
        ("/tmp", "<tmp>"),  # noqa: S108 - named to be hidden, not used
        ("/var/tmp", "<tmp>"),  # noqa: S108
        (tempfile.gettempdir(), "<tmp>"),
        (os.path.expanduser("~"), "<home>"),  # noqa: PTH111 - Path.home() raises without a home
        (sys.prefix, "<python>"),
        (sysconfig.get_path("stdlib"), "<python-lib>"),
        (site.getusersitepackages(), "<site-packages>"),
        (sysconfig.get_path("platlib"), "<site-packages>"),
        (sysconfig.get_path("purelib"), "<site-packages>"),
        (Path(toolcell.__file__).parent, "<toolcell>"),
    ]
    if home is not None:
        named += [(home.root, "<toolcell-home>"), (home.registry, "<registry>")]
    paths: dict[str | os.PathLike[str], str] = {}
    for path, name in named:
        for spelling in (os.fspath(path), str(Path(path).resolve())):
            if spelling.rstrip("/") not in _SAID_TOO_OFTEN:
                paths[spelling.rstrip("/")] = name
    return paths


def path_pattern(shown: Mapping[str, str]) -> re.Pattern[str] | None:
    """Matches each prefix as whole path components: `/tmp` is not in `/tmpfs` or `x/tmp`."""
    if not shown:
        return None
    ordered = sorted(shown, key=len, reverse=True)
    return re.compile(rf"(?<![\w.\-])(?:{'|'.join(map(re.escape, ordered))})(?![\w\-])")


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # somebody has removed it
        return ""
