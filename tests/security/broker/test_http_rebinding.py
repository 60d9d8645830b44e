"""A name that answers with another address the second time."""

import socket
import threading

import pytest
from loopback import AnyAddress, Web


class Rebinding:
    """Answers with each of `answers` in turn, then with the last one for ever."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, host: str) -> list[str]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return [answer]


def test_the_address_that_was_checked_is_the_one_that_is_dialled() -> None:
    lookup = Rebinding("127.0.0.2", "127.0.0.1")
    web = Web(lookup=lookup)
    try:
        good = web.serve(lambda peer: peer.answer(b"public"), address="127.0.0.2")
        inside = web.serve(lambda peer: peer.answer(b"secret"), port=good.port)

        answer = web.get(f"http://good.test:{good.port}/", {"addresses": ("127.0.0.2/32",)})

        assert answer.body == b"public"
        assert lookup.asked == 1, "a second lookup is where the attack comes in"
        assert inside.connections == 0
    finally:
        web.close()


def test_each_redirect_hop_is_looked_up_and_checked_anew() -> None:
    lookup = Rebinding("127.0.0.2", "127.0.0.1")
    web = Web(lookup=lookup)
    try:
        good = web.serve(lambda peer: peer.redirect("/again"), address="127.0.0.2")
        inside = web.serve(lambda peer: peer.answer(b"secret"), port=good.port)
        policy = {"addresses": ("127.0.0.2/32",)}

        status, rule, _ = web.refused(f"http://good.test:{good.port}/", policy)

        assert (status, rule) == (403, "address.loopback")
        assert lookup.asked == 2
        assert inside.connections == 0
    finally:
        web.close()


def test_rebinding_gets_through_where_the_check_of_each_hop_is_switched_off() -> None:
    web = Web(lookup=Rebinding("127.0.0.2", "127.0.0.1"), address_rules=AnyAddress())
    try:
        good = web.serve(lambda peer: peer.redirect("/again"), address="127.0.0.2")
        web.serve(lambda peer: peer.answer(b"secret"), port=good.port)

        assert web.get(f"http://good.test:{good.port}/").body == b"secret"
    finally:
        web.close()


def test_nothing_but_the_given_lookup_resolves_a_name(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = web.serve()
    asked: list[str] = []
    real = socket.getaddrinfo

    def spy(host: str, *rest: object, **more: object) -> object:
        asked.append(host)
        return real(host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", spy)

    assert web.get(f"http://good.test:{server.port}/").status == 200
    assert asked == []


@pytest.mark.slow
def test_dead_name_server_costs_a_fixed_number_of_threads() -> None:
    from toolcell.broker.http.resolver import MAX_LOOKUPS

    released = threading.Event()
    web = Web(lookup=lambda host: (released.wait(20), ["127.0.0.1"])[1])
    try:
        before = threading.active_count()
        for _ in range(MAX_LOOKUPS + 4):
            assert web.refused("http://good.test/", {"timeout_ms": 20})[:2] == (408, "timeout_ms")
        assert threading.active_count() - before <= MAX_LOOKUPS
    finally:
        released.set()
        web.close()
