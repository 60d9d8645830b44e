"""Forged, foreign, moved and malformed signatures."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
import zip_tricks as tricks
from artifact_maker import KEY, OTHER_ID, OTHER_KEY, TRUST, refused, signed, unsigned

from toolcell.artifact import open as opening
from toolcell.artifact import signature as signing
from toolcell.artifact.attest import Attestation, attest_result, content_digest
from toolcell.artifact.dsse import MAX_ENVELOPE_BYTES, Sealed, seal, unseal
from toolcell.artifact.names import SIGNATURE_NAME
from toolcell.artifact.open import open_artifact, read_contents
from toolcell.trust.keys import SigningKey
from toolcell.trust.store import Revocation, TrustedKey, TrustStore

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def with_signature(envelope: bytes, raw: bytes | None = None) -> bytes:
    """An artifact with another signature file."""

    def change(archive, files):
        tricks.put_all(archive, {**files, SIGNATURE_NAME: envelope})

    return tricks.rewritten(change, raw)


def envelope_of(raw: bytes) -> dict:
    return json.loads(read_contents(raw).envelope or b"")


def packed(envelope: dict) -> bytes:
    return json.dumps(envelope, separators=(",", ":"), sort_keys=True).encode()


def trust_with(**limits) -> TrustStore:
    return TrustStore([TrustedKey(publisher="acme", public=KEY.public, **limits)])


def test_unsigned_is_refused():
    with refused("unsigned"):
        open_artifact(unsigned(), TRUST)


def test_a_key_that_nobody_trusts_is_refused():
    with refused("unknown_key"):
        open_artifact(signed(key=OTHER_KEY), TRUST)
    with refused("unknown_key"):
        open_artifact(signed(), TrustStore())


def test_a_signature_under_the_name_of_a_trusted_key_is_refused():
    envelope = envelope_of(signed(key=OTHER_KEY))
    envelope["signatures"][0]["keyid"] = KEY.public.id
    with refused("wrong_signature"):
        open_artifact(with_signature(packed(envelope)), TRUST)


def test_without_the_verification_that_forgery_would_be_accepted(monkeypatch):
    envelope = envelope_of(signed(key=OTHER_KEY))
    envelope["signatures"][0]["keyid"] = KEY.public.id
    monkeypatch.setattr(Sealed, "verify", lambda _self, _public: None)
    assert open_artifact(with_signature(packed(envelope)), TRUST).publisher == "acme"


def test_the_signature_of_another_artifact_is_refused():
    other = signed(id=OTHER_ID, name="other")
    with refused("other_content"):
        open_artifact(with_signature(read_contents(other).envelope), TRUST)


def test_the_signature_of_another_version_is_refused():
    with refused("other_content"):
        open_artifact(with_signature(read_contents(signed(version="0.9.0")).envelope), TRUST)


def test_without_the_comparison_of_the_statement_it_would_be_accepted(monkeypatch):
    other = signed(version="0.9.0")
    monkeypatch.setattr(signing, "canonical_json", lambda _statement: unseal_of(other).payload)
    raw = with_signature(read_contents(other).envelope)
    assert open_artifact(raw, TRUST).manifest.version == "1.0.0"


def unseal_of(raw: bytes) -> Sealed:
    return unseal(read_contents(raw).envelope or b"")


def test_a_signed_result_does_not_pass_for_an_artifact():
    attestation = Attestation(
        tool="echo", version="1.0.0", method="say", artifact_digest=content_digest(b""),
        policy_digest="x", input_digest=content_digest(b"1"), output_digest=content_digest(b"2"),
        lane="wasi", correlation_id="c", status=200, finished_at=NOW,
    )  # fmt: skip
    with refused("other_content"):
        open_artifact(with_signature(attest_result(attestation, KEY)), TRUST)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"not_before": NOW + timedelta(seconds=1)}, "not_yet_valid"),
        ({"not_after": NOW}, "expired"),
        ({"revoked": Revocation(when=NOW, why="stolen")}, "revoked"),
        ({"revoked": Revocation(when=NOW + timedelta(days=9), why="planned")}, "revoked"),
        ({"revoked": Revocation(when=NOW, why="stolen"), "not_after": NOW}, "revoked"),
    ],
)
def test_a_key_that_does_not_count_now_is_refused(limits, reason):
    with refused(reason) as caught:
        open_artifact(signed(), trust_with(**limits), NOW)
    assert "acme" in caught.value.message


def test_a_forgery_is_called_one_even_where_the_key_has_expired():
    envelope = envelope_of(signed(key=OTHER_KEY))
    envelope["signatures"][0]["keyid"] = KEY.public.id
    with refused("wrong_signature"):
        open_artifact(with_signature(packed(envelope)), trust_with(not_after=NOW), NOW)


def two_signatures(envelope: dict) -> None:
    envelope["signatures"].append(envelope_of(signed(key=OTHER_KEY))["signatures"][0])


def no_signature(envelope: dict) -> None:
    envelope["signatures"] = []


def other_type(envelope: dict) -> None:
    envelope["payloadType"] = "text/plain"


def unknown_field(envelope: dict) -> None:
    envelope["evil"] = 1


def url_safe_base64(envelope: dict) -> None:
    envelope["signatures"][0]["sig"] = envelope["signatures"][0]["sig"].translate(
        str.maketrans("+/", "-_")
    )


def unpadded(envelope: dict) -> None:
    envelope["signatures"][0]["sig"] = envelope["signatures"][0]["sig"].rstrip("=")


def spare_bits(envelope: dict) -> None:
    # 64 bytes leave four unused bits in the last character: other text, same bytes.
    signature = envelope["signatures"][0]["sig"]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = alphabet[alphabet.index(signature[-3]) ^ 1]
    changed = signature[:-3] + last + "=="
    assert base64.b64decode(changed) == base64.b64decode(signature)
    envelope["signatures"][0]["sig"] = changed


def newline_in_base64(envelope: dict) -> None:
    envelope["payload"] = envelope["payload"][:40] + "\n" + envelope["payload"][40:]


def upper_case_key_id(envelope: dict) -> None:
    envelope["signatures"][0]["keyid"] = envelope["signatures"][0]["keyid"].upper()


@pytest.mark.parametrize(
    "change",
    [
        two_signatures,
        no_signature,
        other_type,
        unknown_field,
        unpadded,
        spare_bits,
        newline_in_base64,
        upper_case_key_id,
    ],
)
def test_an_envelope_in_any_other_form_is_refused(change):
    envelope = envelope_of(signed())
    change(envelope)
    with refused("envelope"):
        open_artifact(with_signature(packed(envelope)), TRUST)


def test_url_safe_base64_is_refused():
    for _ in range(50):  # until a signature has one of the two characters that differ
        key = SigningKey.generate()
        raw = signed(key=key)
        envelope = envelope_of(raw)
        if set("+/") & set(envelope["signatures"][0]["sig"]):
            url_safe_base64(envelope)
            trust = TrustStore([TrustedKey(publisher="acme", public=key.public)])
            with refused("envelope"):
                open_artifact(with_signature(packed(envelope)), trust)
            return
    pytest.fail("no signature of 50 had a plus or a slash")


def test_spaces_between_the_fields_are_refused():
    spaced = json.dumps(envelope_of(signed()), sort_keys=True).encode()
    with refused("envelope"):
        open_artifact(with_signature(spaced), TRUST)


@pytest.mark.parametrize("size", [MAX_ENVELOPE_BYTES + 1, 4 * 1024 * 1024])
def test_a_signature_file_over_the_limit_is_refused(size):
    with refused("too_large"):
        open_artifact(with_signature(b" " * size), TRUST)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[" * 60_000, b'{"payload":"\x00"}', b"\xff"])
def test_nonsense_in_the_place_of_a_signature_is_refused(raw):
    with refused("envelope") as caught:
        open_artifact(with_signature(raw), TRUST)
    assert caught.value.message.isprintable()


def test_a_statement_with_the_same_subject_but_more_to_say_is_refused():
    statement = json.loads(unseal_of(signed()).payload)
    statement["predicate"]["name"] = "something-else"
    with refused("other_content"):
        open_artifact(with_signature(seal(statement, KEY)), TRUST)


def test_the_signature_is_checked_before_the_files_and_the_schemas(monkeypatch):
    """What reads a publisher's text in depth comes after the proof of who that is."""
    raw = signed(key=OTHER_KEY)
    monkeypatch.setattr(opening, "check_schemas", lambda _manifest: pytest.fail("too early"))
    monkeypatch.setattr(opening.Contents, "check_files", lambda _self: pytest.fail("too early"))
    with refused("unknown_key"):
        open_artifact(raw, TRUST)
