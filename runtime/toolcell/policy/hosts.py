"""Host names and networks in a policy: one normal form each, and how two lists intersect.

Owns the syntax of `domains` and `addresses` of `http.fetch`. Resolves no name and dials nothing;
whether a URL or an address is allowed is decided in `toolcell.broker`. Called by the envelope,
which normalises on construction, and by `toolcell.policy.compose`.

A list is kept as the sorted set of its widest members, so that two lists that allow the same are
equal, have the same digest, and intersect to the same list in whatever order.
"""

import ipaddress
import re
from collections.abc import Iterable

__all__ = [
    "METADATA_ADDRESSES",
    "common_domains",
    "common_networks",
    "normal_domain",
    "normal_domains",
    "normal_networks",
]

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_BLOCK = re.compile(r"[0-9a-fA-F.:]+(/[0-9]{1,3})?")
_MAX_NAME = 253  # RFC 1035 section 2.3.4, without the root's trailing dot

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA_ADDRESSES = frozenset(
    {
        "169.254.169.254",  # AWS, GCP, Azure, OpenStack, DigitalOcean, Oracle
        "169.254.170.2",  # AWS ECS task credentials
        "169.254.170.23",  # AWS EKS pod identity
        "fd00:ec2::254",  # AWS over IPv6
        "fd00:ec2::23",  # AWS EKS pod identity over IPv6
        "fd20:ce::254",  # GCP over IPv6
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's host agent, inside the public range
        "192.0.0.192",  # Oracle, older shapes
    }
)
"""Services that hand out a machine's credentials. A wider block does not stand for them: only a
block of that one address does."""

_METADATA = frozenset(ipaddress.ip_network(address) for address in METADATA_ADDRESSES)


def normal_domain(pattern: str) -> str:
    """`pattern` in lower case without a trailing dot; an IP address in its shortest form.

    A pattern is a host name, `*.` and a host name (every name below it, at any depth, but not the
    name itself), or an IP address without brackets. Anything else is a :class:`ValueError`: a
    scheme, a port, a path, a bare `*`, non-ASCII (write the `xn--` form), or a number that some
    resolvers read as an address (`127.1`, `0x7f000001`).
    """
    text = pattern.lower().removesuffix(".")
    if "/" not in text and (":" in text or text.startswith("[")):
        return _normal_address(pattern, text.removeprefix("[").removesuffix("]"))
    name = text.removeprefix("*.")
    labels = name.split(".")
    if len(name) > _MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(
            f"domain {pattern!r} is not a host name, `*.` and a host name, or an IP address: "
            "write it without scheme, port and path, and in ASCII (`xn--…`)"
        )
    if _NUMBER.fullmatch(labels[-1]):
        return _normal_address(pattern, text)
    return text


def _normal_address(pattern: str, text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(
            f"domain {pattern!r} looks like an address and is not one: "
            "write four decimal numbers, or IPv6 (without a port)"
        ) from None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise ValueError(f"domain {pattern!r} names a network interface: leave out `%…`")
    return str(address)


def normal_domains(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns in normal form, sorted, without those that a wildcard of the list covers."""
    names = {normal_domain(pattern) for pattern in patterns}
    return tuple(sorted(name for name in names if not _covered(name, names - {name})))


def _covered(name: str, patterns: set[str]) -> bool:
    """Whether a pattern allows all that `name`, itself a pattern, allows."""
    if name in patterns:
        return True
    labels = name.removeprefix("*.").split(".")
    first = 0 if name.startswith("*.") else 1
    return any("*." + ".".join(labels[start:]) in patterns for start in range(first, len(labels)))


def common_domains(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """What both lists allow: `*.example.org` and `api.example.org` give `api.example.org`."""
    ours, theirs = set(one), set(other)
    both = {name for name in ours if _covered(name, theirs)}
    both |= {name for name in theirs if _covered(name, ours)}
    return tuple(sorted(both))


def normal_networks(blocks: Iterable[str]) -> tuple[str, ...]:
    """CIDR blocks, neighbours merged, IPv4 before IPv6. A plain address is a block of one.

    A block with bits set to the right of its prefix (`10.0.0.1/8`) is a :class:`ValueError`: it
    says one thing and means another.
    """
    return _joined(_network(block) for block in blocks)


def _network(block: str) -> _Network:
    # Netmasks and interfaces (`fe80::1%eth0`), which `ipaddress` takes too, have no place here.
    reason = "an address, a slash and a prefix length"
    if _BLOCK.fullmatch(block):
        try:
            return ipaddress.ip_network(block)
        except ValueError as error:
            reason = str(error)
    raise ValueError(f"{block!r} is not a CIDR block ({reason}): write one such as `10.1.0.0/16`")


def _joined(networks: Iterable[_Network]) -> tuple[str, ...]:
    four: list[ipaddress.IPv4Network] = []
    six: list[ipaddress.IPv6Network] = []
    for network in networks:
        if isinstance(network, ipaddress.IPv4Network):
            four.append(network)
        else:
            six.append(network)
    return (
        *(str(network) for network in ipaddress.collapse_addresses(four)),
        *(str(network) for network in ipaddress.collapse_addresses(six)),
    )


def common_networks(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The addresses in both lists, as CIDR blocks.

    A metadata service is one where both lists name it: else a mask that narrows `169.254.0.0/16`
    to that one address would grant what the block does not.
    """
    ours, theirs = [_network(block) for block in one], [_network(block) for block in other]
    both = {a for a in ours if any(_inside(a, b) for b in theirs)}
    both |= {b for b in theirs if any(_inside(b, a) for a in ours)}
    return _joined(both - (_METADATA - (set(ours) & set(theirs))))


def _inside(inner: _Network, outer: _Network) -> bool:
    """Whether `inner` is part of `outer`. Two blocks overlap only where one is in the other."""
    if isinstance(inner, ipaddress.IPv4Network):
        return isinstance(outer, ipaddress.IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, ipaddress.IPv6Network) and inner.subnet_of(outer)
