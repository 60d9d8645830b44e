"""What a result says, and what it must never say."""

import msgspec
import pytest
from installation import fake_archive

from toolcell.artifact.attest import content_digest, verify_result
from toolcell.errors import (
    CapabilityFault,
    ToolFault,
)
from toolcell.fake_lane import FakeLane
from toolcell.lane import Probe
from toolcell.policy.envelope import CapabilityPolicies, HttpPolicy, PolicyEnvelope
from toolcell.runtime import Runtime
from toolcell.trust.keys import SigningKey
from toolcell.trust.store import TrustedKey, TrustStore


def test_a_result_has_no_error_field_where_it_succeeded(lab):
    out = lab().runtime.invoke("fake", "go", {"n": 1}).to_dict()
    assert "error" not in out
    assert msgspec.json.decode(msgspec.json.encode(out)) == out


def test_a_refused_capability_comes_with_the_operator_s_remedy(lab):
    def careful_guest(_value, session):
        try:
            session.broker.call("kv.get", key="k")
        except CapabilityFault as fault:
            raise ToolFault(fault.message, status=fault.status) from None

    result = lab({"go": careful_guest}).runtime.invoke("fake", "go")
    assert result.status == 403
    assert "allowed_host_apis" in result.error.remedy
    assert result.error.details["capability"] == "kv.get"


def test_dropped_log_lines_are_a_warning(installation):
    def chatty(_value, session):
        for _ in range(50):
            session.broker.call("log.emit", level="info", message="again")

    installation.publish(fake_archive(capabilities=("log.emit",)))
    policy = PolicyEnvelope(allowed_host_apis=("log.emit",), log_rate=10)
    lane = FakeLane({("fake", "go"): chatty})
    with Runtime(installation.home.root, lanes={"wasi": lane}) as runtime:
        result = runtime.invoke("fake", "go", policy=policy)
    assert result.ok
    assert any("log lines were dropped" in warning for warning in result.warnings)


def test_a_tool_that_is_not_found_is_named_in_the_result(lab):
    assert lab().runtime.invoke("nobody", "go").tool == "nobody"


def test_a_success_is_attested_where_the_runtime_has_a_key(lab):
    key = SigningKey.generate()
    made = lab(result_key=key)
    result = made.runtime.invoke("fake", "go", {"n": 1})
    trust = TrustStore([TrustedKey(publisher="host", public=key.public)])
    attested, signer = verify_result(result.attestation.encode(), trust)
    assert signer.publisher == "host"
    assert attested.input_digest == attested.output_digest == content_digest(b'{"n":1}')
    assert attested.policy_digest == result.policy_digest
    assert attested.artifact_digest == result.artifact_digest
    assert made.runtime.invoke("fake", "nothing").attestation == ""


def test_a_secret_that_was_used_shows_in_no_error_and_no_event(installation):
    """Even where it found its way into a message: the broker tells the redactor before it sends."""
    secret = "correct-horse-battery-staple"

    def careless(_value, session):
        with pytest.raises(CapabilityFault):
            session.broker.call(
                "http.fetch",
                method="GET",
                url="http://localhost:9/",
                headers=[],
                body=b"",
                credential="api",
                timeout_ms=None,
            )
        raise ToolFault(f"the server did not like {secret}", guest_detail=f"x {secret} y")

    installation.home.secrets.write_text(
        f'[api]\ndomains = ["localhost"]\nvalue = "{secret}"\ninsecure = true\n'
    )
    installation.home.secrets.chmod(0o600)
    http = HttpPolicy(domains=("localhost",), schemes=("http",), ports=(9,), credentials=("api",))
    policy = PolicyEnvelope(
        allow_network_egress=True,
        network="outbound-https-only",
        allowed_host_apis=("http.fetch",),
        capabilities=CapabilityPolicies(http=http),
    )
    installation.publish(fake_archive(capabilities=("http.fetch",)))
    ready = Probe(available=True, features={"network=outbound-https-only": ""})
    lane = FakeLane({("fake", "go"): careless}, probe=ready)
    with Runtime(installation.home.root, lanes={"wasi": lane}) as runtime:
        result = runtime.invoke("fake", "go", policy=policy)
    assert result.error.message == "the server did not like <redacted>"
    assert secret not in str(result.to_dict())
    assert secret not in installation.home.audit.read_text()
