"""An ordinary binary as a tool: Debian's jq by its manifest alone, through the whole runtime."""

import json
import shutil

import pytest
from click.testing import CliRunner
from installation import EXAMPLES, Installation
from oops_tools import JQ_METHODS, JQ_PROGRAM, jq_archive, plain_archive, program_of_this_machine

from toolcell.cli import toolcell
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.runtime import Runtime

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed"),
]

DOCUMENT = {"birds": [{"name": "coot", "n": 3}, {"name": "wren", "n": 12}]}


@pytest.fixture(scope="module")
def installation(new_home):
    made = Installation(new_home())
    made.publish(jq_archive())
    return made


@pytest.fixture(scope="module")
def runtime(installation):
    with Runtime(installation.home.root) as made:
        yield made


def jq(runtime, text, document=DOCUMENT, **options):
    return runtime.invoke("jq", "filter", {"filter": text, "document": document}, **options)


def test_it_filters_a_real_document(runtime):
    result = jq(runtime, ".birds[] | select(.n > 5) | .name")
    assert result.value() == ["wren"]
    assert (result.lane, result.isolation, result.status) == ("oops", 2, 200)
    assert result.metrics.cpu_ms > 0
    assert result.metrics.memory_peak_mb > 0


def test_the_receipt_says_what_the_kernel_enforced(runtime):
    receipt = jq(runtime, ".").receipt
    assert receipt["boundary"] == "linux process"
    assert receipt["seccomp_mode"] == 2
    assert receipt["no_new_privs"] == 1
    assert set(receipt["capabilities"].values()) == {0}
    assert len(set(receipt["namespaces"].values())) == 7
    assert receipt["cgroup"]["memory_bytes"] == 128 * 1024 * 1024
    assert receipt["landlock"]["rules"] > 0
    assert receipt["seccomp_profile"]["name"] == "strict"
    assert receipt["base"]["name"] == "native"
    assert receipt["weakened"] == []


def test_a_filter_that_is_wrong_is_a_fault_with_jq_s_own_words(runtime):
    result = jq(runtime, ".[")
    assert result.status == 500
    assert "compile error" in result.error.message
    assert result.error.details["exit_code"] == 3
    assert "syntax error" in result.stderr


def test_an_option_can_t_be_smuggled_in(runtime):
    assert jq(runtime, "--rawfile").status == 422


def test_it_sees_nothing_but_its_document(runtime):
    assert jq(runtime, "env").value() == [{"LD_LIBRARY_PATH": "/tool/lib"}]
    assert jq(runtime, 'include "x"; .').status == 500


def test_a_document_of_a_megabyte_goes_through(runtime):
    document = list(range(150_000))
    assert jq(runtime, "add", document).value() == [sum(document)]


def test_endless_output_is_cut_off(runtime):
    result = jq(runtime, "range(1; infinite)")
    assert result.status == 413
    assert result.error.details["limit"] == "max_output_bytes"


def test_an_endless_loop_is_ended(runtime):
    policy = PolicyEnvelope(cpu_time_ms=200, wall_time_ms=5000)
    result = jq(runtime, "def f: f; f", policy=policy)
    assert result.status == 408
    assert result.error.details["limit"] == "cpu_time_ms"
    assert result.metrics.cpu_ms >= 200


def test_a_balloon_is_ended_by_the_memory_limit(runtime):
    policy = PolicyEnvelope(memory_mb=16)
    result = jq(runtime, "[range(1e7) | tostring * 10] | length", policy=policy)
    assert result.status == 500
    assert result.error.details["limit"] == "memory_mb"
    assert result.error.details["allowed"] == 16
    assert result.receipt["cgroup"]["memory_bytes"] == 16 * 1024 * 1024


def test_a_real_table_is_summed_up_by_the_command_line(installation):
    rows = (EXAMPLES / "data" / "bird-strikes.csv").read_text().splitlines()[:2000]
    given = json.dumps({"filter": "length", "document": rows})
    arguments = ["--home", str(installation.home.root), "run", "jq", "filter", "--json"]
    said = CliRunner().invoke(toolcell, [*arguments, "--input", given])
    assert said.exit_code == 0, said.output[:1000]
    printed = json.loads(said.stdout)
    assert printed["output"] == [len(rows)]
    assert printed["lane"] == "oops"
    assert printed["receipt"]["no_new_privs"] == 1
    assert printed["metrics"]["cpu_ms"] > 0


def test_a_program_that_demands_a_network_is_refused_and_not_run_without(installation):
    archive = plain_archive(
        "jq-online",
        JQ_PROGRAM,
        JQ_METHODS,
        program_of_this_machine("jq"),
        id="6f2d3a52-93f1-4c0e-9d4e-6b1c0f6a7bb1",
        sandbox={"network": "outbound-https-only"},
    )
    installation.publish(archive)
    policy = PolicyEnvelope(network="outbound-https-only", allow_network_egress=True)
    with Runtime(installation.home.root) as runtime:
        value = {"filter": ".", "document": 1}
        result = runtime.invoke("jq-online", "filter", value, policy=policy)
    assert result.status == 503
    assert result.error.details["feature"] == "network=outbound-https-only"


@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        ({"deterministic": True}, "deterministic"),
        ({"min_isolation": 3}, "isolation>=3"),
    ],
)
def test_a_policy_that_this_lane_can_t_keep_is_refused(runtime, fields, feature):
    result = jq(runtime, ".", policy=PolicyEnvelope(**fields))
    assert result.status == 503
    assert result.error.details["feature"] == feature
