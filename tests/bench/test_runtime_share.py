"""What the runtime itself adds to a call: everything but the cell.

The fake lane plays the cell, so the whole time is resolve from cache, policy, schema checks,
session, broker, three audited events and the result. The target is 150 us at the median.
"""

import statistics
import time

import pytest
from installation import fake_archive

from toolcell.fake_lane import FakeLane
from toolcell.runtime import Runtime

TARGET_US = 150


@pytest.fixture
def runtime(installation):
    installation.publish(fake_archive())
    lane = FakeLane({("fake", "go"): lambda value, _session: value})
    with Runtime(installation.home.root, lanes={"wasi": lane}) as made:
        made.invoke("fake", "go", {"n": 1}).value()
        yield made


@pytest.mark.benchmark(group="runtime share")
def test_the_runtime_s_own_share_of_a_call(benchmark, runtime):
    result = benchmark.pedantic(
        runtime.invoke, ("fake", "go", {"n": 1}), rounds=2000, warmup_rounds=200
    )
    assert result.output == {"n": 1}
    benchmark.extra_info["target_us"] = TARGET_US


@pytest.mark.benchmark(group="runtime share")
def test_a_capability_call_through_the_broker(benchmark, installation):
    """Per `kv.get`: grant, quota, parameters, store, audit."""
    calls = 100
    per_call_us: list[float] = []

    def go(_value, session):
        started = time.perf_counter()
        for _ in range(calls):
            session.broker.call("kv.get", key="k")
        per_call_us.append((time.perf_counter() - started) / calls * 1e6)

    installation.publish(fake_archive(capabilities=("kv.get",)))
    installation.home.policies.mkdir(mode=0o700)
    (installation.home.policies / "bench.toml").write_text(
        '[classes.bench]\nallowed_host_apis = ["kv.get"]\n'
    )
    with Runtime(installation.home.root, lanes={"wasi": FakeLane({("fake", "go"): go})}) as runtime:
        benchmark.pedantic(
            lambda: runtime.invoke("fake", "go", policy="bench").value(), rounds=50, warmup_rounds=5
        )
    benchmark.extra_info["per_call_us"] = statistics.median(per_call_us)
