"""Names that lead inside: each network that is not the public internet, and its name."""

import ipaddress

import pytest
from loopback import AnyAddress, Web

from toolcell.broker.http.addresses import AddressRules
from toolcell.errors import Status

INSIDE = {
    "0.0.0.0": "this-network",
    "10.1.2.3": "private",
    "100.64.0.1": "shared",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "169.254.1.1": "link-local",
    "172.31.255.255": "private",
    "192.0.0.8": "protocol-assignments",
    "192.0.2.1": "documentation",
    "192.88.99.1": "6to4-relay",
    "192.168.0.1": "private",
    "198.19.0.1": "benchmarking",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::7f00:1": "ipv4-compatible",
    "::ffff:127.0.0.1": "ipv4-mapped",
    "::ffff:8.8.8.8": "ipv4-mapped",
    "::ffff:0:7f00:1": "ipv4-translated",
    "64:ff9b::7f00:1": "nat64",
    "64:ff9b:1::7f00:1": "nat64",
    "2002:7f00:1::": "6to4",
    "2001:0:7f00:1::1": "teredo",
    "2001:10::1": "protocol-assignments",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "100::1": "discard",
    "fc00::1": "unique-local",
    "fdff::1": "unique-local",
    "fe80::1": "link-local",
    "fe80::1%eth0": "zone",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "4000::1": "not-global-unicast",
    "169.254.169.254": "metadata",
    "169.254.170.2": "metadata",
    "fd00:ec2::254": "metadata",
    "fd20:ce::254": "metadata",
    "100.100.100.200": "metadata",
    "168.63.129.16": "metadata",
    "not an address": "malformed",
}
OUTSIDE = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "223.255.255.255",
    "2606:4700::1111",
    "2a00:1450::1",
]


@pytest.mark.parametrize(("address", "network"), INSIDE.items())
def test_name_that_leads_inside_is_refused(web: Web, address: str, network: str) -> None:
    web.names["evil.test"] = [address]

    status, rule, fault = web.refused("http://evil.test/", {"addresses": ()})

    assert (status, rule) == (Status.NOT_GRANTED, f"address.{network}")
    assert address not in fault.message + fault.remedy
    assert web.run.broker.usage.network_requests == 0


@pytest.mark.parametrize(
    ("address", "network"),
    [pair for pair in INSIDE.items() if pair[1] not in {"zone", "malformed"}],
)
def test_address_itself_is_refused_like_a_name(web: Web, address: str, network: str) -> None:
    host = f"[{address}]" if ":" in address else address

    status, rule, _ = web.refused(f"http://{host}/", {"addresses": (), "domains": (address,)})

    assert (status, rule) == (Status.NOT_GRANTED, f"address.{network}")


def test_the_table_stops_what_the_standard_library_calls_global() -> None:
    rules = AddressRules()
    called_global = [a for a in INSIDE if _is_global(a)]

    assert {"64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1", "224.0.0.1", "fec0::1"} <= set(
        called_global
    )
    assert all(rules.refusal(address) for address in called_global)


def _is_global(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


@pytest.mark.parametrize("address", OUTSIDE)
def test_public_address_may_be_dialled(address: str) -> None:
    assert AddressRules().refusal(address) == ""


@pytest.mark.parametrize("name", ["evil.test", "127.0.0.1"])
def test_loopback_is_reached_where_the_table_is_switched_off(name: str) -> None:
    web = Web(address_rules=AnyAddress())
    try:
        web.names.update({"evil.test": ["127.0.0.1"], "127.0.0.1": []})
        server = web.serve()

        answer = web.get(f"http://{name}:{server.port}/", {"addresses": ()})

        assert answer.body == b"ok"
    finally:
        web.close()


def test_one_bad_address_among_good_ones_is_not_dialled(web: Web) -> None:
    server = web.serve(address="127.0.0.2")
    trap = web.serve(address="127.0.0.1", port=server.port)
    web.names["mixed.test"] = ["127.0.0.1", "127.0.0.2"]

    answer = web.get(f"http://mixed.test:{server.port}/", {"addresses": ("127.0.0.2/32",)})

    assert answer.body == b"ok"
    assert (trap.connections, server.connections) == (0, 1)


def test_grant_opens_its_own_network_and_no_other(web: Web) -> None:
    rules = AddressRules(("10.1.0.0/16", "fd00::/8"))

    assert rules.refusal("10.1.2.3") == ""
    assert rules.refusal("10.2.0.1") == "private"
    assert rules.refusal("fd12::1") == ""
    assert rules.refusal("fc00::1") == "unique-local"


@pytest.mark.parametrize(
    ("granted", "address"),
    [
        ("169.254.0.0/16", "169.254.169.254"),
        ("fd00::/8", "fd00:ec2::254"),
        ("0.0.0.0/0", "168.63.129.16"),
    ],
)
def test_metadata_service_is_opened_by_its_own_address_only(granted: str, address: str) -> None:
    assert AddressRules((granted,)).refusal(address) == "metadata"
    assert AddressRules((granted, address)).refusal(address) == ""


def test_granting_the_mapped_range_does_not_open_the_addresses_inside_it() -> None:
    rules = AddressRules(("::ffff:0:0/96",))

    assert rules.refusal("::ffff:8.8.8.8") == ""
    assert rules.refusal("::ffff:127.0.0.1") == "loopback"
    assert rules.refusal("::ffff:169.254.169.254") == "metadata"
