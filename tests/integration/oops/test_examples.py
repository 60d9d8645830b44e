"""The Python examples in the oops lane: the same source, the same tests, the same results."""

import pytest
from installation import EXAMPLES, Installation

from toolcell.runtime import Runtime
from toolcell_oops.cell_runner import RUNNER
from toolcell_sdk.testing import run_tests

pytestmark = pytest.mark.slow

NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/tool.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_its_own_tests_pass_in_the_cell(name):
    assert run_tests(EXAMPLES / name, runner=RUNNER, arguments=("-q",)) == 0


@pytest.fixture(scope="module")
def runtime(new_home, oops_archive_of):
    installation = Installation(new_home())
    for name in ("csv-profile", "regex-grep"):
        installation.publish(oops_archive_of(name))
    with Runtime(installation.home.root) as made:
        yield made


def call(runtime, name, method, value):
    return runtime.invoke(name, method, value, policy=str(EXAMPLES / name / "policy.toml"))


def test_csv_profile_reads_a_real_table_of_ten_thousand_rows(runtime):
    text = (EXAMPLES / "data" / "bird-strikes.csv").read_text()
    result = call(runtime, "csv-profile", "profile", {"csv": text})
    profile = result.value()
    assert profile["rows"] == 10_000
    assert len(profile["columns"]) == 14
    assert (result.lane, result.isolation) == ("oops", 2)
    assert result.metrics.cpu_ms > 0
    assert result.metrics.memory_peak_mb > 1


def test_a_catastrophic_pattern_is_ended_and_the_next_call_works(runtime):
    hopeless = {"pattern": "(a+)+$", "text": "a" * 60 + "b"}
    ended = call(runtime, "regex-grep", "grep", hopeless)
    assert ended.status == 408
    assert ended.error.details["limit"] in ("cpu_time_ms", "wall_time_ms")
    found = call(runtime, "regex-grep", "grep", {"pattern": "a", "text": "a"}).value()
    assert found["total"] == 1
