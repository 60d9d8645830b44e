"""Receipts: each thing that is less than it must be is found, and named."""

import pytest

from toolcell.errors import SandboxSetupError
from toolcell.policy.envelope import PolicyEnvelope
from toolcell_oops.receipt import NAMESPACES, check_receipt

MIB = 1024 * 1024
ENVELOPE = PolicyEnvelope(memory_mb=64, max_processes=8)
SETS = ("inheritable", "permitted", "effective", "bounding", "ambient")
GOOD = {
    "seccomp_mode": 2,
    "no_new_privs": 1,
    "capabilities": dict.fromkeys(SETS, 0),
    "namespaces": dict.fromkeys(NAMESPACES, 4026531840),
    "cgroup": {"memory_bytes": 64 * MIB, "pids": 9},
    "weakened": [],
}


def test_a_receipt_of_everything_passes():
    check_receipt(GOOD, ENVELOPE)


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        ({"seccomp_mode": 0}, "seccomp"),
        ({"seccomp_mode": 1}, "seccomp"),
        ({"no_new_privs": 0}, "no_new_privs"),
        ({"capabilities": {**GOOD["capabilities"], "effective": 1}}, "capabilities"),
        ({"capabilities": {}}, "capabilities"),
        ({"capabilities": None}, "capabilities"),
        ({"namespaces": {**GOOD["namespaces"], "net": 0}}, "namespaces"),
        ({"namespaces": {}}, "namespaces"),
        ({"cgroup": {"memory_bytes": 65 * MIB, "pids": 9}}, "memory"),
        ({"cgroup": {"memory_bytes": 0, "pids": 9}}, "memory"),
        ({"cgroup": {"pids": 9}}, "memory"),
        ({"cgroup": {"memory_bytes": MIB, "pids": 10}}, "pids"),
        ({"cgroup": None}, "memory"),
        ({"weakened": ["seccomp"]}, "weakened"),
    ],
)
def test_what_is_less_than_the_policy_demands_is_named(change, feature):
    with pytest.raises(SandboxSetupError) as caught:
        check_receipt({**GOOD, **change}, ENVELOPE)
    assert caught.value.details["feature"] == feature


@pytest.mark.parametrize("name", sorted(GOOD))
def test_what_is_not_in_it_does_not_count_as_in_force(name):
    with pytest.raises(SandboxSetupError):
        check_receipt({key: value for key, value in GOOD.items() if key != name}, ENVELOPE)
