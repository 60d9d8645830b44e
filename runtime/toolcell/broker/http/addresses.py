"""Which addresses `http.fetch` may dial.

Owns the table of networks that are not the public internet. `ipaddress.is_global` does not do: it
calls NAT64, 6to4, IPv4-compatible and multicast addresses global, and each of them can lead back
inside. An address in the table is refused unless the policy grants its network; the name of the
network is all that the guest learns.

Sources: the IANA special-purpose registries (RFC 6890 and successors), RFC 6052, RFC 8215,
RFC 3056, RFC 4380, and the cloud providers' documentation for the metadata services.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

from toolcell.policy.hosts import METADATA_ADDRESSES

__all__ = ["AddressRules", "Rules", "rules_for"]

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_REFUSED = (
    ("this-network", "0.0.0.0/8"),
    ("private", "10.0.0.0/8"),
    ("shared", "100.64.0.0/10"),
    ("loopback", "127.0.0.0/8"),
    ("link-local", "169.254.0.0/16"),
    ("private", "172.16.0.0/12"),
    ("protocol-assignments", "192.0.0.0/24"),
    ("documentation", "192.0.2.0/24"),
    ("as112", "192.31.196.0/24"),
    ("multicast-relay", "192.52.193.0/24"),
    ("6to4-relay", "192.88.99.0/24"),
    ("private", "192.168.0.0/16"),
    ("as112", "192.175.48.0/24"),
    ("benchmarking", "198.18.0.0/15"),
    ("documentation", "198.51.100.0/24"),
    ("documentation", "203.0.113.0/24"),
    ("multicast", "224.0.0.0/4"),
    ("reserved", "240.0.0.0/4"),
    ("unspecified", "::/128"),
    ("loopback", "::1/128"),
    ("ipv4-mapped", "::ffff:0:0/96"),
    ("ipv4-translated", "::ffff:0:0:0/96"),
    ("ipv4-compatible", "::/96"),
    ("nat64", "64:ff9b::/96"),
    ("nat64", "64:ff9b:1::/48"),
    ("discard", "100::/64"),
    ("teredo", "2001::/32"),
    ("protocol-assignments", "2001::/23"),
    ("documentation", "2001:db8::/32"),
    ("6to4", "2002::/16"),
    ("as112", "2620:4f:8000::/48"),
    ("documentation", "3fff::/20"),
    ("unique-local", "fc00::/7"),
    ("link-local", "fe80::/10"),
    ("site-local", "fec0::/10"),
    ("multicast", "ff00::/8"),
)
"""In order: the first that holds an address names it."""

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that is handed out so far (RFC 4291 section 2.4). The rest is refused unnamed."""

_TABLE = tuple((name, ipaddress.ip_network(block)) for name, block in _REFUSED)


class Rules(Protocol):
    """Says which addresses may be dialled. :class:`AddressRules`, or a test's own."""

    def refusal(self, address: str) -> str:
        """The name of the network that refuses `address`, or the empty string."""


class AddressRules:
    """The table, less the networks that a policy grants. `granted`: CIDR blocks."""

    def __init__(self, granted: Iterable[str] = ()) -> None:
        self._granted = tuple(ipaddress.ip_network(block) for block in granted)

    def refusal(self, address: str) -> str:
        """The name of the network that refuses `address`, or the empty string."""
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            return "malformed"
        if getattr(ip, "scope_id", None) is not None:
            return "zone"
        if str(ip) in METADATA_ADDRESSES:  # a grant must name that very address
            return "" if ipaddress.ip_network(ip) in self._granted else "metadata"
        if any(_holds(network, ip) for network in self._granted):
            mapped = getattr(ip, "ipv4_mapped", None)  # the kernel dials the IPv4 address inside
            return "" if mapped is None else self.refusal(str(mapped))
        for name, network in _TABLE:
            if _holds(network, ip):
                return name
        if ip.version == 6 and ip not in _GLOBAL_UNICAST:
            return "not-global-unicast"
        return ""


def _holds(network: _Network, ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return ip.version == network.version and ip in network


@lru_cache(maxsize=64)
def rules_for(granted: tuple[str, ...]) -> AddressRules:
    """The rules of a policy's `addresses`, kept: every call of a policy asks for the same."""
    return AddressRules(granted)
