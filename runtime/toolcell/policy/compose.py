"""Composition: what is left when policy, masks and the tool's own request are laid together.

Owns the only way from several envelopes to one, and it only narrows: no result allows anything
that one of its inputs does not. It reads no file and knows no lane. Called by
`toolcell.policy.book`, which remembers its answers, and by `toolcell policy explain`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from toolcell.artifact.manifest import Manifest
from toolcell.policy.approvals import require_approvals
from toolcell.policy.envelope import FILE_CAPABILITIES, PolicyEnvelope
from toolcell.policy.fields import FIELDS, assemble, flatten

__all__ = [
    "SHIPPED_ORIGIN",
    "Denial",
    "Effective",
    "Grant",
    "Mask",
    "Stage",
    "derive",
    "effective",
    "narrow",
    "requested",
    "stages",
    "within",
]


SHIPPED_ORIGIN = "shipped"
"""The origin of the classes and masks that come with toolcell, which nobody can edit."""


class Grant(Struct, frozen=True, kw_only=True):
    """A policy by its name: what an operator grants, and where that was written.

    `manifest_may_choose`: whether a tool may name this class in its own manifest and get it
    without the operator naming it for the call.
    """

    name: str
    envelope: PolicyEnvelope
    origin: str = ""
    description: str = ""
    manifest_may_choose: bool = False


class Mask(Struct, frozen=True, kw_only=True):
    """A partial envelope: values by dotted path. A field that it does not name is left alone."""

    name: str
    values: Mapping[str, Any]
    origin: str = ""
    description: str = ""


class Denial(Struct, frozen=True, kw_only=True):
    """Something that the tool asks for and does not get.

    `grant` is the capability, or the demand on the cell (`filesystem=ephemeral`).
    """

    grant: str
    why: str
    remedy: str


class Effective(Struct, frozen=True, kw_only=True):
    """The envelope of a call, and what the tool asked for in vain.

    A capability in `denied` ends the call where the tool imports it (the lane refuses) or calls it
    (the broker refuses); a demand on the cell is refused by `toolcell.isolation`.
    """

    envelope: PolicyEnvelope
    denied: tuple[Denial, ...]


class Stage(Struct, frozen=True, kw_only=True):
    """The envelope after one step of composition. `label` is a noun phrase for that step.

    `remedy` says what an operator can do about it, with `{fixes}` where the changes go.
    """

    label: str
    remedy: str
    envelope: PolicyEnvelope


def narrow(first: PolicyEnvelope, *others: PolicyEnvelope | Mask) -> PolicyEnvelope:
    """The intersection: for each field, the widest value that is no wider than any of them.

    Commutative, associative and idempotent over envelopes.
    """
    values = flatten(first)
    for other in others:
        theirs = other.values if isinstance(other, Mask) else flatten(other)
        for path, value in theirs.items():
            values[path] = FIELDS[path].meet(values[path], value)
    return assemble(values)


def within(inner: PolicyEnvelope, outer: PolicyEnvelope) -> bool:
    """Whether `inner` allows nothing that `outer` does not."""
    return all(field.within(field.of(inner), field.of(outer)) for field in FIELDS.values())


def derive(envelope: PolicyEnvelope) -> PolicyEnvelope:
    """Applies the two master switches, so that no other field says more than they allow.

    No egress: `http.fetch` goes and `network` is `off`. No file IO: every `fs.*` goes, there is no
    scratch, and `filesystem` is `read-only-package`. Idempotent, and commutes with :func:`narrow`.
    """
    changes: dict[str, Any] = {}
    refused: frozenset[str] = frozenset()
    if not envelope.allow_network_egress:
        refused |= {"http.fetch"}
        changes["network"] = "off"
    if not envelope.allow_file_io:
        refused |= FILE_CAPABILITIES
        changes["filesystem"] = "read-only-package"
        changes["scratch_mb"] = 0
    left = tuple(name for name in envelope.allowed_host_apis if name not in refused)
    return replace(envelope, allowed_host_apis=left, **changes)


def requested(manifest: Manifest) -> Mask:
    """What the tool asks for, as a mask: it gets no more, whatever the policy grants."""
    files = manifest.sandbox.filesystem != "read-only-package"
    files = files or any(name in FILE_CAPABILITIES for name in manifest.capabilities)
    egress = manifest.sandbox.network != "off" or "http.fetch" in manifest.capabilities
    values: dict[str, Any] = {
        "allowed_host_apis": tuple(sorted(manifest.capabilities)),
        "allow_file_io": files,
        "allow_network_egress": egress,
        "filesystem": manifest.sandbox.filesystem,
        "network": manifest.sandbox.network,
    }
    limits = asdict(manifest.limits)
    values |= {name: limit for name, limit in limits.items() if limit is not None}
    return Mask(name="manifest", values=values)


def stages(
    manifest: Manifest, grant: Grant, masks: Sequence[Grant | Mask] = ()
) -> tuple[Stage, ...]:
    """Each step from the policy as granted to the effective envelope, in order."""
    where = f"policy `{grant.name}`"
    envelope = grant.envelope
    steps = [Stage(label=where, remedy=_policy_remedy(grant), envelope=envelope)]
    for mask in masks:
        other = mask.envelope if isinstance(mask, Grant) else mask
        envelope = narrow(envelope, other)
        label = f"mask `{mask.name}`"
        fixed = mask.origin == SHIPPED_ORIGIN
        remedy = f"leave out the {label}" if fixed else f"{{fixes}} in the {label}, or leave it out"
        steps.append(Stage(label=label, remedy=remedy, envelope=envelope))
    envelope = narrow(envelope, requested(manifest))
    steps.append(Stage(label="the manifest", remedy="{fixes} in the manifest", envelope=envelope))
    steps.append(
        Stage(label="the master switches", remedy=_policy_remedy(grant), envelope=derive(envelope))
    )
    return tuple(steps)


def _policy_remedy(grant: Grant) -> str:
    if grant.origin != SHIPPED_ORIGIN:
        return f"{{fixes}} in the policy `{grant.name}`"
    return (
        f'write a policy file with `extends = "{grant.name}"` that does this, and name it with '
        "--policy FILE: {fixes}"
    )


def effective(
    manifest: Manifest,
    grant: Grant,
    masks: Sequence[Grant | Mask] = (),
    *,
    now: datetime | None = None,
) -> Effective:
    """What a call of this tool may use: request ∩ grant ∩ masks, master switches applied.

    :class:`PolicyDenied` where the grant, or what is left of it, lacks an approval that it needs.
    """
    require_approvals(grant.name, grant.envelope, now)
    steps = stages(manifest, grant, masks)
    envelope = steps[-1].envelope
    require_approvals(grant.name, envelope, now)
    denied = [_denied_capability(name, steps) for name in sorted(manifest.capabilities)]
    denied.append(_denied_demand("filesystem", manifest.sandbox.filesystem, steps))
    denied.append(_denied_demand("network", manifest.sandbox.network, steps))
    return Effective(envelope=envelope, denied=tuple(each for each in denied if each is not None))


def _denied_capability(name: str, steps: Sequence[Stage]) -> Denial | None:
    """Why `name` is not granted: the first step that does not grant it."""
    for step in steps:
        if step.envelope.grants(name):
            continue
        whys, fixes = [], []
        if name not in step.envelope.allowed_host_apis:
            whys.append(f'`allowed_host_apis` lacks "{name}"')
            fixes.append(f'add "{name}" to `allowed_host_apis`')
        switch = _switch(name)
        if switch and not getattr(step.envelope, switch):
            whys.append(f"`{switch}` is false")
            fixes.append(f"set `{switch} = true`")
        return _denial(name, step, whys, fixes)
    return None


def _denied_demand(path: str, demanded: str, steps: Sequence[Stage]) -> Denial | None:
    """Why the cell does not get what the manifest demands of it."""
    field = FIELDS[path]
    for step in steps:
        if field.within(demanded, field.of(derive(step.envelope))):
            continue
        whys, fixes = [], []
        given = field.of(step.envelope)
        if not field.within(demanded, given):
            whys.append(f'`{path}` is "{given}"')
            fixes.append(f'set `{path} = "{demanded}"`')
        switch = _switch(path)
        if switch and not getattr(step.envelope, switch):
            whys.append(f"`{switch}` is false")
            fixes.append(f"set `{switch} = true`")
        return _denial(f"{path}={demanded}", step, whys, fixes)
    return None


def _switch(name: str) -> str:
    """The master switch over a capability or a demand on the cell; empty where there is none."""
    if name in ("http.fetch", "network"):
        return "allow_network_egress"
    return "allow_file_io" if name in FILE_CAPABILITIES or name == "filesystem" else ""


def _denial(grant: str, step: Stage, whys: list[str], fixes: list[str]) -> Denial:
    why = f"{step.label}: {' and '.join(whys)}"
    return Denial(grant=grant, why=why, remedy=step.remedy.replace("{fixes}", " and ".join(fixes)))
