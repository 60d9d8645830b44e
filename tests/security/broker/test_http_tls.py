"""Certificates: the right name passes, and nothing else does."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Web
from tls_names import Authority

from toolcell.broker import BrokerServices
from toolcell.errors import ConfigError


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def web(authority: Authority) -> Iterator[Web]:
    made = Web(ca_file=authority.file)
    yield made
    made.close()


def test_right_name_passes(web: Web, authority: Authority) -> None:
    server = web.serve(tls=authority.server("good.test"))

    answer = web.get(f"https://good.test:{server.port}/")

    assert answer.body == b"ok"
    assert server.requests[0].header("Host") == f"good.test:{server.port}"


@pytest.mark.parametrize(
    "name", ["evil.test", "127.0.0.1", "*.test.good.test", "good.test.evil.test"]
)
def test_certificate_for_another_name_is_refused(web: Web, authority: Authority, name: str) -> None:
    server = web.serve(tls=authority.server(name))

    status, rule, fault = web.refused(f"https://good.test:{server.port}/")

    assert (status, rule) == (502, "tls")
    assert "ertificate" in fault.message
    assert server.requests == [], "not a byte of the request was sent"


def test_expired_certificate_is_refused(web: Web, authority: Authority) -> None:
    server = web.serve(tls=authority.server("good.test", expired=True))

    status, rule, fault = web.refused(f"https://good.test:{server.port}/")

    assert (status, rule) == (502, "tls")
    assert "expired" in fault.message


def test_certificate_of_an_unknown_authority_is_refused(web: Web, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    server = web.serve(tls=Authority(tmp_path / "other").server("good.test"))

    assert web.refused(f"https://good.test:{server.port}/")[:2] == (502, "tls")


def test_machine_s_authorities_are_not_those_of_a_test(authority: Authority) -> None:
    web = Web()
    server = web.serve(tls=authority.server("good.test"))

    assert web.refused(f"https://good.test:{server.port}/")[:2] == (502, "tls")
    web.close()


def test_address_passes_with_a_certificate_for_it(web: Web, authority: Authority) -> None:
    server = web.serve(tls=authority.server("127.0.0.1"))
    policy = {"domains": ("127.0.0.1",)}

    assert web.get(f"https://127.0.0.1:{server.port}/", policy).body == b"ok"


def test_plain_answer_to_a_tls_client_is_refused(web: Web) -> None:
    server = web.serve(None, greeting=b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    assert web.refused(f"https://good.test:{server.port}/")[:2] == (502, "tls")


def test_old_protocol_versions_are_not_spoken(web: Web, authority: Authority) -> None:
    old = authority.server("good.test")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    server = web.serve(tls=old)

    assert web.refused(f"https://good.test:{server.port}/")[0] == 502


def test_redirect_from_https_to_http_is_refused_unless_http_is_granted(
    web: Web, authority: Authority
) -> None:
    plain = web.serve()
    outer = web.serve(
        lambda peer: peer.redirect(f"http://good.test:{plain.port}/"),
        tls=authority.server("good.test"),
    )
    url = f"https://good.test:{outer.port}/"

    assert web.refused(url, {"schemes": ("https",)})[:2] == (403, "scheme")
    assert plain.connections == 0
    assert web.get(url, {"schemes": ("https", "http")}).body == b"ok", "what it stopped"


def test_context_is_made_once(authority: Authority) -> None:
    services = BrokerServices(ca_file=authority.file)

    assert services.tls is services.tls


def test_checks_stay_on_in_the_shared_context(web: Web, authority: Authority) -> None:
    server = web.serve(tls=authority.server("good.test"))

    web.get(f"https://good.test:{server.port}/")

    assert web.services.tls.check_hostname
    assert web.services.tls.verify_mode is ssl.CERT_REQUIRED


def test_session_keys_are_not_written_where_the_environment_says(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    web = Web(ca_file=authority.file)
    server = web.serve(tls=authority.server("good.test"))

    web.get(f"https://good.test:{server.port}/")

    assert not log.exists()
    web.close()


def test_ca_file_that_is_none_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")

    with pytest.raises(ConfigError):
        _ = BrokerServices(ca_file=tmp_path / "ca.pem").tls
