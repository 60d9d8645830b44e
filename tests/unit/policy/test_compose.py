"""Composition: a semilattice that only narrows, with digests that tell envelopes apart."""

import ipaddress
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell.policy.compose import Grant, Mask, derive, effective, narrow, within
from toolcell.policy.envelope import (
    CAPABILITIES,
    FILE_CAPABILITIES,
    Approval,
    HttpPolicy,
    KvPolicy,
    PolicyEnvelope,
    policy_digest,
)
from toolcell.policy.fields import FIELDS, assemble, flatten

KEY = b"k" * 32

APPROVALS = [
    {"grants": grants, "who": who, "when": "2026-01-02", "why": "tested"}
    for grants in ("filesystem=host", "network=full")
    for who in ("Ada", "Grace")
]
DOMAINS = ["*.example.org", "example.org", "api.example.org", "*.api.example.org", "*.org"]
BLOCKS = [
    "10.0.0.0/8",
    "10.1.0.0/16",
    "127.0.0.1/32",
    "::1/128",
    "169.254.0.0/16",
    "169.254.169.254",
]


def some(values, most=4):
    return st.lists(st.sampled_from(values), max_size=most, unique_by=str)


COUNT = st.sampled_from([0, 1, 7, 64, 2**53])
POSITIVE = st.sampled_from([1, 7, 64, 5000, 2**20])
BY_NAME = {
    "allowed_host_apis": some(sorted(CAPABILITIES), 13),
    "filesystem": st.sampled_from(["read-only-package", "ephemeral", "host"]),
    "network": st.sampled_from(["off", "outbound-https-only", "full"]),
    "min_isolation": st.integers(0, 3),
    "allow_network_egress": st.booleans(),
    "allow_file_io": st.booleans(),
    "deterministic": st.booleans(),
    "approvals": some(APPROVALS),
    "domains": some(DOMAINS),
    "schemes": some(["http", "https"]),
    "methods": some(["GET", "POST", "PUT"]),
    "ports": some([80, 443, 8443]),
    "addresses": some(BLOCKS),
    "credentials": some(["token", "key"]),
    "namespace": st.sampled_from(["", "notes", "logs"]),
    "max_redirects": st.integers(0, 20),
    "cpu_time_ms": POSITIVE,
    "wall_time_ms": POSITIVE,
    "memory_mb": POSITIVE,
    "timeout_ms": POSITIVE,
    "max_processes": st.integers(0, 2**20),
    "max_open_files": st.integers(0, 2**20),
    "scratch_mb": st.integers(0, 2**20),
}


@st.composite
def envelopes(draw):
    """Envelopes that differ from the default in a few fields, each of them in range."""
    raw: dict = {}
    for path in draw(st.sets(st.sampled_from(sorted(FIELDS)), max_size=12)):
        *above, name = path.split(".")
        table = raw
        for key in above:
            table = table.setdefault(key, {})
        table[name] = draw(BY_NAME.get(name, COUNT))
    return msgspec.convert(raw, PolicyEnvelope)


def matches(host, patterns):
    return any(
        host.endswith(each[1:]) and host != each[2:] if each.startswith("*.") else host == each
        for each in patterns
    )


HOSTS = ["org", "example.org", "api.example.org", "x.api.example.org", "other.org", "example.com"]
RANK = {"read-only-package": 0, "ephemeral": 1, "host": 2} | {
    "off": 0,
    "outbound-https-only": 1,
    "full": 2,
}


def no_wider(path: str, inner, outer) -> bool:
    """Whether `inner` allows no more than `outer`: written without the table's own rules."""
    name = path.rpartition(".")[2]
    if name == "fuel":
        return outer == 0 or 0 < inner <= outer
    if name == "min_isolation":
        return inner >= outer
    if name == "deterministic":
        return inner or not outer
    if name in ("filesystem", "network"):
        return RANK[inner] <= RANK[outer]
    if name == "namespace":
        return inner in ("", outer)
    if name == "domains":
        return all(matches(host, outer) for host in HOSTS if matches(host, inner))
    if name == "addresses":
        blocks = [ipaddress.ip_network(each) for each in outer]
        metadata = {"169.254.169.254/32"}  # granted by its own address only
        return metadata & set(inner) <= set(outer) and all(
            any(mine.version == own.version and mine.subnet_of(own) for own in blocks)
            for mine in map(ipaddress.ip_network, inner)
        )
    if isinstance(inner, tuple):
        return set(inner) <= set(outer)
    return inner <= outer


@given(envelopes(), envelopes())
def test_a_composition_is_no_wider_than_either_input_in_any_field(one, other):
    both = narrow(one, other)
    for path, field in FIELDS.items():
        for input_ in (one, other):
            assert no_wider(path, field.of(both), field.of(input_)), path
    assert within(both, one)
    assert within(both, other)


@given(envelopes(), envelopes())
def test_composition_is_commutative(one, other):
    assert narrow(one, other) == narrow(other, one)


@settings(max_examples=60)
@given(envelopes(), envelopes(), envelopes())
def test_composition_is_associative(one, two, three):
    assert narrow(narrow(one, two), three) == narrow(one, narrow(two, three))
    assert narrow(one, two, three) == narrow(narrow(one, two), three)


@given(envelopes())
def test_composition_is_idempotent(one):
    assert narrow(one, one) == one
    assert narrow(one) == one


@given(envelopes(), envelopes())
def test_composition_is_the_widest_that_fits_in_both(one, other):
    """Not merely narrow: it takes no more away than the two inputs ask for."""
    both = narrow(one, other)
    if within(one, other):
        assert both == one
    for path, field in FIELDS.items():
        if field.of(one) == field.of(other):
            assert field.of(both) == field.of(one), path


@given(envelopes(), envelopes())
def test_the_master_switches_commute_with_composition(one, other):
    assert derive(narrow(one, other)) == narrow(derive(one), derive(other))
    assert derive(derive(one)) == derive(one)
    assert within(derive(one), one)


@given(envelopes())
def test_a_derived_envelope_says_in_its_list_what_it_grants(one):
    plain = derive(one)
    assert {name for name in CAPABILITIES if plain.grants(name)} == set(plain.allowed_host_apis)
    if not plain.allow_file_io:
        assert plain.scratch_mb == 0
        assert plain.filesystem == "read-only-package"
        assert not FILE_CAPABILITIES & set(plain.allowed_host_apis)
    if not plain.allow_network_egress:
        assert plain.network == "off"
        assert "http.fetch" not in plain.allowed_host_apis


@given(envelopes(), st.sets(st.sampled_from(sorted(FIELDS)), max_size=5), envelopes())
def test_a_mask_narrows_what_it_names_and_leaves_the_rest(one, paths, values):
    mask = Mask(name="m", values={path: FIELDS[path].of(values) for path in paths})
    masked = narrow(one, mask)
    assert within(masked, one)
    for path, field in FIELDS.items():
        expected = field.of(one)
        if path in paths:
            expected = field.meet(expected, field.of(values))
        assert field.of(masked) == expected


@given(envelopes(), envelopes())
def test_equal_envelopes_have_one_digest_and_different_ones_never_share_it(one, other):
    assert (policy_digest(one, KEY) == policy_digest(other, KEY)) == (one == other)
    again = msgspec.json.decode(msgspec.json.encode(one), type=PolicyEnvelope)
    assert again == one
    assert policy_digest(again, KEY) == policy_digest(one, KEY)


OTHER_VALUES = {
    "allowed_host_apis": ("kv.get",),
    "filesystem": "ephemeral",
    "network": "outbound-https-only",
    "approvals": (msgspec.convert(APPROVALS[0], Approval),),
    "domains": ("example.org",),
    "schemes": ("http",),
    "methods": ("POST",),
    "ports": (80,),
    "addresses": ("10.0.0.0/8",),
    "credentials": ("token",),
    "namespace": "notes",
}


@pytest.mark.parametrize("path", sorted(FIELDS))
def test_the_digest_depends_on_every_field(path):
    default = PolicyEnvelope()
    value = FIELDS[path].of(default)
    other = not value if isinstance(value, bool) else value
    if other is value:
        other = value + 1 if isinstance(value, int) else OTHER_VALUES[path.rpartition(".")[2]]
    changed = assemble({path: other})
    assert policy_digest(changed, KEY) != policy_digest(default, KEY)


def test_the_digest_depends_on_the_key():
    assert policy_digest(PolicyEnvelope(), KEY) != policy_digest(PolicyEnvelope(), b"x" * 32)


def test_the_order_of_a_list_does_not_matter():
    names = sorted(CAPABILITIES)
    shuffled = random.Random(7).sample(names, len(names))
    one = PolicyEnvelope(allowed_host_apis=tuple(names))
    other = PolicyEnvelope(allowed_host_apis=(*shuffled, shuffled[0]))
    assert one == other
    assert policy_digest(one, KEY) == policy_digest(other, KEY)
    assert HttpPolicy(domains=("b.org", "a.org"), ports=(80, 443)) == HttpPolicy(
        domains=("a.org", "b.org", "A.org"), ports=(443, 80, 80)
    )


def test_every_field_of_the_envelope_is_in_the_table_and_nothing_else():
    def paths(kind, prefix=""):
        for info in msgspec.structs.fields(kind):
            if isinstance(info.type, type) and issubclass(info.type, msgspec.Struct):
                yield from paths(info.type, f"{prefix}{info.name}.")
            else:
                yield prefix + info.name

    assert set(paths(PolicyEnvelope)) == set(FIELDS)


@given(envelopes())
def test_an_envelope_survives_being_taken_apart(one):
    assert assemble(flatten(one)) == one


def test_no_cap_on_fuel_is_wider_than_any_cap():
    assert narrow(PolicyEnvelope(fuel=0), PolicyEnvelope(fuel=5)).fuel == 5
    assert narrow(PolicyEnvelope(fuel=9), PolicyEnvelope(fuel=5)).fuel == 5


def test_two_kv_namespaces_leave_a_store_that_ends_with_the_call():
    one, other = (
        assemble({"capabilities.kv.namespace": name, "allowed_host_apis": ("kv.get",)})
        for name in ("notes", "logs")
    )
    assert narrow(one, one).capabilities.kv.namespace == "notes"
    assert narrow(one, other).capabilities.kv == KvPolicy()


@settings(max_examples=50)
@given(one=envelopes(), masks=st.lists(envelopes(), max_size=2))
def test_an_effective_envelope_is_within_the_grant_and_every_mask(make_manifest, one, masks):
    one = narrow(one, assemble({"filesystem": "ephemeral", "network": "outbound-https-only"}))
    manifest = make_manifest(capabilities=tuple(sorted(CAPABILITIES)))
    narrowing = [Grant(name="m", envelope=mask) for mask in masks]
    found = effective(manifest, Grant(name="g", envelope=one), narrowing)
    assert within(found.envelope, one)
    assert all(within(found.envelope, mask) for mask in masks)
    denied = {denial.grant for denial in found.denied}
    assert denied & CAPABILITIES == CAPABILITIES - set(found.envelope.allowed_host_apis)
