"""Host names and networks: normal forms, and intersections that mean what they say."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.policy.hosts import (
    common_domains,
    common_networks,
    normal_domain,
    normal_domains,
    normal_networks,
)

NAMES = ["org", "example.org", "api.example.org", "v1.api.example.org", "example.com", "a.org"]
PATTERNS = st.sets(st.sampled_from([*NAMES, *(f"*.{name}" for name in NAMES)]), max_size=6)
HOSTS = [*NAMES, "x.v1.api.example.org", "other.org", "deep.a.org"]


def allowed(host: str, patterns: tuple[str, ...]) -> bool:
    """The meaning of a list, written down a second time and without its normal form."""
    return any(
        host.endswith(pattern[1:]) and host != pattern[2:]
        if pattern.startswith("*.")
        else host == pattern
        for pattern in patterns
    )


@given(PATTERNS, PATTERNS)
def test_common_domains_allow_exactly_what_both_lists_allow(one, other):
    both = common_domains(normal_domains(one), normal_domains(other))
    for host in HOSTS:
        assert allowed(host, both) == (allowed(host, tuple(one)) and allowed(host, tuple(other)))


@given(PATTERNS)
def test_a_normal_list_allows_the_same_and_has_no_member_that_another_covers(patterns):
    normal = normal_domains(patterns)
    assert all(allowed(host, normal) == allowed(host, tuple(patterns)) for host in HOSTS)
    assert normal_domains(normal) == normal
    for name in normal:
        rest = tuple(other for other in normal if other != name)
        probe = f"probe-label.{name[2:]}" if name.startswith("*.") else name
        assert not allowed(probe, rest)


def test_a_name_under_the_others_wildcard_stays():
    assert common_domains(("*.example.org",), ("api.example.org",)) == ("api.example.org",)


def test_a_wildcard_does_not_cover_the_name_itself():
    assert common_domains(("*.example.org",), ("example.org",)) == ()


def test_nested_wildcards_intersect_to_the_narrower():
    assert common_domains(("*.org",), ("*.example.org",)) == ("*.example.org",)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("API.Example.ORG.", "api.example.org"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("_dmarc.example.org", "_dmarc.example.org"),
    ],
)
def test_a_domain_has_one_normal_form(written, normal):
    assert normal_domain(written) == normal


@pytest.mark.parametrize(
    "written",
    [
        "",
        ".",
        "*",
        "*.",
        "**.example.org",
        "api.*.org",
        "https://example.org",
        "example.org:443",
        "example.org/path",
        "user@example.org",
        "bücher.example",
        "a..b",
        "-a.example",
        "example.org\n",
        "example.org\x00",
        "127.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "*.0.0.1",
        "::1%eth0",
        "a" * 64 + ".org",
        ".".join(["a" * 60] * 5),
    ],
)
def test_what_is_no_host_name_is_refused(written):
    with pytest.raises(ValueError, match="domain"):
        normal_domain(written)


BLOCKS = st.sets(
    st.sampled_from(
        ["10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/9", "10.128.0.0/9", "127.0.0.1", "::1", "fd00::/8"]
    ),
    max_size=5,
)
ADDRESSES = ["10.0.0.1", "10.1.2.3", "10.200.0.1", "127.0.0.1", "::1", "fd00::5", "192.0.2.1"]


def inside(address: str, blocks) -> bool:
    return any(ipaddress.ip_address(address) in ipaddress.ip_network(block) for block in blocks)


@given(BLOCKS, BLOCKS)
def test_common_networks_hold_exactly_the_addresses_in_both(one, other):
    both = common_networks(normal_networks(one), normal_networks(other))
    assert both == normal_networks(both)
    for address in ADDRESSES:
        assert inside(address, both) == (inside(address, one) and inside(address, other))


def test_neighbouring_networks_are_merged_so_that_equal_sets_look_equal():
    assert normal_networks(("10.0.0.0/9", "10.128.0.0/9")) == normal_networks(("10.0.0.0/8",))


@pytest.mark.parametrize(
    "block", ["10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "fe80::%1/64", "example.org", ""]
)
def test_what_is_no_network_is_refused(block):
    with pytest.raises(ValueError, match="CIDR"):
        normal_networks((block,))
