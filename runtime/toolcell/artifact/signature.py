"""The signature of an artifact: who says that this manifest is theirs.

Owns the statement that is signed. Its bytes follow from the manifest alone, so a statement is not
interpreted when it is verified: it is made again and compared. The manifest holds the digest of
every other file, so the one signature covers them all.
"""

import hashlib
from datetime import datetime
from typing import Any, Final

from toolcell.artifact.dsse import STATEMENT_TYPE, seal, unseal
from toolcell.artifact.manifest import Manifest
from toolcell.errors import ArtifactRejected
from toolcell.policy.envelope import canonical_json
from toolcell.trust.keys import SigningKey
from toolcell.trust.store import TrustedKey, TrustStore

__all__ = ["PREDICATE_TYPE", "manifest_digest", "sign_manifest", "verify_signature"]

PREDICATE_TYPE: Final = "urn:toolcell:artifact:v1"


def manifest_digest(raw_manifest: bytes | memoryview) -> str:
    """`sha256:<hex>` of a manifest: the digest that names an artifact."""
    return f"sha256:{hashlib.sha256(raw_manifest).hexdigest()}"


def sign_manifest(manifest: Manifest, key: SigningKey) -> bytes:
    """The envelope with which `key` vouches for `manifest`. Ed25519 is deterministic."""
    return seal(_statement(manifest), key)


def verify_signature(
    envelope: bytes, manifest: Manifest, trust: TrustStore, now: datetime
) -> TrustedKey:
    """The trusted key that signed `manifest`.

    :class:`ArtifactRejected`, with `details["reason"]`: `envelope` (malformed), `other_content`
    (a signature of something else), `unknown_key`, `wrong_signature`, `revoked`, `not_yet_valid`
    or `expired`. The signature is verified before the key's validity, so that a message about an
    expired key is never about a forgery.
    """
    sealed = unseal(envelope)
    key = trust.find(sealed.key_id)
    sealed.verify(key.public)
    if sealed.payload != canonical_json(_statement(manifest)):
        raise ArtifactRejected(
            "the signature is valid, but of another artifact",
            remedy="get the artifact again from its publisher",
            details={"reason": "other_content", "key_id": key.id},
        )
    key.require_valid(now)
    return key


def _statement(manifest: Manifest) -> dict[str, Any]:
    digest = hashlib.sha256(manifest.to_bytes()).hexdigest()
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": f"{manifest.name}-{manifest.version}.tool", "digest": {"sha256": digest}}
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"id": manifest.id, "name": manifest.name, "version": manifest.version},
    }
