"""Making and signing artifacts.

Owns the way from files to an archive, and from an archive to a signed one. What it makes is opened
again by the reader's own rules before it is handed out, so nothing can be built that would be
refused later. Used by `toolcell build` and `toolcell sign`.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from toolcell.artifact.archive import write_archive
from toolcell.artifact.manifest import Manifest, decode_manifest
from toolcell.artifact.names import MANIFEST_NAME, SIGNATURE_NAME
from toolcell.artifact.open import read_contents
from toolcell.artifact.schema import MethodSchemas
from toolcell.artifact.shown import shown
from toolcell.artifact.signature import sign_manifest
from toolcell.errors import ArtifactRejected
from toolcell.trust.keys import SigningKey

__all__ = ["artifact_file_name", "build_artifact", "sign_artifact"]


def build_artifact(fields: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """An unsigned artifact of `files`, with the manifest `fields` (all but `files`).

    The same arguments give the same bytes. :class:`ArtifactRejected` for a field, name, size or
    schema that the reader would refuse.
    """
    reserved = sorted({MANIFEST_NAME, SIGNATURE_NAME} & files.keys())
    if reserved:
        raise ArtifactRejected(
            f"`{reserved[0]}` is a name that every artifact has already",
            remedy="name the file otherwise",
            status=400,
            details={"reason": "reserved_name"},
        )
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    try:
        manifest = msgspec.convert({**fields, "files": digests}, Manifest)
    except (msgspec.ValidationError, TypeError) as error:
        raise ArtifactRejected(
            f"the manifest is not valid: {shown(str(error))}",
            remedy="correct the tool's project file",
            status=400,
            details={"reason": "manifest"},
        ) from None
    raw = manifest.to_bytes()
    MethodSchemas(decode_manifest(raw))
    return write_archive({**files, MANIFEST_NAME: raw})


def sign_artifact(archive: bytes, key: SigningKey) -> bytes:
    """`archive` with the signature of `key`, which takes the place of one that was there.

    The archive is checked as on opening, but for the old signature.
    """
    contents = read_contents(archive)
    contents.check_files()
    MethodSchemas(contents.manifest)
    files = {name: contents.data(name) for name in contents.spans}
    files[SIGNATURE_NAME] = sign_manifest(contents.manifest, key)
    return write_archive(files)


def artifact_file_name(manifest: Manifest) -> str:
    """`NAME-VERSION.tool`."""
    return f"{manifest.name}-{manifest.version}.tool"
