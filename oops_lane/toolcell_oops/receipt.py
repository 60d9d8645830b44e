"""The enforcement receipt: what the kernel said is in force, against what was asked for.

Owns the comparison on this side. The launcher compared before it let the tool start; here the same
is asked once more of what it reported, so that neither side has to be believed alone. Read by the
caller as `result.receipt`.
"""

from collections.abc import Mapping
from typing import Any

from toolcell.errors import SandboxSetupError
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import Session
from toolcell_oops.launcher.wire import Spawned
from toolcell_oops.plan import Layout, has_scratch

__all__ = ["check_receipt", "receipt_of"]

MIB = 1024 * 1024
SECCOMP_MODE_FILTER = 2
"""/proc/PID/status, proc_pid_status(5)."""
NAMESPACES = ("user", "pid", "mnt", "uts", "ipc", "net", "cgroup")


def receipt_of(spawned: Spawned, layout: Layout, session: Session) -> dict[str, Any]:
    """The receipt as the caller gets it: the kernel's words, and ours where it has none."""
    envelope = session.envelope
    return {
        "boundary": "linux process",
        **spawned.receipt,
        "warm": spawned.warm,
        "base": {"name": layout.base.name, "digest": f"sha256:{layout.base.digest}"},
        "seccomp_profile": {
            "name": layout.seccomp.name,
            "digest": f"sha256:{layout.seccomp.digest}",
        },
        "wall_time_ms": session.deadline.limit_ms,
        "cpu_time_ms": envelope.cpu_time_ms,
        "scratch_mb": envelope.scratch_mb if has_scratch(envelope) else 0,
    }


def check_receipt(receipt: Mapping[str, Any], envelope: PolicyEnvelope) -> None:
    """Raises :class:`SandboxSetupError` for the first thing that is less than it must be."""
    for what, found in (
        ("seccomp", receipt.get("seccomp_mode") == SECCOMP_MODE_FILTER),
        ("no_new_privs", receipt.get("no_new_privs") == 1),
        ("capabilities", _no_capability(receipt.get("capabilities"))),
        ("namespaces", _all_present(receipt.get("namespaces"))),
        ("memory", _at_most(receipt, "memory_bytes", envelope.memory_mb * MIB)),
        # One more than the tool may have: the launcher's own init.
        ("pids", _at_most(receipt, "pids", envelope.max_processes + 1)),
        ("weakened", receipt.get("weakened") == []),
    ):
        if not found:
            raise SandboxSetupError(
                f"the kernel does not say that `{what}` is in force as the policy demands",
                remedy="see `toolcell doctor`; nothing of the tool was let through",
                details={"stage": "receipt", "errno": 0, "feature": what},
            )


def _no_capability(sets: object) -> bool:
    return isinstance(sets, dict) and len(sets) == 5 and not any(sets.values())


def _all_present(inodes: object) -> bool:
    return isinstance(inodes, dict) and all(inodes.get(name) for name in NAMESPACES)


def _at_most(receipt: Mapping[str, Any], name: str, allowed: int) -> bool:
    cgroup = receipt.get("cgroup")
    value = cgroup.get(name) if isinstance(cgroup, dict) else None
    return isinstance(value, int) and 0 < value <= allowed
