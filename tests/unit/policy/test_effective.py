"""Request ∩ grant ∩ masks: what a tool gets, and what a denial says."""

import pytest

from toolcell.artifact.manifest import RequestedLimits, SandboxNeeds
from toolcell.errors import PolicyDenied
from toolcell.policy.compose import Grant, Mask, effective
from toolcell.policy.envelope import CAPABILITIES, PolicyEnvelope


def grant(**fields) -> Grant:
    return Grant(name="given", envelope=PolicyEnvelope(**fields))


def test_a_tool_gets_nothing_that_it_did_not_ask_for(make_manifest):
    wide = grant(
        allowed_host_apis=tuple(CAPABILITIES), allow_network_egress=True, allow_file_io=True
    )
    found = effective(make_manifest(capabilities=("log.emit",)), wide)
    assert found.envelope.allowed_host_apis == ("log.emit",)
    assert not found.envelope.allow_network_egress
    assert not found.envelope.allow_file_io
    assert found.envelope.scratch_mb == 0
    assert found.denied == ()


def test_a_limit_that_the_tool_asks_for_lowers_and_never_raises(make_manifest):
    manifest = make_manifest(limits=RequestedLimits(memory_mb=64, cpu_time_ms=60_000, fuel=10))
    envelope = effective(manifest, grant()).envelope
    assert (envelope.memory_mb, envelope.cpu_time_ms, envelope.fuel) == (64, 5000, 10)


def test_a_denial_names_the_missing_grant_and_the_policy_to_change(make_manifest):
    found = effective(make_manifest(capabilities=("http.fetch",)), grant())
    (denial,) = found.denied
    assert denial.grant == "http.fetch"
    assert '`allowed_host_apis` lacks "http.fetch"' in denial.why
    assert "`allow_network_egress` is false" in denial.why
    assert "policy `given`" in denial.remedy


def test_a_denial_names_the_mask_that_took_it_away(make_manifest):
    wide = grant(allowed_host_apis=("fs.list",), allow_file_io=True)
    mask = Mask(name="no-files", values={"allow_file_io": False})
    found = effective(make_manifest(capabilities=("fs.list",)), wide, [mask])
    (denial,) = found.denied
    assert denial.grant == "fs.list"
    assert denial.why == "mask `no-files`: `allow_file_io` is false"


def test_a_demand_on_the_cell_is_denied_where_its_master_switch_is_off(make_manifest):
    manifest = make_manifest(sandbox=SandboxNeeds(filesystem="ephemeral"))
    found = effective(manifest, grant(filesystem="ephemeral"))
    (denial,) = found.denied
    assert denial.grant == "filesystem=ephemeral"
    assert denial.why == "policy `given`: `allow_file_io` is false"
    assert found.envelope.filesystem == "read-only-package"


@pytest.mark.parametrize(("field", "value"), [("filesystem", "host"), ("network", "full")])
def test_a_wide_grant_without_approval_is_refused_whatever_the_tool_asks_for(
    make_manifest, field, value
):
    with pytest.raises(PolicyDenied, match=f"{field}={value} has no approval") as caught:
        effective(make_manifest(), grant(**{field: value}))
    assert caught.value.status == 403
    assert "[[approvals]]" in caught.value.remedy
