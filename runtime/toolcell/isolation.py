"""Isolation: which lane a call runs in, or why it runs in none.

Owns the choice and the trust tag of an output. It starts nothing and never weakens a demand: what
no lane on this machine can hold is refused, with the missing feature named. Called by the runtime
once per call, with what the lanes' probes found.

Levels: 0 a plain call, only for built-in tools with system-trusted input; 1 the wasi lane; 2 the
oops lane; 3 the oops lane with a stronger backend.

**Features.** A demand beyond the baseline (its own package to read, no network, the ceilings of
the envelope) needs the feature of `FEATURES` that is named like it, and the lane's probe must
report that as working. One that the probe does not mention does not work. A probe that reports a
ceiling of the envelope by its field name (`memory_mb`) as not working makes the lane unfit for
every call, because every call has that ceiling. A lane of another name than `wasi` and `oops` says
which artifacts it can run by the features `runs=wasi` and `runs=oops`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from toolcell.artifact.manifest import Manifest
from toolcell.errors import LaneUnavailable, PolicyDenied, ToolcellError
from toolcell.lane import Probe
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.policy.fields import FIELDS
from toolcell.result import Trust

__all__ = ["FEATURES", "Lanes", "Selection", "can_not_run", "output_trust", "select_isolation"]

FEATURES: Final = (
    "filesystem=ephemeral",
    "filesystem=host",
    "network=outbound-https-only",
    "network=full",
    "deterministic",
)
"""What a policy can demand of a lane beyond the baseline. `deterministic` is a fixed clock and
seeded randomness; the others are values of the envelope's fields."""

BACKENDS: Final = frozenset({"oops", "gvisor", "microvm", "trusted-local"})
"""Lanes that run an artifact of the oops lane without saying so by a feature."""

_TRUST: Final[tuple[Trust, ...]] = ("untrusted", "trusted", "system")

Lanes = Mapping[str, tuple[int, Probe]]
"""Lane name -> the isolation level that it gives, and what its probe found."""


class Selection(Struct, frozen=True, kw_only=True):
    """The lane of a call. `reasons`: what demanded the level, and which lanes were passed over."""

    level: int
    lane: str
    reasons: tuple[str, ...]


class _Refusal(Struct, frozen=True, kw_only=True):
    """Why one lane can't take the call. `denied`: it must not, rather than can't here."""

    feature: str
    why: str
    remedy: str
    denied: bool = False


def select_isolation(
    manifest: Manifest,
    input_trust: Trust,
    policy: PolicyEnvelope,
    lanes: Lanes,
    *,
    lane: str | None = None,
    built_in: bool = False,
) -> Selection:
    """The lane with the lowest level that meets every demand of policy, manifest and input.

    `policy` is the effective envelope. `lane` names the only one to consider (`--lane`): it can
    choose among what is allowed, and nothing else. `built_in` is the runtime's word that the tool
    is part of toolcell itself.

    :class:`PolicyDenied` (403) where the policy withholds what the manifest demands of its cell,
    or `lane` is one that must not be used; :class:`LaneUnavailable` (503) where no lane here can
    do it.
    """
    _refuse_unmet_demands(manifest, policy)
    floor, reasons = _lowest_level(manifest, input_trust, policy, built_in=built_in)
    if lane is not None and lane not in lanes:
        raise _error(_not_installed(lane, lanes), manifest, lane)
    refusals: dict[str, _Refusal] = {}
    for name, (level, probe) in sorted(lanes.items(), key=lambda item: (item[1][0], item[0])):
        if lane is not None and name != lane:
            continue
        refusal = _refusal(name, level, probe, floor, reasons[-1], manifest, policy)
        if refusal is None:
            passed_over = [f"{other}: {each.why}" for other, each in refusals.items()]
            return Selection(level=level, lane=name, reasons=(*reasons, *passed_over))
        refusals[name] = refusal
    raise _nothing_fits(manifest, floor, reasons[-1], refusals, lane)


def _refuse_unmet_demands(manifest: Manifest, policy: PolicyEnvelope) -> None:
    for path in ("filesystem", "network"):
        demanded = getattr(manifest.sandbox, path)
        given = getattr(policy, path)
        if not FIELDS[path].within(demanded, given):
            raise PolicyDenied(
                f'the tool demands {path} "{demanded}" of its cell; the policy leaves it "{given}"',
                remedy=f"see `toolcell policy explain`: the grant of {path}={demanded} is missing",
                details={"grant": f"{path}={demanded}", "given": given},
            )


def _lowest_level(
    manifest: Manifest, input_trust: Trust, policy: PolicyEnvelope, *, built_in: bool
) -> tuple[int, tuple[str, ...]]:
    """The lowest level allowed and why; the last reason is the one that decided."""
    floor, reasons = 0, ["level 0: built-in tool, system-trusted input, no sandbox required"]
    for demand, why in (
        (not built_in, "the tool is not built in"),
        (input_trust != "system", f"the input is {input_trust}"),
        (manifest.sandbox.required, "the manifest requires a sandbox"),
    ):
        if demand:
            reasons.append(f"level 1: {why}")
            floor = 1
    if policy.min_isolation > floor:
        floor = policy.min_isolation
        reasons.append(f"level {floor}: the policy's min_isolation is {floor}")
    return floor, tuple(reasons[1:] if len(reasons) > 1 else reasons)


def _refusal(
    name: str,
    level: int,
    probe: Probe,
    floor: int,
    floor_reason: str,
    manifest: Manifest,
    policy: PolicyEnvelope,
) -> _Refusal | None:
    """Why the lane `name` does not fit, or None where it does."""
    if not _runs(name, probe, manifest.lane):
        return _Refusal(
            feature=f"runs={manifest.lane}",
            why=f"it can't run an artifact that was built for the {manifest.lane} lane",
            remedy=f"leave the lane to the runtime, or build the tool for `{name}`",
        )
    backend = manifest.sandbox.backend
    if backend and name != backend:
        return _Refusal(
            feature=f"lane:{backend}",
            why=f"the manifest admits the backend `{backend}` only",
            remedy=f"install the lane `{backend}` on this machine",
            denied=True,
        )
    if level < floor:
        return _Refusal(
            feature=f"isolation>={floor}",
            why=f"it gives isolation level {level}, and {floor_reason}",
            remedy=f"install a lane of level {floor} or more that can run this artifact",
            denied=True,
        )
    if not probe.available:
        return _Refusal(
            feature=f"lane:{name}",
            why=f"it does not work on this machine: {probe.reason or 'its probe failed'}",
            remedy=probe.remedy or "see `toolcell doctor`",
        )
    return _missing_feature(name, probe, policy)


def can_not_run(name: str, artifact_lane: str) -> bool:
    """Whether the lane `name` is known, without asking its probe, not to run such an artifact."""
    return name in ("wasi", "oops") and name != artifact_lane


def _runs(name: str, probe: Probe, artifact_lane: str) -> bool:
    if name == artifact_lane or (artifact_lane == "oops" and name in BACKENDS):
        return True
    return probe.features.get(f"runs={artifact_lane}") == ""


def _missing_feature(name: str, probe: Probe, policy: PolicyEnvelope) -> _Refusal | None:
    needed = []
    if policy.filesystem != "read-only-package":
        needed.append(f"filesystem={policy.filesystem}")
    if policy.network != "off":
        needed.append(f"network={policy.network}")
    if policy.deterministic:
        needed.append("deterministic")
    needed += [path for path in FIELDS if path in probe.features and path not in FEATURES]
    for feature in needed:
        why = probe.features.get(feature, f"the lane `{name}` has no such thing")
        if why:
            return _Refusal(
                feature=feature,
                why=f"it can't give `{feature}` here: {why}",
                remedy=probe.remedy or f"use a lane that has `{feature}`, or do without it",
            )
    return None


def _not_installed(lane: str, lanes: Iterable[str]) -> _Refusal:
    return _Refusal(
        feature=f"lane:{lane}",
        why="it is not installed here",
        remedy=f"installed: {', '.join(sorted(lanes)) or 'none'}",
    )


def _nothing_fits(
    manifest: Manifest,
    floor: int,
    floor_reason: str,
    refusals: Mapping[str, _Refusal],
    lane: str | None,
) -> ToolcellError:
    """The error for a call that no lane can take: the nearest miss decides which."""
    if lane is not None:
        return _error(refusals[lane], manifest, lane)
    backend = manifest.sandbox.backend
    if backend and backend not in refusals:
        return _error(_not_installed(backend, refusals), manifest, backend)
    fitting = {
        name: each
        for name, each in refusals.items()
        if not each.denied and not each.feature.startswith("runs=")
    }
    if fitting:
        name, refusal = next(iter(fitting.items()))
        return _error(refusal, manifest, name)
    if backend:
        return _error(refusals[backend], manifest, backend)
    return LaneUnavailable(
        f"no lane here runs {manifest.lane} artifacts at isolation level {floor} "
        f"({floor_reason}); installed: {', '.join(refusals) or 'none'}",
        remedy=(
            f"install a lane of level {floor} or more, or build the tool for one; "
            "the level is never lowered by itself"
        ),
        details={
            "feature": f"isolation>={floor}",
            "lanes": {name: each.why for name, each in refusals.items()},
        },
    )


def _error(refusal: _Refusal, manifest: Manifest, lane: str) -> ToolcellError:
    kind = PolicyDenied if refusal.denied else LaneUnavailable
    error = kind(
        f"{manifest.name} {manifest.version} can't run in the lane `{lane}`: {refusal.why}",
        remedy=refusal.remedy,
        details={"feature": refusal.feature, "lane": lane},
    )
    error.lane = lane
    return error


def output_trust(
    input_trust: Trust,
    level: int,
    policy: PolicyEnvelope,
    *,
    publisher_trust: Trust = "untrusted",
) -> Trust:
    """The trust tag of what a run put out: the lowest of everything that went into it.

    That is the input; the tool (`publisher_trust` is the operator's word for its publisher: a
    signature says who made a tool, not that its output can be believed, so the default is
    untrusted, and a tool that needed a cell is at most `trusted`); and the outside, which is
    untrusted wherever the run could reach it: network, host files, or a persistent store that
    other calls write to.
    """
    parts: list[Trust] = [input_trust, publisher_trust]
    if level > 0:
        parts.append("trusted")
    outside = policy.allow_network_egress or policy.filesystem == "host"
    reads = policy.grants("kv.get") or policy.grants("kv.list")
    kept = bool(policy.capabilities.kv.namespace) and reads
    if outside or kept:
        parts.append("untrusted")
    return min(parts, key=_TRUST.index)
