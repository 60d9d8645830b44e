"""`kv.*`: the same rules in the run's own store and in a persistent namespace."""

import pytest
from broker_runs import Run, envelope, rule_of

from toolcell.broker import BrokerServices
from toolcell.policy.envelope import KvPolicy


@pytest.fixture(params=["", "shared"], ids=["memory", "sqlite"])
def namespace(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def open_store(services: BrokerServices, namespace: str, **caps: int) -> Run:
    return Run(envelope(kv=KvPolicy(namespace=namespace, **caps)), services)


def test_value_comes_back_as_it_was(services: BrokerServices, namespace: str) -> None:
    run = open_store(services, namespace)
    for key, value in {"a": "1", "ü/€": "grüße\0🙂", "sp ace": "", "\0": "nul"}.items():
        run.call("kv.set", key=key, value=value)
        assert run.call("kv.get", key=key) == value


def test_missing_key_is_none(services: BrokerServices, namespace: str) -> None:
    assert open_store(services, namespace).call("kv.get", key="none") is None


def test_value_can_be_replaced_and_deleted(services: BrokerServices, namespace: str) -> None:
    run = open_store(services, namespace)
    run.call("kv.set", key="a", value="old")
    run.call("kv.set", key="a", value="new")

    assert run.call("kv.get", key="a") == "new"
    assert run.call("kv.delete", key="a") is True
    assert run.call("kv.delete", key="a") is False
    assert run.call("kv.get", key="a") is None


def test_keys_are_listed_by_prefix_in_code_point_order(
    services: BrokerServices, namespace: str
) -> None:
    run = open_store(services, namespace)
    keys = ["b", "a/2", "a/10", "a/1", "a", "a0", "Z", "ü", "\U0001f642", "\uffff", "a/%", "a/_"]
    for key in keys:
        run.call("kv.set", key=key, value="")

    assert run.call("kv.list", prefix="") == sorted(keys)
    assert run.call("kv.list", prefix="a/") == ["a/%", "a/1", "a/10", "a/2", "a/_"]
    assert run.call("kv.list", prefix="a/_") == ["a/_"], "no pattern in a prefix"
    assert run.call("kv.list", prefix="none") == []


@pytest.mark.parametrize(("key", "status"), [("", 400), ("k" * 513, 413), ("ü" * 257, 413)])
def test_key_is_bounded(services: BrokerServices, namespace: str, key: str, status: int) -> None:
    run = open_store(services, namespace)

    for capability, params in [("kv.get", {}), ("kv.set", {"value": ""}), ("kv.delete", {})]:
        fault = run.refused(capability, key=key, **params)
        assert (fault.status, rule_of(fault)) == (status, "key")


def test_longest_key_works(services: BrokerServices, namespace: str) -> None:
    run = open_store(services, namespace)
    run.call("kv.set", key="k" * 512, value="v")

    assert run.call("kv.list", prefix="k" * 512) == ["k" * 512]


def test_value_is_bounded_in_bytes(services: BrokerServices, namespace: str) -> None:
    run = open_store(services, namespace, max_value_bytes=10)
    run.call("kv.set", key="a", value="0123456789")

    fault = run.refused("kv.set", key="b", value="üüüüüü")

    assert (fault.status, rule_of(fault)) == (413, "max_value_bytes")
    assert run.call("kv.list", prefix="") == ["a"]


def test_store_is_bounded_in_bytes_keys_included(services: BrokerServices, namespace: str) -> None:
    run = open_store(services, namespace, max_total_bytes=20)
    run.call("kv.set", key="abcd", value="0123456789")  # 14

    fault = run.refused("kv.set", key="efgh", value="012")  # 21

    assert (fault.status, rule_of(fault)) == (413, "max_total_bytes")
    run.call("kv.set", key="efgh", value="01")  # 20
    run.call("kv.set", key="abcd", value="")  # 10: room again
    run.call("kv.set", key="ij", value="01234567")  # 20


def test_store_is_bounded_in_keys(services: BrokerServices, namespace: str) -> None:
    run = open_store(services, namespace, max_keys=2)
    run.call("kv.set", key="a", value="")
    run.call("kv.set", key="b", value="")

    fault = run.refused("kv.set", key="c", value="")

    assert (fault.status, rule_of(fault)) == (429, "max_keys")
    run.call("kv.set", key="a", value="replacing is no growth")
    run.call("kv.delete", key="b")
    run.call("kv.set", key="c", value="")


def test_bytes_are_counted_right_through_a_long_life(
    services: BrokerServices, namespace: str
) -> None:
    run = open_store(services, namespace, max_total_bytes=100)
    for at in range(200):
        run.call("kv.set", key=f"k{at % 7}", value="v" * (at % 11))
        if at % 3 == 0:
            run.call("kv.delete", key=f"k{at % 5}")
    for key in run.call("kv.list", prefix=""):
        run.call("kv.delete", key=key)

    run.call("kv.set", key="k", value="v" * 99)


def test_store_of_a_run_is_gone_with_it(services: BrokerServices) -> None:
    first = open_store(services, "")
    first.call("kv.set", key="a", value="1")
    first.broker.close()

    assert open_store(services, "").call("kv.get", key="a") is None
