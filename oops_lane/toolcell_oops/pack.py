"""Packs a folder that is laid out like an artifact: how an ordinary program becomes a tool.

    folder/
      manifest.json      the manifest's fields, all but `files`; lane "oops"
      program.json       the entry point (`toolcell.program/1`)
      bin/ lib/          the program and its libraries

Owns which files go in. Runs nothing of it.
"""

from pathlib import Path

import msgspec

from toolcell.artifact.build import build_artifact
from toolcell.artifact.names import MANIFEST_NAME
from toolcell.artifact.open import read_contents
from toolcell.errors import ConfigError
from toolcell_oops.program import decode_program
from toolcell_sdk.sources import plain_files

__all__ = ["pack_folder"]

MAX_MANIFEST_BYTES = 1024 * 1024
_FOLDERS = ("bin", "lib", "app", "share")


def pack_folder(folder: Path) -> bytes:
    """The unsigned artifact of `folder`. The same files give the same bytes.

    Raises :class:`ConfigError` or :class:`ArtifactRejected` for what would be refused later.
    """
    fields = _fields(folder / MANIFEST_NAME)
    entry = str(fields.get("entry_point", "program.json"))
    paths = [folder / entry]
    for name in _FOLDERS:
        if (folder / name).is_dir():
            paths += plain_files(folder / name)
    files = {}
    for path in paths:
        try:
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
    archive = build_artifact({"lane": "oops", "entry_point": entry, **fields}, files)
    contents = read_contents(archive)
    decode_program(bytes(contents.data(entry)), contents.manifest)
    return archive


def _fields(path: Path) -> dict[str, object]:
    try:
        raw = path.read_bytes()
        if len(raw) > MAX_MANIFEST_BYTES:
            raise ConfigError(f"{path}: has {len(raw)} bytes; the limit is {MAX_MANIFEST_BYTES}")
        return msgspec.json.decode(raw, type=dict[str, object])
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: not a JSON object: {error}") from None
