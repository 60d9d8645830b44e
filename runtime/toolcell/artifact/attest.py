"""Signed results: this artifact, under this policy, made this output of this input.

Owns the statement and its envelope. Holds digests and figures only, never input or output, so it
can be kept and shown. Whoever has artifact, input and output can check it long after the run.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from toolcell.artifact.dsse import STATEMENT_TYPE, Sealed, seal, unseal
from toolcell.errors import ArtifactRejected
from toolcell.policy.envelope import canonical_json
from toolcell.trust.keys import SigningKey
from toolcell.trust.store import TrustedKey, TrustStore

__all__ = ["PREDICATE_TYPE", "Attestation", "attest_result", "content_digest", "verify_result"]

PREDICATE_TYPE: Final = "urn:toolcell:result:v1"

Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Text = Annotated[str, Meta(max_length=200)]


class Attestation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is attested of one run.

    `artifact_digest` names the artifact (its manifest's digest). `input_digest` and
    `output_digest` are of the JSON texts as the tool got and gave them. `limits_used`: use per
    limit, in the unit of the limit's name.
    """

    tool: Text
    version: Text
    method: Text
    artifact_digest: Digest
    policy_digest: Text
    input_digest: Digest
    output_digest: Digest
    lane: Text
    correlation_id: Text
    status: int
    finished_at: Annotated[datetime, Meta(tz=True)]
    limits_used: dict[str, float] = {}


class _Subject(Struct, frozen=True, forbid_unknown_fields=True):
    name: Text
    digest: dict[str, str]


class _Statement(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    type_: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: Annotated[tuple[_Subject, ...], Meta(min_length=1, max_length=1)]
    predicate_type: Literal["urn:toolcell:result:v1"]
    predicate: Attestation


_DECODER = msgspec.json.Decoder(_Statement)


def content_digest(data: bytes) -> str:
    """`sha256:<hex>` of an input or an output."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def attest_result(attestation: Attestation, key: SigningKey) -> bytes:
    """The DSSE envelope in which `key` attests the run. Its subject is the output."""
    return seal(_statement(attestation), key)


def verify_result(
    envelope: bytes, trust: TrustStore, now: datetime | None = None
) -> tuple[Attestation, TrustedKey]:
    """What `envelope` attests and the trusted key that signed it.

    :class:`ArtifactRejected`, with the reasons of an artifact's signature.
    """
    sealed = unseal(envelope)
    key = trust.find(sealed.key_id)
    sealed.verify(key.public)
    attestation = _decode(sealed)
    key.require_valid(now or datetime.now(UTC))
    return attestation, key


def _statement(attestation: Attestation) -> Mapping[str, Any]:
    digest = attestation.output_digest.removeprefix("sha256:")
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": f"{attestation.tool}.{attestation.method}", "digest": {"sha256": digest}}
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": attestation,
    }


def _decode(sealed: Sealed) -> Attestation:
    try:
        attestation = _DECODER.decode(sealed.payload).predicate
        same = canonical_json(_statement(attestation)) == sealed.payload
    except (msgspec.MsgspecError, ValueError, RecursionError):
        same = False
    if not same:
        raise ArtifactRejected(
            "the signature is valid, but of something that is not a result",
            remedy="give the attestation of a result",
            status=400,
            details={"reason": "other_content", "key_id": sealed.key_id},
        )
    return attestation
