"""The policy envelope: what one call may use, in numbers and names.

Owns the model and its canonical form. It is a value: frozen, comparable, and only ever narrowed
(`toolcell.policy.compose`). It knows nothing of files, classes, tools or lanes.
"""

import hashlib
import hmac
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

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
Positive = Annotated[int, Meta(ge=1, le=2**53)]


class CapabilityPolicy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sub-policy of one capability, per invocation.

    `max_requests` calls; `max_bytes` in and out together; `timeout_ms` for one call, which can
    only shorten the call's own deadline.
    """

    max_requests: Count = 1000
    max_bytes: Count = 8 * 1024 * 1024
    timeout_ms: Positive = 5000


class HttpPolicy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sub-policy of `http.fetch`. Every list is an allowlist, and an empty one allows nothing.

    `domains`: exact host names, or `*.example.org` for names below one (not the name itself).
    `addresses`: CIDR blocks outside the public internet that may be dialled all the same
    (loopback in a test, a private service); an address in none of them must be public.
    `credentials`: names of secrets that the tool may ask the broker to add, each bound to
    domains in the operator's secret store.
    `max_response_bytes` bounds the body after decompression, `max_redirects` the hops.
    """

    max_requests: Count = 20
    max_bytes: Count = 8 * 1024 * 1024
    timeout_ms: Positive = 5000
    domains: tuple[str, ...] = ()
    schemes: tuple[Literal["https", "http"], ...] = ("https",)
    methods: tuple[str, ...] = ("GET", "HEAD")
    ports: tuple[Annotated[int, Meta(ge=1, le=65535)], ...] = (443,)
    addresses: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    max_redirects: Annotated[int, Meta(ge=0, le=20)] = 3
    max_request_bytes: Count = 256 * 1024
    max_response_bytes: Count = 2 * 1024 * 1024
    max_header_bytes: Count = 32 * 1024


class KvPolicy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sub-policy of `kv.*`, shared by the four of them.

    `namespace`: empty for a store that lives as long as the invocation; a name for the persistent
    store of that name. `max_value_bytes` bounds one value, `max_total_bytes` keys and values of
    the whole store, `max_keys` their number.
    """

    max_requests: Count = 1000
    max_bytes: Count = 8 * 1024 * 1024
    timeout_ms: Positive = 1000
    namespace: Annotated[str, Meta(max_length=64, pattern=r"^([a-z0-9][a-z0-9._-]*)?$")] = ""
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
    """An operator's word for `filesystem = "host"` or `network = "full"`: who, when, why."""

    grants: Literal["filesystem=host", "network=full"]
    who: Annotated[str, Meta(min_length=1, max_length=200)]
    when: Annotated[str, Meta(min_length=10, max_length=40)]
    why: Annotated[str, Meta(min_length=1, max_length=1000)]


class PolicyEnvelope(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ceilings and grants of one call. The defaults are the class `safe-default`.

    Units are in the names; `_mb` is MiB. A limit of 0 allows nothing; there is no "unlimited".
    `allowed_host_apis` holds capability names. `fuel` 0 means that fuel is counted, not capped.
    `min_isolation`: 0 plain call, 1 wasi lane, 2 oops lane, 3 a stronger backend.
    `deterministic`: fixed clock and seeded randomness, so that the same call gives the same bytes.
    """

    cpu_time_ms: Positive = 5000
    wall_time_ms: Positive = 10_000
    memory_mb: Positive = 128
    max_processes: Count = 64
    max_open_files: Count = 64
    max_output_bytes: Count = 1024 * 1024
    max_log_bytes: Count = 64 * 1024
    log_rate: Count = 100
    max_message_bytes: Count = 2 * 1024 * 1024
    scratch_mb: Count = 16
    fuel: Count = 0
    allow_network_egress: bool = False
    allow_file_io: bool = False
    allowed_host_apis: tuple[str, ...] = ()
    filesystem: Filesystem = "read-only-package"
    network: Network = "off"
    min_isolation: Annotated[int, Meta(ge=0, le=3)] = 1
    deterministic: bool = False
    capabilities: CapabilityPolicies = field(default_factory=CapabilityPolicies)
    approvals: tuple[Approval, ...] = ()

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
