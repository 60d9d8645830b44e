"""Opening an artifact: from bytes that nobody vouches for to a verified artifact.

Owns the order of the checks and the object that is handed out. The bytes are read once, and the
bytes that were checked are the ones that are handed out; no path is looked up a second time. Runs
and compiles nothing of the artifact. Used by the registry, the runtime and the command line.

The order is from cheap and simple to costly and intricate, and what reads a publisher's text comes
after the proof of who that is: container, manifest, signature, digests of the files, schemas.
"""

import hashlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, structs

from toolcell.artifact.archive import MAX_ARCHIVE_BYTES, Span, check_size, read_archive
from toolcell.artifact.manifest import Manifest, decode_manifest
from toolcell.artifact.names import MANIFEST_NAME, SIGNATURE_NAME
from toolcell.artifact.schema import check_schemas
from toolcell.artifact.signature import manifest_digest, verify_signature
from toolcell.errors import ArtifactRejected
from toolcell.trust.plain_file import open_plain_file
from toolcell.trust.store import TrustedKey, TrustStore

__all__ = ["Contents", "VerifiedArtifact", "open_artifact", "read_artifact_file", "read_contents"]


class Contents(Struct, frozen=True):
    """A well-formed archive and its manifest. Not believed: see :func:`open_artifact`."""

    raw: bytes
    spans: Mapping[str, Span]
    manifest: Manifest
    digest: str

    def data(self, name: str) -> bytes:
        """The bytes of the file `name`, which is in `spans`."""
        span = self.spans[name]
        return self.raw[span.offset : span.offset + span.size]

    @property
    def envelope(self) -> bytes | None:
        """The signature file, None where the artifact is not signed."""
        return self.data(SIGNATURE_NAME) if SIGNATURE_NAME in self.spans else None

    def check_files(self) -> None:
        """Refuses files that the manifest does not name, and files with another digest."""
        view = memoryview(self.raw)
        for name, expected in self.manifest.files.items():
            span = self.spans.get(name)
            if span is None:
                raise _rejected("missing_file", f"`{name}` is in the manifest, not in the archive")
            data = view[span.offset : span.offset + span.size]
            if hashlib.sha256(data).hexdigest() != expected:
                raise _rejected("file_digest", f"`{name}` does not have the digest in the manifest")
        for name in self.spans:
            if name not in self.manifest.files and name not in (MANIFEST_NAME, SIGNATURE_NAME):
                raise _rejected("extra_file", f"`{name}` is in the archive, not in the manifest")


class VerifiedArtifact:
    """An artifact whose publisher is proven and whose every byte is covered by the signature.

    Meets `toolcell.lane.Artifact`. Immutable; thread-safe. `key` is the key that verified;
    whether it still counts is asked again with `key.require_valid`.
    """

    __slots__ = ("_contents", "_path", "digest", "key", "manifest")

    def __init__(self, contents: Contents, key: TrustedKey, path: Path | None = None) -> None:
        self.manifest = contents.manifest
        self.digest = contents.digest
        self.key = key
        self._contents = contents
        self._path = path

    @property
    def publisher(self) -> str:
        """The name in the trust store whose key verified."""
        return self.key.publisher

    def read(self, name: str) -> bytes:
        """The bytes of `name`, as signed. :class:`ArtifactRejected` where there is no such file,
        or where the copy on disk (see :meth:`kept_at`) is no longer the one that was verified.
        """
        span = self._contents.spans.get(name)
        if span is None:
            raise _rejected("no_such_file", f"the artifact has no file `{name[:200]}`")
        if self._path is None:
            return self._contents.data(name)
        return self._read_again(self._path, name, span)

    def kept_at(self, path: Path) -> "VerifiedArtifact":
        """The same artifact without its bytes in memory: `read` takes them from `path`.

        What is read there is checked against the signed digest each time, before it is handed
        out, so the file needs no more trust than before.
        """
        return VerifiedArtifact(structs.replace(self._contents, raw=b""), self.key, path)

    def under(self, trust: TrustStore) -> "VerifiedArtifact":
        """The same artifact with what `trust` says now of the key that verified.

        :class:`ArtifactRejected` where it does not know that key (any more). An id is made from
        its key, so what the key of this id signed need not be verified again.
        """
        key = trust.find(self.key.id)
        return self if key is self.key else VerifiedArtifact(self._contents, key, self._path)

    def _read_again(self, path: Path, name: str, span: Span) -> bytes:
        expected = self.manifest.files.get(name)
        if expected is None:
            raise _rejected("no_such_file", f"`{name}` is about the artifact, not a part of it")
        try:
            with open_plain_file(path) as file:
                data = os.pread(file.fileno(), span.size, span.offset)
        except OSError as error:
            why = error.strerror or "unreadable"
            raise self._spoilt("file_gone", f"`{name}` can't be read again: {why}") from None
        if hashlib.sha256(data).hexdigest() != expected:
            raise self._spoilt("file_digest", f"`{name}` was altered since it was verified")
        return data

    def _spoilt(self, reason: str, message: str) -> ArtifactRejected:
        return ArtifactRejected(
            f"{self.manifest.name} {self.manifest.version}: {message}",
            remedy="publish the same artifact again: that puts the registry's copy back",
            status=400,
            details={"reason": reason},
        )


def open_artifact(
    source: Path | bytes, trust: TrustStore, now: datetime | None = None
) -> VerifiedArtifact:
    """Verifies the artifact in `source` (a path, or its bytes) under `trust` at `now`.

    :class:`ArtifactRejected` otherwise, with a sentence and `details["reason"]`: what is wrong
    with the container (see `archive` and `names`), `manifest`, `unsigned`, `envelope`,
    `unknown_key`, `wrong_signature`, `other_content`, `revoked`, `not_yet_valid`, `expired`,
    `missing_file`, `extra_file`, `file_digest`, `schema` or `too_large`.
    """
    contents = read_contents(source)
    envelope = contents.envelope
    if envelope is None:
        manifest = contents.manifest
        raise ArtifactRejected(
            f"{manifest.name} {manifest.version} is not signed",
            remedy="sign it with `toolcell sign`",
            details={"reason": "unsigned"},
        )
    key = verify_signature(envelope, contents.manifest, trust, now or datetime.now(UTC))
    contents.check_files()
    check_schemas(contents.manifest)
    return VerifiedArtifact(contents, key)


def read_contents(source: Path | bytes) -> Contents:
    """Container and manifest of `source`, well formed. Checks no signature and no file digest."""
    raw = source if isinstance(source, bytes) else read_artifact_file(source)
    spans = read_archive(raw)
    span = spans.get(MANIFEST_NAME)
    if span is None:
        raise _rejected("manifest", f"it has no {MANIFEST_NAME}")
    raw_manifest = memoryview(raw)[span.offset : span.offset + span.size]
    manifest = decode_manifest(raw_manifest)
    return Contents(raw, spans, manifest, manifest_digest(raw_manifest))


def read_artifact_file(path: Path) -> bytes:
    """The bytes of the file `path`, opened once. Its size is checked before memory is taken.

    :class:`ArtifactRejected` where it is missing, a link, not a plain file, or too large.
    """
    try:
        with open_plain_file(path) as file:
            check_size(os.fstat(file.fileno()).st_size)
            raw = file.read(MAX_ARCHIVE_BYTES + 1)
    except OSError as error:
        raise ArtifactRejected(
            f"{path.name} can't be read: {error.strerror or 'unreadable'}",
            remedy="give the path of a `.tool` file, not of a link to one",
            status=404 if isinstance(error, FileNotFoundError) else 400,
            details={"reason": "not_a_file"},
        ) from None
    check_size(len(raw))
    return raw


def _rejected(reason: str, message: str) -> ArtifactRejected:
    return ArtifactRejected(
        message,
        remedy="get the artifact again from its publisher; if it is your own, build it again",
        status=400,
        details={"reason": reason},
    )
