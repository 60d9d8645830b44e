"""Under `deterministic = true` the same call gives the same bytes and burns the same fuel."""

import msgspec
import pytest
from installation import Installation

from toolcell.policy.envelope import PolicyEnvelope
from toolcell.runtime import Runtime

pytestmark = pytest.mark.slow

GRANT = PolicyEnvelope(allowed_host_apis=("kv.get", "kv.set", "log.emit"))
FIXED = msgspec.structs.replace(GRANT, deterministic=True)


@pytest.fixture(scope="module")
def runtime(new_home, archive_of):
    installation = Installation(new_home())
    installation.publish(archive_of("contract"))
    with Runtime(installation.home.root) as made:
        yield made


def test_two_runs_give_the_same_output_and_the_same_fuel(runtime):
    first, second = (runtime.invoke("contract", "dice", policy=FIXED) for _ in range(2))
    assert first.value() == second.value()
    assert first.metrics.fuel == second.metrics.fuel > 0


def test_another_input_draws_other_numbers(runtime):
    one = runtime.invoke("contract", "dice", {}, policy=FIXED)
    other = runtime.invoke_json("contract", "dice", b"{ }", policy=FIXED)
    assert one.value() != other.value()


def test_a_second_runtime_repeats_the_first(runtime, tmp_path):
    before = runtime.invoke("contract", "dice", policy=FIXED)
    with Runtime(runtime.home.root) as again:
        after = again.invoke("contract", "dice", policy=FIXED)
    assert (after.value(), after.metrics.fuel) == (before.value(), before.metrics.fuel)


def test_otherwise_two_runs_draw_other_numbers(runtime):
    first, second = (runtime.invoke("contract", "dice", policy=GRANT).value() for _ in range(2))
    assert first != second
