"""Publishing: from a signed artifact to a version that can be resolved.

Owns the order of the steps and the rules on names. Everything that can be refused is refused
before the first byte is written; a version shows up by one transaction at the very end, so that a
process killed anywhere before leaves nothing that anybody can see. Used by the registry.
"""

from datetime import UTC, datetime

from msgspec import Struct, structs

from toolcell.artifact.open import VerifiedArtifact
from toolcell.errors import ConfigError
from toolcell.registry.blobs import BlobStore
from toolcell.registry.index import Change, Index, ToolRow, VersionRow
from toolcell.registry.membership import put_member
from toolcell.registry.scope_keys import ScopeKeys

__all__ = ["Published", "Request", "publish"]

CONFLICT = 409


class Request(Struct, frozen=True, kw_only=True):
    """What is to be published, where to, and as whose.

    `policy`: the class that the operator binds to the tool; None leaves what is bound, unless the
    tool changes hands: a grant does not pass on.
    `transfer`: the name may pass to another publisher or tool id.
    """

    artifact: VerifiedArtifact
    archive: bytes
    scope: str
    keys: ScopeKeys
    policy: str | None = None
    transfer: bool = False


class Published(Struct, frozen=True, kw_only=True):
    """What came of it. `created` is false where that version was there already, bit for bit.

    `policy`: the class that is bound to the tool now, whichever version; None where none is.
    """

    name: str
    version: str
    digest: str
    publisher: str
    scope: str
    created: bool
    policy: str | None = None


def publish(request: Request, index: Index, blobs: BlobStore) -> Published:
    """Publishes a verified artifact.

    The same version with the same content again changes nothing, but takes over a renewed
    signature, and puts back a copy that was damaged; its own publisher may do that also after the
    name has passed to another one. :class:`ConfigError` (status 409) for the same version with
    another content, and for a name or tool id that belongs to somebody else.
    """
    # Without a lock: only to refuse early, before anything is written. Asked again below.
    with index.change() as change:
        _check_conflicts(change, request)
    blobs.sweep(index.blobs)
    with blobs.publishing():
        blob = blobs.add(request.archive)
        with index.change() as change:
            return _record(change, request, blob)


def _record(change: Change, request: Request, blob: str) -> Published:
    artifact, manifest = request.artifact, request.artifact.manifest
    tool, known = _check_conflicts(change, request)
    owner = artifact.publisher if tool is None or request.transfer else tool.publisher
    # What an operator granted to a tool was granted to that publisher's tool of that id.
    same = tool is not None and (tool.publisher, tool.tool_id) == (owner, manifest.id)
    bound = request.policy or (tool.policy if tool is not None and same else None)
    change.put_tool(ToolRow(manifest.name, manifest.id, owner, bound))
    row = VersionRow(
        name=manifest.name,
        version=manifest.version,
        tool_id=manifest.id,
        digest=artifact.digest,
        blob=blob,
        lane=manifest.lane,
        publisher=artifact.publisher,
        key_id=artifact.key.id,
        size_bytes=len(request.archive),
        published_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if known is not None:
        row = structs.replace(
            row,
            published_at=known.published_at,
            yanked_at=known.yanked_at,
            yanked_why=known.yanked_why,
        )
    change.put_version(row)
    put_member(change, request.keys, request.scope, manifest.id, manifest.name)
    return Published(
        name=manifest.name,
        version=manifest.version,
        digest=artifact.digest,
        publisher=artifact.publisher,
        scope=request.scope,
        created=known is None,
        policy=bound,
    )


def _check_conflicts(change: Change, request: Request) -> tuple[ToolRow | None, VersionRow | None]:
    """What is known of the name and the version. Raises where they belong to something else."""
    manifest, publisher = request.artifact.manifest, request.artifact.publisher
    name = manifest.name
    tool = change.tool(name)
    holder = change.tool_with_id(manifest.id)
    if holder is not None and holder.name != name:
        raise _conflict(
            f"tool id {manifest.id} belongs to `{holder.name}`",
            f"give `{name}` an id of its own (a new UUID) and build it again",
        )
    known = change.version(name, manifest.version)
    if tool is not None and not request.transfer:
        if tool.publisher != publisher and not _is_own(known, request):
            raise _conflict(
                f"`{name}` belongs to `{tool.publisher}`, this one is signed by `{publisher}`",
                "choose another name, or say --transfer if the tool has changed hands",
            )
        if tool.tool_id != manifest.id:
            raise _conflict(
                f"`{name}` is tool {tool.tool_id}, this one is {manifest.id}",
                "keep the id when you change a tool, or say --transfer to replace it",
            )
    if known is not None and known.digest != request.artifact.digest:
        raise _conflict(
            f"{name} {manifest.version} is published with other content ({known.digest[:19]}…, "
            f"this one is {request.artifact.digest[:19]}…)",
            "a published version never changes: raise `version`, build and sign again",
        )
    return tool, known


def _is_own(known: VersionRow | None, request: Request) -> bool:
    """Whether this publisher published this very version, with this very content."""
    artifact = request.artifact
    return known is not None and (known.publisher, known.digest) == (
        artifact.publisher,
        artifact.digest,
    )


def _conflict(message: str, remedy: str) -> ConfigError:
    return ConfigError(message, remedy=remedy, status=CONFLICT, details={"reason": "conflict"})
