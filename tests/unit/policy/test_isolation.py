"""Isolation selection: the lowest level that meets every demand, or a refusal that says why not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.artifact.manifest import Manifest, Method, SandboxNeeds
from toolcell.errors import LaneUnavailable, PolicyDenied, ToolcellError
from toolcell.isolation import FEATURES, output_trust, select_isolation
from toolcell.lane import Probe
from toolcell.policy.envelope import KvPolicy, PolicyEnvelope
from toolcell.policy.fields import assemble

ALL = dict.fromkeys(FEATURES, "")
WORKS = Probe(available=True, features=ALL)
BARE = Probe(available=True)
BROKEN = Probe(available=False, reason="no user namespaces", remedy="sysctl it")

WASI = {"wasi": (1, WORKS)}
EVERY = {
    "trusted-local": (0, WORKS),
    "wasi": (1, WORKS),
    "oops": (2, WORKS),
    "gvisor": (3, WORKS),
    "microvm": (3, WORKS),
}


def tool(lane="wasi", **sandbox) -> Manifest:
    return Manifest(
        id="00000000-0000-4000-8000-000000000000",
        name="sample",
        version="1.0.0",
        lane=lane,
        entry_point="tool.wasm",
        methods={"run": Method(input={}, output={})},
        files={"tool.wasm": "0" * 64},
        sandbox=SandboxNeeds(**sandbox),
    )


def policy(**fields) -> PolicyEnvelope:
    return PolicyEnvelope(**fields)


def test_a_component_runs_in_the_wasi_lane_by_default():
    selection = select_isolation(tool(), "untrusted", policy(), EVERY)
    assert (selection.lane, selection.level) == ("wasi", 1)
    assert "level 1: the input is untrusted" in selection.reasons


def test_a_native_artifact_runs_in_the_lowest_lane_that_will_do():
    selection = select_isolation(tool("oops"), "untrusted", policy(), EVERY)
    assert (selection.lane, selection.level) == ("oops", 2)


def test_min_isolation_raises_the_level():
    selection = select_isolation(tool("oops"), "untrusted", policy(min_isolation=3), EVERY)
    assert (selection.lane, selection.level) == ("gvisor", 3)
    assert any("oops: it gives isolation level 2" in reason for reason in selection.reasons)


def test_a_component_is_refused_where_the_policy_wants_more_than_the_wasi_lane_gives():
    with pytest.raises(LaneUnavailable, match="isolation level 2") as caught:
        select_isolation(tool(), "untrusted", policy(min_isolation=2), EVERY)
    assert caught.value.status == 503
    assert caught.value.details["feature"] == "isolation>=2"


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
def test_only_system_trusted_input_may_have_no_cell(trust):
    arguments = (tool("oops", required=False), policy(min_isolation=0), EVERY)
    manifest, envelope, lanes = arguments
    lowest = select_isolation(manifest, "system", envelope, lanes, built_in=True)
    assert (lowest.level, lowest.lane) == (0, "trusted-local")
    assert select_isolation(manifest, trust, envelope, lanes, built_in=True).level == 2


@pytest.mark.parametrize(
    ("sandbox", "envelope", "built_in"),
    [
        ({"required": True}, {"min_isolation": 0}, True),
        ({"required": False}, {"min_isolation": 1}, True),
        ({"required": False}, {"min_isolation": 0}, False),
    ],
)
def test_level_0_needs_a_built_in_tool_a_policy_and_a_manifest_that_admit_it(
    sandbox, envelope, built_in
):
    selection = select_isolation(
        tool("oops", **sandbox), "system", policy(**envelope), EVERY, built_in=built_in
    )
    assert selection.level == 2


def test_the_manifests_backend_is_the_only_one_that_will_do():
    assert select_isolation(tool("oops", backend="microvm"), "system", policy(), EVERY).level == 3
    with pytest.raises(LaneUnavailable, match="`microvm`: it is not installed here") as caught:
        select_isolation(tool("oops", backend="microvm"), "system", policy(), WASI)
    assert caught.value.details["feature"] == "lane:microvm"


def test_a_backend_below_min_isolation_is_denied():
    with pytest.raises(PolicyDenied, match="min_isolation is 3"):
        select_isolation(tool("oops", backend="oops"), "untrusted", policy(min_isolation=3), EVERY)


@pytest.mark.parametrize(
    ("sandbox", "envelope", "grant"),
    [
        ({"filesystem": "ephemeral"}, {}, "filesystem=ephemeral"),
        ({"filesystem": "host"}, {"filesystem": "ephemeral"}, "filesystem=host"),
        ({"network": "outbound-https-only"}, {}, "network=outbound-https-only"),
    ],
)
def test_a_demand_that_the_policy_withholds_is_denied_by_name(sandbox, envelope, grant):
    with pytest.raises(PolicyDenied) as caught:
        select_isolation(tool(**sandbox), "untrusted", policy(**envelope), EVERY)
    assert (caught.value.status, caught.value.details["grant"]) == (403, grant)


@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        ({"filesystem": "host"}, "filesystem=host"),
        ({"filesystem": "ephemeral"}, "filesystem=ephemeral"),
        ({"network": "full"}, "network=full"),
        ({"network": "outbound-https-only"}, "network=outbound-https-only"),
        ({"deterministic": True}, "deterministic"),
    ],
)
def test_a_feature_that_the_lane_does_not_report_is_missing(fields, feature):
    with pytest.raises(LaneUnavailable, match=feature) as caught:
        select_isolation(tool(), "untrusted", policy(**fields), {"wasi": (1, BARE)})
    assert (caught.value.status, caught.value.details["feature"]) == (503, feature)
    assert caught.value.remedy
    assert select_isolation(tool(), "untrusted", policy(**fields), WASI).lane == "wasi"


def test_a_feature_that_does_not_work_here_is_named_with_the_probes_reason_and_remedy():
    probe = Probe(
        available=True, features={"deterministic": "no fixed clock"}, remedy="use kernel 6.1"
    )
    with pytest.raises(LaneUnavailable, match="no fixed clock") as caught:
        select_isolation(tool(), "untrusted", policy(deterministic=True), {"wasi": (1, probe)})
    assert caught.value.remedy == "use kernel 6.1"


def test_a_ceiling_that_a_lane_can_not_hold_makes_it_unfit_for_every_call():
    probe = Probe(available=True, features={**ALL, "memory_mb": "no memory controller"})
    with pytest.raises(LaneUnavailable, match="no memory controller"):
        select_isolation(tool("oops"), "untrusted", policy(), {"oops": (2, probe)})


def test_a_lane_that_does_not_work_is_passed_over_for_a_stronger_one_and_that_is_said():
    lanes = {**EVERY, "oops": (2, BROKEN)}
    selection = select_isolation(tool("oops"), "untrusted", policy(), lanes)
    assert (selection.lane, selection.level) == ("gvisor", 3)
    assert any("no user namespaces" in reason for reason in selection.reasons)


def test_a_lane_that_does_not_work_is_never_replaced_by_a_weaker_one():
    lanes = {"trusted-local": (0, WORKS), "wasi": (1, WORKS), "oops": (2, BROKEN)}
    with pytest.raises(LaneUnavailable, match="no user namespaces") as caught:
        select_isolation(tool("oops"), "untrusted", policy(), lanes)
    assert caught.value.remedy == "sysctl it"
    assert caught.value.lane == "oops"


def test_a_named_lane_chooses_among_what_is_allowed():
    selection = select_isolation(tool("oops"), "untrusted", policy(), EVERY, lane="microvm")
    assert (selection.lane, selection.level) == ("microvm", 3)


@pytest.mark.parametrize(
    ("lane", "manifest", "envelope", "error", "message"),
    [
        ("wasm", tool(), policy(), LaneUnavailable, "not installed here"),
        ("oops", tool(), policy(), LaneUnavailable, "built for the wasi lane"),
        ("wasi", tool("oops"), policy(), LaneUnavailable, "built for the oops lane"),
        ("oops", tool("oops"), policy(min_isolation=3), PolicyDenied, "isolation level 2"),
        ("trusted-local", tool("oops"), policy(), PolicyDenied, "isolation level 0"),
        ("oops", tool("oops", backend="gvisor"), policy(), PolicyDenied, "`gvisor` only"),
    ],
)
def test_a_named_lane_overrides_no_demand(lane, manifest, envelope, error, message):
    with pytest.raises(error, match=message):
        select_isolation(manifest, "untrusted", envelope, EVERY, lane=lane)


def test_a_named_lane_that_does_not_work_is_not_replaced_by_another():
    lanes = {**EVERY, "oops": (2, BROKEN)}
    with pytest.raises(LaneUnavailable, match="no user namespaces"):
        select_isolation(tool("oops"), "untrusted", policy(), lanes, lane="oops")


def test_a_lane_of_another_name_says_which_artifacts_it_runs():
    runs = Probe(available=True, features={**ALL, "runs=wasi": ""})
    lanes = {"wasi": (1, WORKS), "cloud": (3, runs)}
    assert select_isolation(tool(), "untrusted", policy(min_isolation=2), lanes).lane == "cloud"
    silent = {"wasi": (1, WORKS), "cloud": (3, WORKS)}
    with pytest.raises(LaneUnavailable):
        select_isolation(tool(), "untrusted", policy(min_isolation=2), silent)


def test_no_lane_at_all_is_a_refusal():
    with pytest.raises(LaneUnavailable, match="installed: none"):
        select_isolation(tool(), "untrusted", policy(), {})


TRUST = st.sampled_from(["system", "trusted", "untrusted"])


@given(
    lane=st.sampled_from(["wasi", "oops"]),
    required=st.booleans(),
    backend=st.sampled_from(["", "wasi", "oops", "gvisor", "trusted-local"]),
    trust=TRUST,
    floor=st.integers(0, 3),
    built_in=st.booleans(),
    deterministic=st.booleans(),
    probes=st.lists(st.sampled_from([WORKS, BARE, BROKEN]), min_size=5, max_size=5),
    chosen=st.sampled_from([None, *EVERY]),
)
def test_whatever_is_asked_for_no_demand_is_ever_lowered(
    lane, required, backend, trust, floor, built_in, deterministic, probes, chosen
):
    lanes = {name: (EVERY[name][0], probe) for name, probe in zip(EVERY, probes, strict=True)}
    manifest = tool(lane, required=required, backend=backend)
    envelope = policy(min_isolation=floor, deterministic=deterministic)
    try:
        selection = select_isolation(
            manifest, trust, envelope, lanes, lane=chosen, built_in=built_in
        )
    except ToolcellError as error:
        refusal = error
    else:
        refusal = None
    if refusal is not None:
        assert refusal.status in (403, 503)
        assert refusal.remedy
        assert refusal.details["feature"]
        return
    level, probe = lanes[selection.lane]
    assert selection.level == level >= floor
    assert probe.available
    assert not deterministic or probe is WORKS
    assert level > 0 or (trust == "system" and built_in and not required)
    assert backend in ("", selection.lane)
    assert chosen in (None, selection.lane)
    assert selection.lane == "wasi" if lane == "wasi" else selection.lane != "wasi"


# --- trust of the output --------------------------------------------------------------------


@given(TRUST, st.integers(0, 3), TRUST)
def test_an_output_is_never_trusted_more_than_its_input_or_its_tool(given_, level, publisher):
    order = ["untrusted", "trusted", "system"]
    tag = output_trust(given_, level, policy(), publisher_trust=publisher)
    assert order.index(tag) <= min(order.index(given_), order.index(publisher))


def test_a_signature_alone_makes_no_output_trusted():
    assert output_trust("system", 1, policy()) == "untrusted"


def test_a_tool_that_needed_a_cell_never_speaks_for_the_system():
    assert output_trust("system", 1, policy(), publisher_trust="system") == "trusted"
    assert output_trust("system", 0, policy(), publisher_trust="system") == "system"


@pytest.mark.parametrize(
    "envelope",
    [
        policy(allow_network_egress=True),
        policy(filesystem="host"),
        assemble(
            {
                "capabilities.kv.namespace": "shared",
                "allowed_host_apis": ("kv.get",),
            }
        ),
    ],
)
def test_what_could_come_from_outside_is_untrusted(envelope):
    assert output_trust("system", 1, envelope, publisher_trust="system") == "untrusted"


def test_a_store_that_is_not_granted_brings_nothing_in():
    unused = assemble({"capabilities.kv.namespace": "shared"})
    assert unused.capabilities.kv == KvPolicy(namespace="shared")
    assert output_trust("system", 1, unused, publisher_trust="system") == "trusted"
