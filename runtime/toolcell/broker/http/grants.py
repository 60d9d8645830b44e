"""What an `http.fetch` policy allows, asked before a name is looked up.

Owns the match of scheme, host, port and method with the policy's lists. The policy is in normal
form already (`toolcell.policy.hosts`), and so is a target; a match is an equality.
"""

from toolcell.broker.call import Refusal, shown
from toolcell.broker.http.url import Target
from toolcell.errors import Status
from toolcell.policy.envelope import HttpPolicy

__all__ = ["HttpGrants", "grants_host"]


class HttpGrants:
    """The lists of `policy`, as a question."""

    def __init__(self, policy: HttpPolicy) -> None:
        self._policy = policy
        self._domains = frozenset(policy.domains)

    def check(self, target: Target, method: str) -> None:
        """Raises a :class:`Refusal` (403) that names the first missing grant."""
        policy = self._policy
        if target.scheme not in policy.schemes:
            raise _missing("scheme", target.scheme, "schemes")
        if not grants_host(self._domains, target):
            raise _missing("domain", target.host, "domains")
        if target.port not in policy.ports:
            raise _missing("port", str(target.port), "ports")
        if method not in policy.methods:
            raise _missing("method", method, "methods")


def grants_host(domains: frozenset[str], target: Target) -> bool:
    """Whether a list of patterns in normal form names the target's host."""
    host = target.host
    if host in domains:
        return True
    if target.is_address:
        return False
    labels = host.split(".")
    return any("*." + ".".join(labels[at:]) in domains for at in range(1, len(labels)))


def _missing(rule: str, value: str, listed_in: str) -> Refusal:
    return Refusal(
        rule,
        f"{rule} `{shown(value)}` is not granted",
        status=Status.NOT_GRANTED,
        remedy=f"add it to `capabilities.http.{listed_in}` in the policy",
    )
