"""DSSE envelopes with one Ed25519 signature, in one canonical form.

Owns sealing, reading and checking of an envelope (https://github.com/secure-systems-lab/dsse, v1)
around an in-toto Statement v1. Knows nothing of what the statement says. `securesystemslib` does
the signing and the verification; it is imported when first used, since that takes 80 ms.

An envelope is accepted only as the bytes that :func:`seal` makes: a changed byte in white space,
in base64 padding or in the order of its fields is caught like any other.
"""

import base64
import binascii
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from toolcell.artifact.shown import shown
from toolcell.errors import ArtifactRejected
from toolcell.policy.envelope import canonical_json
from toolcell.trust.keys import PublicKey, SigningKey

__all__ = ["MAX_ENVELOPE_BYTES", "PAYLOAD_TYPE", "STATEMENT_TYPE", "Sealed", "seal", "unseal"]

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
MAX_ENVELOPE_BYTES = 64 * 1024

_REMEDY = "sign it again with `toolcell sign`"


class _Signature(Struct, frozen=True, forbid_unknown_fields=True):
    keyid: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    sig: Annotated[str, Meta(max_length=100)]


class _Envelope(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    payload: str
    payload_type: Literal["application/vnd.in-toto+json"]
    signatures: Annotated[tuple[_Signature, ...], Meta(min_length=1, max_length=1)]


class Sealed(Struct, frozen=True):
    """A well-formed envelope. Nothing in it is believed until :meth:`verify` returns."""

    payload: bytes
    key_id: str
    signature: bytes

    def verify(self, public: PublicKey) -> None:
        """:class:`ArtifactRejected` (`wrong_signature`) unless `public` signed the payload."""
        from securesystemslib.dsse import Envelope
        from securesystemslib.exceptions import VerificationError
        from securesystemslib.signer import Signature, SSlibKey  # type: ignore[attr-defined]

        signature = Signature(self.key_id, self.signature.hex())
        envelope = Envelope(self.payload, PAYLOAD_TYPE, {self.key_id: signature})
        key = SSlibKey(public.id, "ed25519", "ed25519", {"public": public.raw.hex()})
        try:
            envelope.verify([key], threshold=1)
        except VerificationError:
            raise ArtifactRejected(
                f"the signature is not one that key {self.key_id[:16]} made of this content",
                remedy="it was altered, or damaged: get it again from its publisher",
                details={"reason": "wrong_signature", "key_id": self.key_id},
            ) from None


def seal(statement: Any, key: SigningKey) -> bytes:
    """The envelope of `statement`, signed with `key`. The same two give the same bytes."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner, SSlibKey  # type: ignore[attr-defined]

    public = SSlibKey(key.public.id, "ed25519", "ed25519", {"public": key.public.raw.hex()})
    payload = canonical_json(statement)
    signature = Envelope(payload, PAYLOAD_TYPE, {}).sign(CryptoSigner(key.private, public))
    return _encode(payload, signature.keyid, bytes.fromhex(signature.signature))


_DECODER = msgspec.json.Decoder(_Envelope)


def unseal(raw: bytes) -> Sealed:
    """Reads an envelope. :class:`ArtifactRejected` (`envelope`) for anything but canonical form."""
    if len(raw) > MAX_ENVELOPE_BYTES:
        raise ArtifactRejected(
            f"the signature file has {len(raw)} bytes; the limit is {MAX_ENVELOPE_BYTES}",
            remedy=_REMEDY,
            status=413,
            details={"reason": "too_large", "limit": MAX_ENVELOPE_BYTES, "value": len(raw)},
        )
    try:
        envelope = _DECODER.decode(raw)
        payload = base64.b64decode(envelope.payload, validate=True)
        signature = base64.b64decode(envelope.signatures[0].sig, validate=True)
    except (msgspec.MsgspecError, binascii.Error, ValueError, RecursionError) as error:
        raise _malformed(shown(str(error))) from None
    key_id = envelope.signatures[0].keyid
    if _encode(payload, key_id, signature) != raw:
        raise _malformed("it is not in canonical form")
    return Sealed(payload, key_id, signature)


def _encode(payload: bytes, key_id: str, signature: bytes) -> bytes:
    signed = _Signature(key_id, base64.b64encode(signature).decode("ascii"))
    encoded = base64.b64encode(payload).decode("ascii")
    return canonical_json(_Envelope(encoded, PAYLOAD_TYPE, (signed,)))


def _malformed(why: str) -> ArtifactRejected:
    return ArtifactRejected(
        f"the signature is not a DSSE envelope as `toolcell sign` makes it: {why}",
        remedy=_REMEDY,
        status=400,
        details={"reason": "envelope"},
    )
