"""Hostile tools through the whole of `Runtime.invoke`: signed, resolved, granted, run, audited.

The lane's own tests (`tests/security/wasi`) switch each defence off in turn; here all of them are
on, and what counts is that the host neither stops nor grows.
"""

import json

import pytest
from installation import Installation
from wasi_attacks import ATTACKS, THREADS, Attack, assert_rush_ends_in_time_and_leaves_nothing
from wasi_guests import python_guest

from toolcell.artifact.build import build_artifact
from toolcell.policy.envelope import CAPABILITIES, PolicyEnvelope
from toolcell.runtime import Runtime
from toolcell.telemetry.verify import verify

pytestmark = pytest.mark.slow

ALL = tuple(sorted(CAPABILITIES))
BUT_KV_SET = tuple(name for name in ALL if name != "kv.set")
NONSENSE = Attack("nonsense", status=500, says="not valid JSON")
CALLS = (*ATTACKS, NONSENSE)


@pytest.fixture(scope="module")
def runtime(request, new_home):
    installation = Installation(new_home())
    methods = {attack.method: {"input": {}, "output": {}} for attack in CALLS}
    fields = {
        "id": "6f2d3a52-93f1-4c0e-9d4e-6b1c0f6a7a02",
        "name": "hostile",
        "version": "1.0.0",
        "entry_point": "tool.wasm",
        "capabilities": ALL,
        "methods": {**methods, "echo": {"input": {}, "output": {}}},
    }
    wasm = python_guest(request.config.cache.mkdir("wasi-guests"))
    installation.publish(build_artifact(fields, {"tool.wasm": wasm}))
    with Runtime(installation.home.root) as made:
        made.prepare("hostile", policy=granting(ALL))
        yield made


def granting(names, **limits) -> PolicyEnvelope:
    return PolicyEnvelope(
        allowed_host_apis=names, allow_file_io=True, allow_network_egress=True, **limits
    )


def call(runtime, attack: Attack):
    limits = {name: v for name, v in attack.fields.items() if name != "allowed_host_apis"}
    granted = ALL if len(limits) == len(attack.fields) else BUT_KV_SET
    raw = attack.text.encode()
    return runtime.invoke_json("hostile", attack.method, raw, policy=granting(granted, **limits))


@pytest.mark.parametrize("attack", CALLS, ids=lambda a: f"{a.method}-{a.limit or a.status}")
def test_the_attack_fails_with_its_status_and_the_next_call_works(runtime, attack):
    result = call(runtime, attack)
    attack.check(result)
    assert result.status == attack.status
    assert json.loads(json.dumps(result.to_dict()))["error"]["message"]
    assert runtime.invoke("hostile", "echo", 7, policy=granting(ALL)).output == 7


@pytest.mark.parametrize("times", [THREADS, pytest.param(1000, marks=pytest.mark.soak)])
def test_attacks_from_four_threads_end_in_time_and_leave_nothing_behind(runtime, times):
    assert_rush_ends_in_time_and_leaves_nothing(CALLS, lambda each: call(runtime, each), times)
    assert runtime.invoke("hostile", "echo", 7, policy=granting(ALL)).output == 7


def test_every_attack_is_in_the_audit_log_and_the_log_is_whole(runtime):
    result = call(runtime, CALLS[0])
    report = verify([runtime.home.audit], runtime.home.audit_key.read_bytes())
    assert report.whole
    text = runtime.home.audit.read_text()
    assert result.correlation_id in text
    assert "wall_time_ms" in text
