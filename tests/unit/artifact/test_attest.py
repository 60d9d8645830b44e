"""Signed results."""

import json
from datetime import UTC, datetime

import msgspec
import pytest
from artifact_maker import KEY, OTHER_KEY, TRUST, refused, signed

from toolcell.artifact.attest import Attestation, attest_result, content_digest, verify_result
from toolcell.artifact.dsse import seal, unseal
from toolcell.artifact.open import read_contents
from toolcell.trust.store import Revocation, TrustedKey, TrustStore

ATTESTED = Attestation(
    tool="echo",
    version="1.0.0",
    method="say",
    artifact_digest=content_digest(b"manifest"),
    policy_digest="hmac-sha256:" + "0" * 64,
    input_digest=content_digest(b'{"text":"a"}'),
    output_digest=content_digest(b'"a"'),
    lane="wasi",
    correlation_id="c0ffee",
    status=200,
    finished_at=datetime(2026, 6, 1, 12, tzinfo=UTC),
    limits_used={"cpu_time_ms": 1.5, "memory_mb": 3.0},
)


def test_a_result_that_was_attested_is_verified_with_its_publisher():
    found, key = verify_result(attest_result(ATTESTED, KEY), TRUST)
    assert found == ATTESTED
    assert key.publisher == "acme"


def test_it_is_an_in_toto_statement_about_the_output():
    statement = json.loads(unseal(attest_result(ATTESTED, KEY)).payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    (subject,) = statement["subject"]
    assert f"sha256:{subject['digest']['sha256']}" == content_digest(b'"a"')
    assert statement["predicate"]["artifact_digest"] == ATTESTED.artifact_digest


def test_every_flipped_byte_is_caught():
    envelope = attest_result(ATTESTED, KEY)
    for index in range(len(envelope)):
        changed = bytearray(envelope)
        changed[index] ^= 1
        with pytest.raises(Exception) as caught:
            verify_result(bytes(changed), TRUST)
        assert caught.value.details["reason"] in ("envelope", "wrong_signature", "unknown_key")


def test_somebody_elses_attestation_is_refused():
    with refused("unknown_key"):
        verify_result(attest_result(ATTESTED, OTHER_KEY), TRUST)


def test_a_revoked_key_attests_nothing():
    lost = Revocation(when=datetime(2026, 1, 1, tzinfo=UTC), why="stolen")
    trust = TrustStore([TrustedKey(publisher="acme", public=KEY.public, revoked=lost)])
    with refused("revoked"):
        verify_result(attest_result(ATTESTED, KEY), trust)


def test_the_signature_of_an_artifact_does_not_pass_for_a_result():
    with refused("other_content"):
        verify_result(read_contents(signed()).envelope, TRUST)


@pytest.mark.parametrize("change", [{"output_digest": "md5:0"}, {"status": "ok"}, {"evil": 1}])
def test_a_statement_that_is_not_whole_is_refused(change):
    statement = json.loads(unseal(attest_result(ATTESTED, KEY)).payload)
    statement["predicate"].update(change)
    with refused("other_content"):
        verify_result(seal(statement, KEY), TRUST)


def test_a_subject_that_is_not_the_output_is_refused():
    statement = json.loads(unseal(attest_result(ATTESTED, KEY)).payload)
    statement["subject"][0]["digest"]["sha256"] = "0" * 64
    with refused("other_content"):
        verify_result(seal(statement, KEY), TRUST)


def test_an_attestation_needs_a_time_zone():
    naive = ATTESTED.finished_at.replace(tzinfo=None)
    fields = {**msgspec.structs.asdict(ATTESTED), "finished_at": naive}
    with pytest.raises(msgspec.ValidationError, match="timezone"):
        msgspec.convert(fields, Attestation)
