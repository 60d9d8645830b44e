"""The policy envelope: what one call may use, in numbers and names.

Owns the model and its canonical form. It is a value: frozen, hashable, and only ever narrowed
(`toolcell.policy.compose`). It knows nothing of files, classes, tools or lanes.

A list in it is a set: it is normalised on construction (sorted, without duplicates or members that
another one covers), so that two envelopes that allow the same are equal and have one digest.
"""

import difflib
import hashlib
import hmac
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from toolcell.policy.hosts import normal_domains, normal_networks

__all__ = [
    "CAPABILITIES",
    "FILE_CAPABILITIES",
    "Approval",
    "CapabilityPolicy",
    "Filesystem",
    "HttpPolicy",
    "KvPolicy",
    "Network",
    "PolicyEnvelope",
    "canonical_json",
    "policy_digest",
]

CAPABILITIES = frozenset(
    {
        "kv.get",
        "kv.set",
        "kv.delete",
        "kv.list",
        "http.fetch",
        "fs.readText",
        "fs.writeText",
        "fs.readBytes",
        "fs.writeBytes",
        "fs.list",
        "fs.remove",
        "images.resize",
        "log.emit",
    }
)
"""Every capability that the broker knows. A name outside this set is a configuration error."""

FILE_CAPABILITIES = frozenset(name for name in CAPABILITIES if name.startswith("fs."))

Filesystem = Literal["read-only-package", "ephemeral", "host"]
Network = Literal["off", "outbound-https-only", "full"]

Count = Annotated[int, Meta(ge=0, le=2**53)]
"""Up to 2**53: what every JSON reader holds exactly."""
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]
"""Up to a day: far above any run, and safe to hand to every clock and timer."""
Mebibytes = Annotated[int, Meta(ge=0, le=2**20)]
"""Up to 1 TiB, so that the same in bytes fits a signed 64-bit number."""
Handles = Annotated[int, Meta(ge=0, le=2**20)]
"""Processes or open files; 2**20 is the kernel's own ceiling on open files (`fs.nr_open`)."""

Port = Annotated[int, Meta(ge=1, le=65535)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]
Domains = Annotated[tuple[Annotated[str, Meta(max_length=260)], ...], Meta(max_length=256)]
Networks = Annotated[tuple[Name, ...], Meta(max_length=64)]
Names = Annotated[tuple[Name, ...], Meta(max_length=64)]

_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")
_REFUSED_METHODS = frozenset({"CONNECT", "TRACE"})
"""A tunnel out of the allowlist, and a mirror that shows injected credentials."""


def unknown_capability(name: str) -> str:
    """The sentence for a capability that does not exist; names the nearest one that does."""
    near = difflib.get_close_matches(name, CAPABILITIES, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    return f"capability {name!r} does not exist{hint} (known: {', '.join(sorted(CAPABILITIES))})"


class CapabilityPolicy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sub-policy of one capability, per invocation.

    `max_requests` calls; `max_bytes` in and out together; `timeout_ms` for one call, which can
    only shorten the call's own deadline.
    """

    max_requests: Count = 1000
    max_bytes: Count = 8 * 1024 * 1024
    timeout_ms: Milliseconds = 5000


class HttpPolicy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sub-policy of `http.fetch`. Every list is an allowlist, and an empty one allows nothing.

    `domains`: exact host names or addresses, or `*.example.org` for names below one (not the name
    itself). `addresses`: CIDR blocks outside the public internet that may be dialled all the same
    (loopback in a test, a private service); an address in none of them must be public.
    `credentials`: names of secrets that the tool may ask the broker to add, each bound to
    domains in the operator's secret store.
    `max_response_bytes` bounds the body after decompression, `max_redirects` the hops.
    """

    max_requests: Count = 20
    max_bytes: Count = 8 * 1024 * 1024
    timeout_ms: Milliseconds = 5000
    domains: Domains = ()
    schemes: tuple[Literal["https", "http"], ...] = ("https",)
    methods: Names = ("GET", "HEAD")
    ports: Annotated[tuple[Port, ...], Meta(max_length=64)] = (443,)
    addresses: Networks = ()
    credentials: Names = ()
    max_redirects: Annotated[int, Meta(ge=0, le=20)] = 3
    max_request_bytes: Count = 256 * 1024
    max_response_bytes: Count = 2 * 1024 * 1024
    max_header_bytes: Count = 32 * 1024

    def __post_init__(self) -> None:
        force_setattr(self, "domains", normal_domains(self.domains))
        force_setattr(self, "addresses", normal_networks(self.addresses))
        force_setattr(self, "schemes", _as_set(self.schemes))
        force_setattr(self, "methods", _as_set(_method(name) for name in self.methods))
        force_setattr(self, "ports", tuple(sorted(set(self.ports))))
        force_setattr(self, "credentials", _as_set(self.credentials))


def _as_set(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _method(name: str) -> str:
    upper = name.upper()
    if not _METHOD.fullmatch(upper) or upper in _REFUSED_METHODS:
        raise ValueError(f"method {name!r} is not one that may be granted: write GET, POST, …")
    return upper


class KvPolicy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sub-policy of `kv.*`, shared by the four of them.

    `namespace`: empty for a store that lives as long as the invocation; a name for the persistent
    store of that name. `max_value_bytes` bounds one value, `max_total_bytes` keys and values of
    the whole store, `max_keys` their number.
    """

    max_requests: Count = 1000
    max_bytes: Count = 8 * 1024 * 1024
    timeout_ms: Milliseconds = 1000
    namespace: Annotated[str, Meta(max_length=64, pattern=r"^([a-z0-9][a-z0-9._-]*)?\Z")] = ""
    max_value_bytes: Count = 256 * 1024
    max_total_bytes: Count = 4 * 1024 * 1024
    max_keys: Count = 10_000


class CapabilityPolicies(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="kebab"
):
    """The sub-policies, one per interface. In TOML: `[capabilities.http]`."""

    kv: KvPolicy = KvPolicy()
    http: HttpPolicy = HttpPolicy()
    fs: CapabilityPolicy = CapabilityPolicy()
    images: CapabilityPolicy = CapabilityPolicy(max_requests=10, max_bytes=32 * 1024 * 1024)
    log: CapabilityPolicy = CapabilityPolicy(max_requests=10_000)


class Approval(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An operator's word for `filesystem = "host"` or `network = "full"`: who, when, why.

    `when` is an ISO 8601 date, or date and time (UTC where it names no zone). That it is not in
    the future is checked where a policy is used (`toolcell.policy.approvals`): this is a value.
    """

    grants: Literal["filesystem=host", "network=full"]
    who: Annotated[str, Meta(min_length=1, max_length=200)]
    when: Annotated[str, Meta(min_length=10, max_length=40)]
    why: Annotated[str, Meta(min_length=1, max_length=1000)]

    def __post_init__(self) -> None:
        try:
            datetime.fromisoformat(self.when)
        except ValueError:
            raise ValueError(
                f"when = {self.when!r} is not an ISO 8601 date: write YYYY-MM-DD"
            ) from None
        if not self.who.strip() or not self.why.strip():
            raise ValueError("an approval says who gave it and why")


class PolicyEnvelope(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ceilings and grants of one call. The defaults are the class `safe-default`.

    Units are in the names; `_mb` is MiB. A limit of 0 allows nothing; there is no "unlimited".
    `allowed_host_apis` holds capability names. `fuel` 0 means that fuel is counted, not capped.
    `min_isolation`: 0 plain call, 1 wasi lane, 2 oops lane, 3 a stronger backend.
    `deterministic`: fixed clock and seeded randomness, so that the same call gives the same bytes.
    """

    cpu_time_ms: Milliseconds = 5000
    wall_time_ms: Milliseconds = 10_000
    memory_mb: Annotated[int, Meta(ge=1, le=2**20)] = 128
    max_processes: Handles = 64
    max_open_files: Handles = 64
    max_output_bytes: Count = 1024 * 1024
    max_log_bytes: Count = 64 * 1024
    log_rate: Count = 100
    max_message_bytes: Count = 2 * 1024 * 1024
    scratch_mb: Mebibytes = 16
    fuel: Count = 0
    allow_network_egress: bool = False
    allow_file_io: bool = False
    allowed_host_apis: Names = ()
    filesystem: Filesystem = "read-only-package"
    network: Network = "off"
    min_isolation: Annotated[int, Meta(ge=0, le=3)] = 1
    deterministic: bool = False
    capabilities: CapabilityPolicies = field(default_factory=CapabilityPolicies)
    approvals: Annotated[tuple[Approval, ...], Meta(max_length=16)] = ()

    def __post_init__(self) -> None:
        for name in self.allowed_host_apis:
            if name not in CAPABILITIES:
                raise ValueError(unknown_capability(name))
        force_setattr(self, "allowed_host_apis", _as_set(self.allowed_host_apis))
        force_setattr(
            self, "approvals", tuple(sorted(set(self.approvals), key=msgspec.structs.astuple))
        )

    def grants(self, capability: str) -> bool:
        """Whether a call of `capability` is granted, derived controls included.

        No egress refuses `http.fetch` and no file IO refuses every `fs.*`, whatever the list says.
        """
        if capability not in self.allowed_host_apis:
            return False
        if capability == "http.fetch":
            return self.allow_network_egress
        if capability in FILE_CAPABILITIES:
            return self.allow_file_io
        return True


_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical_json(value: Any) -> bytes:
    """`value` as JSON with sorted keys and no white space: the same value, the same bytes."""
    return _ENCODER.encode(value)


def policy_digest(envelope: PolicyEnvelope, key: bytes) -> str:
    """`hmac-sha256:<hex>` over the canonical form of `envelope`.

    Keyed, so that a reader of the audit log can tell two policies apart but not guess one.
    """
    mac = hmac.new(key, canonical_json(envelope), hashlib.sha256)
    return f"hmac-sha256:{mac.hexdigest()}"
