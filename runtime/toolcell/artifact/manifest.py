"""The tool manifest: what a publisher signs.

Owns the model and its strict decoding. Holds no file access and no trust decision: a manifest that
decodes is well formed, not yet believed.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct, field

from toolcell.artifact.shown import shown
from toolcell.artifact.strict_json import finite_float
from toolcell.errors import ArtifactRejected
from toolcell.policy.envelope import CAPABILITIES, Filesystem, Network, Positive, canonical_json

__all__ = [
    "MANIFEST_SCHEMA",
    "MAX_MANIFEST_BYTES",
    "Manifest",
    "Method",
    "RequestedLimits",
    "SandboxNeeds",
    "decode_manifest",
]

MANIFEST_SCHEMA: Final = "toolcell.manifest/1"
MAX_MANIFEST_BYTES = 1024 * 1024
"""A manifest is read whole and decoded before anything else, so its size is capped first."""

# Patterns end in `\Z`: `$` would also match before a final newline, and msgspec searches.
Uuid = Annotated[
    str, Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
]
ToolName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*\Z", max_length=64)]
Version = Annotated[
    str,
    Meta(
        pattern=r"^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})(-(a|b|rc)(0|[1-9][0-9]{0,7}))?\Z",
        max_length=40,
    ),
]
"""`MAJOR.MINOR.PATCH` and an optional pre-release `-a1`, `-b1` or `-rc1`.

One version has one text, so two texts are two versions."""
MethodName = Annotated[str, Meta(pattern=r"^[a-z][a-zA-Z0-9_]*\Z", max_length=64)]
ClassName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*\Z", max_length=64)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+/-]*\Z", max_length=200)]


class Method(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One callable method: JSON Schema (2020-12, local references only) for input and output."""

    input: dict[str, Any]
    output: dict[str, Any]
    description: Annotated[str, Meta(max_length=4000)] = ""


class RequestedLimits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ceilings that the tool asks for. None takes the policy's; a figure can only lower it."""

    cpu_time_ms: Positive | None = None
    wall_time_ms: Positive | None = None
    memory_mb: Positive | None = None
    max_processes: Positive | None = None
    max_open_files: Positive | None = None
    max_output_bytes: Positive | None = None
    max_log_bytes: Positive | None = None
    scratch_mb: Positive | None = None
    fuel: Positive | None = None


class SandboxNeeds(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the tool demands of its cell. A machine or a policy that can't give it: refused.

    `required` false admits the built-in level 0 for system-trusted input. `backend` names the
    only backend that will do (`wasi`, `oops`, `gvisor`, `microvm`); empty takes what the policy
    selects.
    """

    required: bool = True
    backend: Literal["", "wasi", "oops", "gvisor", "microvm", "trusted-local"] = ""
    filesystem: Filesystem = "read-only-package"
    network: Network = "off"


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The manifest. `files` maps each other file of the archive to its SHA-256."""

    schema: Literal["toolcell.manifest/1"] = MANIFEST_SCHEMA
    id: Uuid
    name: ToolName
    version: Version
    description: Annotated[str, Meta(max_length=4000)] = ""
    lane: Literal["wasi", "oops"] = "wasi"
    entry_point: FileName
    methods: Annotated[dict[MethodName, Method], Meta(min_length=1, max_length=256)]
    capabilities: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    limits: RequestedLimits = RequestedLimits()
    policy_class: ClassName = "safe-default"
    sandbox: SandboxNeeds = SandboxNeeds()
    files: Annotated[dict[FileName, Sha256], Meta(min_length=1, max_length=4096)] = field()

    def __post_init__(self) -> None:
        unknown = [name for name in self.capabilities if name not in CAPABILITIES]
        if unknown:
            known = ", ".join(sorted(CAPABILITIES))
            raise ValueError(f"capability `{unknown[0]}` does not exist; known: {known}")
        if len(set(self.capabilities)) != len(self.capabilities):
            raise ValueError("a capability is listed twice")
        if self.entry_point not in self.files:
            raise ValueError(f"entry point `{self.entry_point}` is not among the files")

    def to_bytes(self) -> bytes:
        """The canonical form: what is stored in the archive and what is signed."""
        return canonical_json(self)


_DECODER = msgspec.json.Decoder(Manifest, float_hook=finite_float)


def decode_manifest(raw: bytes | memoryview) -> Manifest:
    """Decodes `raw`. Anything unknown, missing or out of range is an :class:`ArtifactRejected`.

    Bytes that are not the canonical form are refused too: one manifest has one byte sequence,
    so a digest names one meaning.
    """
    if len(raw) > MAX_MANIFEST_BYTES:
        raise ArtifactRejected(
            f"manifest.json has {len(raw)} bytes; the limit is {MAX_MANIFEST_BYTES}",
            remedy="shorten the descriptions and schemas of its methods",
            status=413,
            details={"reason": "too_large", "limit": MAX_MANIFEST_BYTES, "value": len(raw)},
        )
    try:
        manifest = _DECODER.decode(raw)
        canonical = manifest.to_bytes()
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ArtifactRejected(
            f"manifest.json is not valid: {shown(str(error))}",
            remedy="build the artifact again with `toolcell build`",
            status=400,
            details={"reason": "manifest"},
        ) from None
    if canonical != raw:
        raise ArtifactRejected(
            "manifest.json is not in canonical form",
            remedy="build the artifact again with `toolcell build`",
            status=400,
            details={"reason": "manifest"},
        )
    return manifest
