"""Every field of the envelope: what it means, and how two values of it compose.

Owns the table `FIELDS`, by dotted path (`capabilities.http.domains`). Composition, policy files,
`toolcell policy` and the reference in `docs/policy.md` are all driven by it, so a field that is
added to the envelope and not to this table fails a test. It decides nothing about a call.

A composition rule is the meet of a semilattice: commutative, associative, idempotent, and never
wider than either value.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from toolcell.policy.envelope import CapabilityPolicies, PolicyEnvelope
from toolcell.policy.hosts import common_domains, common_networks

__all__ = ["FIELDS", "Field", "assemble", "flatten"]

Meet = Callable[[Any, Any], Any]


class Rule(Struct, frozen=True):
    """How two values of a field become one. `text` says it in the reference."""

    text: str
    meet: Meet


class Field(Struct, frozen=True):
    """One field: dotted path, unit (empty where the value is not a quantity), rule, meaning."""

    path: str
    unit: str
    rule: Rule
    about: str

    def of(self, envelope: PolicyEnvelope) -> Any:
        """The value of this field in `envelope`."""
        return attrgetter(self.path)(envelope)

    def meet(self, one: Any, other: Any) -> Any:
        """The widest value that is no wider than either."""
        return self.rule.meet(one, other)

    def within(self, inner: Any, outer: Any) -> bool:
        """Whether `inner` allows nothing that `outer` does not."""
        return bool(self.meet(inner, outer) == inner)


def _stricter(order: Sequence[str]) -> Rule:
    """The value that comes first in `order`, which runs from the strictest to the widest."""
    rank = {value: index for index, value in enumerate(order)}
    text = "the stricter: " + " < ".join(f"`{value}`" for value in order)
    return Rule(text, lambda one, other: min(one, other, key=rank.__getitem__))


def _lower_cap(one: int, other: int) -> int:
    """Fuel: 0 is no cap, so it is the widest value."""
    return min(one, other) if one and other else one or other


LOWER = Rule("the lower", min)
HIGHER = Rule("the higher", max)
LOWER_CAP = Rule("the lower of those that are not 0; 0 is no cap", _lower_cap)
BOTH = Rule("true only where both are", lambda one, other: one and other)
EITHER = Rule("true where either is", lambda one, other: one or other)
COMMON = Rule("what is in both", lambda one, other: tuple(v for v in one if v in other))
DOMAINS = Rule("what both allow; a name under the other's wildcard stays", common_domains)
NETWORKS = Rule("the addresses in both", common_networks)
SAME = Rule("the name where both have the same, else empty", lambda a, b: a if a == b else "")
FILESYSTEM = _stricter(("read-only-package", "ephemeral", "host"))
NETWORK = _stricter(("off", "outbound-https-only", "full"))

_TOP = (
    Field("cpu_time_ms", "ms", LOWER, "CPU time of the whole call."),
    Field("wall_time_ms", "ms", LOWER, "Wall time of the call, host calls included."),
    Field("memory_mb", "MiB", LOWER, "Memory of the cell."),
    Field(
        "max_processes",
        "processes",
        LOWER,
        "Processes and threads, in a lane that has them (oops).",
    ),
    Field("max_open_files", "handles", LOWER, "Open files, in a lane that has them (oops)."),
    Field("max_output_bytes", "bytes", LOWER, "The result; and stdout and stderr together."),
    Field("max_log_bytes", "bytes", LOWER, "Kept of `log.emit`; and of stdout and stderr."),
    Field("log_rate", "lines/s", LOWER, "Lines of each of those: a bucket of one second."),
    Field("max_message_bytes", "bytes", LOWER, "One message to or from the tool, input included."),
    Field("scratch_mb", "MiB", LOWER, "Quota of `/scratch`. 0 where `allow_file_io` is false."),
    Field("fuel", "fuel", LOWER_CAP, "Instructions (wasi lane). 0: counted, not capped."),
    Field(
        "allow_network_egress",
        "",
        BOTH,
        "Whether a byte may leave at all, by whatever way. False refuses `http.fetch` whatever "
        "the list says, and makes `network` `off`.",
    ),
    Field(
        "allow_file_io",
        "",
        BOTH,
        "Whether there is a `/scratch`. False refuses every `fs.*` whatever the list says, and "
        "makes `scratch_mb` 0 and `filesystem` `read-only-package`.",
    ),
    Field("allowed_host_apis", "", COMMON, "The capabilities that may be called, by full name."),
    Field(
        "filesystem",
        "",
        FILESYSTEM,
        "What files the cell itself may see: its own package, also a `/scratch` that is gone "
        "after the call, or the host's (needs an approval). The broker's `fs.*` do not need it.",
    ),
    Field(
        "network",
        "",
        NETWORK,
        "What network the cell itself may see: none, outgoing HTTPS, or the host's (needs an "
        "approval). The broker's `http.fetch` does not need it.",
    ),
    Field(
        "min_isolation",
        "level",
        HIGHER,
        "0 plain call, 1 wasi lane, 2 oops lane, 3 a stronger backend.",
    ),
    Field("deterministic", "", EITHER, "Fixed clock, seeded randomness: same call, same bytes."),
    Field(
        "approvals",
        "",
        COMMON,
        "An operator's word for `filesystem=host` or `network=full`: who, when, why.",
    ),
)

_EACH = (
    ("max_requests", "calls", "Calls per invocation, all functions together."),
    ("max_bytes", "bytes", "In and out together, per invocation."),
    ("timeout_ms", "ms", "One call; it can only shorten the call's own deadline."),
)

_KV = (
    Field(
        "namespace",
        "",
        SAME,
        "Empty: a store that lives as long as the invocation. A name: the persistent store of "
        "that name.",
    ),
    Field("max_value_bytes", "bytes", LOWER, "One value."),
    Field("max_total_bytes", "bytes", LOWER, "Keys and values of the whole store."),
    Field("max_keys", "keys", LOWER, "Keys in the store."),
)

_HTTP = (
    Field(
        "domains",
        "",
        DOMAINS,
        "Host names or addresses; `*.example.org` is every name below it, not the name itself.",
    ),
    Field("schemes", "", COMMON, "`https`, `http`."),
    Field("methods", "", COMMON, "Request methods; `CONNECT` and `TRACE` can't be granted."),
    Field("ports", "", COMMON, "Ports that may be dialled."),
    Field(
        "addresses",
        "",
        NETWORKS,
        "CIDR blocks outside the public internet that may be dialled all the same.",
    ),
    Field("credentials", "", COMMON, "Secrets that the broker may add, by name."),
    Field("max_redirects", "hops", LOWER, "Redirects followed, each one checked again."),
    Field("max_request_bytes", "bytes", LOWER, "Body of one request."),
    Field("max_response_bytes", "bytes", LOWER, "Body of one response, decompressed."),
    Field("max_header_bytes", "bytes", LOWER, "Header of one response."),
)


def _under(name: str, own: Sequence[Field] = ()) -> list[Field]:
    each = [Field(field, unit, LOWER, about) for field, unit, about in _EACH]
    return [
        Field(f"capabilities.{name}.{field.path}", field.unit, field.rule, field.about)
        for field in (*each, *own)
    ]


FIELDS: Mapping[str, Field] = {
    field.path: field
    for field in (
        *_TOP,
        *_under("kv", _KV),
        *_under("http", _HTTP),
        *_under("fs"),
        *_under("images"),
        *_under("log"),
    )
}
"""Every field by its dotted path, in the order of the reference."""


def flatten(envelope: PolicyEnvelope) -> dict[str, Any]:
    """The values of `envelope` by dotted path."""
    return {path: field.of(envelope) for path, field in FIELDS.items()}


def assemble(values: Mapping[str, Any]) -> PolicyEnvelope:
    """The envelope with these values by dotted path; a field that is not named has its default.

    The values are believed: they come from an envelope, or were checked by `policy.files`.
    """
    top: dict[str, Any] = {}
    below: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        parts = path.split(".")
        if len(parts) == 1:
            top[path] = value
        else:
            below.setdefault(parts[1], {})[parts[2]] = value
    if below:
        policies = asdict(CapabilityPolicies())
        for name, own in below.items():
            kind = type(policies[name])
            policies[name] = kind(**{**asdict(policies[name]), **own})
        top["capabilities"] = CapabilityPolicies(**policies)
    return PolicyEnvelope(**top)
