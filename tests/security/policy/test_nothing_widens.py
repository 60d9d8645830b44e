"""Attempts of callers, tools and inputs to get more than the operator granted."""

import msgspec
import pytest

from toolcell.broker.http.addresses import AddressRules
from toolcell.errors import ConfigError, PolicyDenied
from toolcell.policy import compose
from toolcell.policy.book import PolicyBook, _mask_key
from toolcell.policy.compose import Grant, Mask, within
from toolcell.policy.document import parse_mask
from toolcell.policy.envelope import (
    CAPABILITIES,
    CapabilityPolicies,
    HttpPolicy,
    PolicyEnvelope,
)
from toolcell.policy.fields import FIELDS, assemble, flatten

DIGEST = "sha256:" + "0" * 64

WIDER = {
    "allowed_host_apis": sorted(CAPABILITIES),
    "allow_network_egress": True,
    "allow_file_io": True,
    "filesystem": "host",
    "network": "full",
    "min_isolation": 0,
    "deterministic": False,
    "domains": ["*.org", "evil.example"],
    "schemes": ["http", "https"],
    "methods": ["DELETE", "GET", "HEAD", "POST"],
    "ports": [22, 443],
    "addresses": ["0.0.0.0/0", "::/0"],
    "credentials": ["admin"],
    "namespace": "somebody-elses",
    "fuel": 0,
    "max_redirects": 20,
}
TIGHT = PolicyEnvelope(min_isolation=2, deterministic=True, fuel=1000)
"""A grant that every value above would widen."""


def widening(path: str) -> dict:
    """A partial envelope, as a caller would send it, that asks for more of one field."""
    *above, name = path.split(".")
    value = WIDER.get(name)
    if value is None:
        value = FIELDS[path].of(TIGHT) + 1
    mask: dict = {name: value}
    for key in reversed(above):
        mask = {key: mask}
    return mask


@pytest.mark.parametrize("path", sorted(set(FIELDS) - {"approvals"}))
def test_a_mask_that_asks_for_more_gets_no_more(path, manifest):
    """Stopped by the meet of each field: with an override in its place, the mask would win."""
    book = PolicyBook()
    plain = book.ruling(manifest, DIGEST, TIGHT).envelope
    masked = book.ruling(manifest, DIGEST, TIGHT, [widening(path)]).envelope
    assert masked == plain

    override = assemble({**flatten(TIGHT), **parse_mask(widening(path), "m").values})
    assert not within(override, TIGHT), "the attack must be one"


@pytest.mark.parametrize(
    ("granted", "address"),
    [
        ("169.254.0.0/16", "169.254.169.254"),
        ("168.0.0.0/8", "168.63.129.16"),
        ("0.0.0.0/0", "100.100.100.200"),
        ("fd00::/8", "fd00:ec2::254"),
    ],
)
def test_a_mask_can_not_turn_a_block_into_a_grant_of_the_metadata_service(
    manifest, granted, address
):
    """A block does not stand for the metadata service, the address by itself does. So a block
    that is narrowed to the address must not leave it.
    """
    http = HttpPolicy(addresses=(granted,))
    grant = PolicyEnvelope(capabilities=CapabilityPolicies(http=http))
    assert AddressRules(http.addresses).refusal(address) == "metadata"
    mask = {"capabilities": {"http": {"addresses": [address]}}}
    masked = PolicyBook().ruling(manifest, DIGEST, grant, [mask]).envelope
    assert AddressRules(masked.capabilities.http.addresses).refusal(address) == "metadata"
    assert within(masked, grant)

    assert AddressRules((address,)).refusal(address) == "", "the mask alone would be a grant"
    both = (
        PolicyBook()
        .ruling(
            manifest,
            DIGEST,
            assemble(flatten(masked) | {"capabilities.http.addresses": (address,)}),
            [mask],
        )
        .envelope
    )
    assert AddressRules(both.capabilities.http.addresses).refusal(address) == ""


def test_a_mask_can_not_approve(manifest):
    approval = {"grants": "network=full", "who": "me", "when": "2026-01-01", "why": "please"}
    with pytest.raises(ConfigError, match="unknown field `approvals`"):
        PolicyBook().ruling(manifest, DIGEST, "compute", [{"approvals": [approval]}])


def test_a_class_used_as_a_mask_grants_nothing_of_its_own(manifest):
    book = PolicyBook()
    for name in book.catalog().grants:
        narrowed = book.ruling(manifest, DIGEST, "safe-default", [name]).envelope
        assert within(narrowed, PolicyEnvelope())
        assert narrowed.allowed_host_apis == ()


@pytest.mark.parametrize("mask", ["no-network ,", "no-network||", "safe-default\n,x", "a" * 10_000])
def test_a_mask_that_does_not_exist_is_never_skipped(manifest, mask):
    with pytest.raises(ConfigError, match="no mask or class"):
        PolicyBook().ruling(manifest, DIGEST, "fetcher", [mask])


def test_two_spellings_of_masks_do_not_share_a_ruling_that_one_of_them_lacks(manifest):
    """A name and a partial envelope of the same text are different keys of the memory."""
    assert _mask_key(["no-network"]) != _mask_key([{"no-network": 1}])
    assert _mask_key(['{"fuel":1}'.replace(",", "")]) != _mask_key([{"fuel": 1}])


def test_a_remembered_ruling_is_not_given_to_another_artifact(manifest):
    book = PolicyBook()
    greedy = book.ruling(manifest, "sha256:a", "fetcher").envelope
    modest = msgspec.structs.replace(manifest, capabilities=())
    assert greedy.grants("http.fetch")
    assert not book.ruling(modest, "sha256:b", "fetcher").envelope.grants("http.fetch")


def test_a_publisher_does_not_pick_an_operators_class(home, manifest, write_policy):
    write_policy(
        "p.toml",
        "[classes.internal]\nextends = 'fetcher'\n"
        "[classes.internal.capabilities.http]\ndomains = ['intranet.example']\n",
    )
    book = PolicyBook(home)
    cunning = msgspec.structs.replace(manifest, policy_class="internal")
    with pytest.raises(PolicyDenied, match="did not let manifests choose it"):
        book.ruling(cunning, DIGEST)
    write_policy(
        "p.toml",
        "[classes.internal]\nextends = 'fetcher'\nmanifest_may_choose = true\n"
        "[classes.internal.capabilities.http]\ndomains = ['intranet.example']\n",
    )
    book.reload()
    granted = book.ruling(cunning, DIGEST).envelope.capabilities.http.domains
    assert granted == ("intranet.example",)


def test_a_wide_class_is_refused_by_its_missing_approval_only(
    home, manifest, write_policy, monkeypatch
):
    write_policy("p.toml", "[classes.wide]\nnetwork = 'full'\nallow_network_egress = true\n")
    book = PolicyBook(home)
    with pytest.raises(PolicyDenied, match="network=full has no approval"):
        book.ruling(manifest, DIGEST, "wide")
    with pytest.raises(PolicyDenied, match="network=full has no approval"):
        book.ruling(manifest, DIGEST, "wide", ["no-network"])
    monkeypatch.setattr(compose, "require_approvals", lambda *_: None)
    needs = msgspec.structs.replace(
        manifest, sandbox=msgspec.structs.replace(manifest.sandbox, network="full")
    )
    assert book.ruling(needs, DIGEST, "wide").envelope.network == "full"


def test_an_approval_of_one_wide_grant_is_none_of_the_other(home, manifest, write_policy):
    write_policy(
        "p.toml",
        "[classes.wide]\nnetwork = 'full'\nfilesystem = 'host'\n"
        "[[classes.wide.approvals]]\ngrants = 'network=full'\nwho = 'Ada'\nwhen = 2026-01-01\n"
        "why = 'tested'\n",
    )
    with pytest.raises(PolicyDenied, match="filesystem=host has no approval"):
        PolicyBook(home).ruling(manifest, DIGEST, "wide")


def test_the_master_switches_hold_whatever_a_list_says(manifest):
    listed = PolicyEnvelope(allowed_host_apis=tuple(sorted(CAPABILITIES)), filesystem="ephemeral")
    ruling = PolicyBook().ruling(manifest, DIGEST, listed)
    assert ruling.envelope.allowed_host_apis == ("kv.get", "log.emit")
    assert ruling.envelope.scratch_mb == 0
    assert ruling.envelope.filesystem == "read-only-package"
    unswitched = compose.narrow(listed, compose.requested(manifest))
    assert "http.fetch" in unswitched.allowed_host_apis, "without the switches it would be there"


def test_a_grant_can_not_be_changed_after_it_was_made():
    grant = Grant(name="g", envelope=PolicyEnvelope())
    with pytest.raises(AttributeError):
        grant.envelope.memory_mb = 2**20
    mask = Mask(name="m", values={"memory_mb": 1})
    with pytest.raises(AttributeError):
        mask.values = {}
