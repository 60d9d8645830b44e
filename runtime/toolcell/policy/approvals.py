"""Approvals: `filesystem = "host"` and `network = "full"` need an operator's recorded word.

Owns the rule, and nothing else: an approval is written in the policy, next to what it approves.
Called by `toolcell.policy.compose` for the policy as granted and for what came out of it, and by
`toolcell policy check`.
"""

from datetime import UTC, datetime, timedelta

from toolcell.errors import PolicyDenied
from toolcell.policy.envelope import Approval, PolicyEnvelope

__all__ = ["missing_approvals", "require_approvals"]

_EASTERNMOST = timedelta(hours=14)  # UTC+14: the first place on earth where a new day begins


def missing_approvals(envelope: PolicyEnvelope, now: datetime | None = None) -> list[str]:
    """What `envelope` grants without a valid approval, one sentence each. `now` None: the clock."""
    instant = now or datetime.now(UTC)
    needed = []
    if envelope.filesystem == "host":
        needed.append("filesystem=host")
    if envelope.network == "full":
        needed.append("network=full")
    problems = []
    for grant in needed:
        given = [approval for approval in envelope.approvals if approval.grants == grant]
        if not given:
            problems.append(f"{grant} has no approval")
        elif all(_in_the_future(approval, instant) for approval in given):
            problems.append(f"{grant} is approved only from {given[0].when}, which is yet to come")
    return problems


def _in_the_future(approval: Approval, now: datetime) -> bool:
    """Whether the approval was written for later. A plain date is a day of any time zone."""
    when = datetime.fromisoformat(approval.when)
    if len(approval.when) == len("2026-11-02"):
        return when.date() > (now + _EASTERNMOST).date()
    return when.replace(tzinfo=when.tzinfo or UTC) > now


def require_approvals(name: str, envelope: PolicyEnvelope, now: datetime | None = None) -> None:
    """:class:`PolicyDenied` where `envelope`, of the policy `name`, lacks an approval."""
    problems = missing_approvals(envelope, now)
    if problems:
        grant = problems[0].partition(" ")[0]
        raise PolicyDenied(
            f"policy `{name}`: {problems[0]}",
            remedy=(
                f'the operator adds to the policy: [[approvals]] grants = "{grant}", '
                "who = …, when = YYYY-MM-DD, why = …"
            ),
            details={"policy": name, "grant": grant},
        )
