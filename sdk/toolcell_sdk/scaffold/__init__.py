"""`toolcell new`: starts a tool from a template.

Owns the names that a template may use. Writes a whole new folder or nothing. The templates are in
`templates/`, one folder per language; a file's name loses its `.in`.
"""

import re
import shutil
import tempfile
import uuid
from pathlib import Path
from string import Template

from toolcell_sdk.errors import ProjectError
from toolcell_sdk.module_names import safe_module_name

__all__ = ["TEMPLATES", "new"]

_TEMPLATE_FOLDER = Path(__file__).parent / "templates"
TEMPLATES = ("python",)
"""What `new(template=...)` takes."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MAX_NAME_CHARACTERS = 64


def new(path: Path | str, *, template: str = "python", name: str = "") -> list[Path]:
    """Makes the folder `path` with a tool that builds and passes its tests. Returns its files.

    `name` defaults to the folder's; the module is named after it, `tool_` before it where Python or
    the test kit has the name already. The tool gets a random id of its own. Raises
    :class:`ProjectError` for a name that a manifest can't hold, or a folder that is there already.
    """
    folder = Path(path)
    name = name or folder.name
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME_CHARACTERS:
        raise ProjectError(
            f"{name!r} can't be a tool's name: lower-case letters, digits and single dashes, "
            f"starting with a letter, at most {_MAX_NAME_CHARACTERS}"
        )
    if template not in TEMPLATES:
        raise ProjectError(f"no template `{template}`; known: {', '.join(TEMPLATES)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectError(f"{folder}: is there already; `toolcell new` makes a new folder")
    values = {"name": name, "module": safe_module_name(name), "id": str(uuid.uuid4())}
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target and renamed at the end: half a tool is never seen.
    making = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        for source in sorted((_TEMPLATE_FOLDER / template).iterdir()):
            target = making / Template(source.name.removesuffix(".in")).substitute(values)
            text = Template(source.read_text(encoding="utf-8")).substitute(values)
            target.write_text(text, encoding="utf-8")
        making.chmod(0o755)
        making.replace(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return sorted(folder.iterdir())
