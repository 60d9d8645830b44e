"""Secrets that the broker adds: they go where the operator said, and nowhere else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Peer, Web

from toolcell.errors import ConfigError
from toolcell.events import Event

SECRET = "s3cr3t-t0ken-value"
GRANTED = {"credentials": ("api",)}


def store(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


ENTRY = f'[api]\nvalue = "{SECRET}"\ndomains = ["good.test"]\ninsecure = true\n'


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    made = Web(secrets_file=store(tmp_path / "secrets.toml", ENTRY))
    yield made
    made.close()


def with_store(tmp_path: Path, text: str, mode: int = 0o600) -> Web:
    return Web(secrets_file=store(tmp_path / "own.toml", text, mode))


def everything_told(web: Web) -> str:
    events: list[Event] = web.run.told.events
    return repr(events)


def test_secret_is_sent_where_it_is_bound(web: Web) -> None:
    server = web.serve()

    answer = web.get(f"http://good.test:{server.port}/", GRANTED, credential="api")

    assert server.requests[0].header("Authorization") == f"Bearer {SECRET}"
    assert SECRET not in repr(answer)
    assert SECRET not in everything_told(web)


def test_secret_that_was_taken_back_is_not_sent_again(web: Web, tmp_path: Path) -> None:
    server = web.serve()
    url = f"http://good.test:{server.port}/"
    web.get(url, GRANTED, credential="api")

    store(tmp_path / "secrets.toml", ENTRY.replace("good.test", "other.test"))
    assert web.refused(url, GRANTED, credential="api")[:2] == (403, "credential")
    store(tmp_path / "secrets.toml", "")
    assert web.refused(url, GRANTED, credential="api")[:2] == (403, "credential")

    assert server.connections == 1


@pytest.mark.parametrize("policy", [{}, {"credentials": ("other",)}])
def test_secret_that_the_policy_does_not_name_is_refused(web: Web, policy: dict) -> None:
    server = web.serve()

    status, rule, _ = web.refused(f"http://good.test:{server.port}/", policy, credential="api")

    assert (status, rule) == (403, "credential")
    assert server.connections == 0


def test_secret_that_does_not_exist_is_refused(web: Web) -> None:
    assert web.refused("http://good.test/", {"credentials": ("x",)}, credential="x")[:2] == (
        403,
        "credential",
    )


def test_secret_is_not_sent_to_a_domain_that_it_is_not_bound_to(web: Web) -> None:
    web.names["other.test"] = ["127.0.0.1"]
    server = web.serve()

    status, rule, _ = web.refused(f"http://other.test:{server.port}/", GRANTED, credential="api")

    assert (status, rule) == (403, "credential")
    assert server.connections == 0


def test_secret_is_not_sent_without_tls_unless_the_operator_says_so(tmp_path: Path) -> None:
    web = with_store(tmp_path, f'[api]\nvalue = "{SECRET}"\ndomains = ["good.test"]\n')
    server = web.serve()

    status, rule, _ = web.refused(f"http://good.test:{server.port}/", GRANTED, credential="api")

    assert (status, rule) == (403, "credential")
    assert server.connections == 0
    web.close()


@pytest.mark.parametrize("to", ["host", "port"])
def test_secret_does_not_follow_a_redirect_to_another_origin(web: Web, to: str) -> None:
    web.names["other.test"] = ["127.0.0.1"]
    other = web.serve()
    host = "other.test" if to == "host" else "good.test"
    outer = web.serve(lambda peer: peer.redirect(f"http://{host}:{other.port}/"))

    web.get(f"http://good.test:{outer.port}/", GRANTED, credential="api")

    assert outer.requests[0].header("Authorization")
    assert other.requests[0].header("Authorization") is None


def test_secret_does_not_come_back_after_a_redirect_home(web: Web) -> None:
    web.names["other.test"] = ["127.0.0.1"]

    def first(peer: Peer) -> None:
        if peer.request.target == "/":
            peer.redirect(f"http://other.test:{away.port}/")
        else:
            peer.answer(b"home")

    home = web.serve(first)
    away = web.serve(lambda peer: peer.redirect(f"http://good.test:{home.port}/open-redirect"))

    web.get(f"http://good.test:{home.port}/", GRANTED, credential="api")

    assert [request.header("Authorization") for request in home.requests] == [
        f"Bearer {SECRET}",
        None,
    ]


def test_secret_stays_on_its_origin(web: Web) -> None:
    def respond(peer: Peer) -> None:
        if peer.request.target == "/":
            peer.redirect("/next")
        else:
            peer.answer()

    server = web.serve(respond)

    web.get(f"http://good.test:{server.port}/", GRANTED, credential="api")

    assert len(server.requests) == 2
    assert all(request.header("Authorization") for request in server.requests)


@pytest.mark.parametrize("where", ["body", "header", "location"])
def test_response_that_echoes_the_secret_is_withheld(web: Web, where: str) -> None:
    def respond(peer: Peer) -> None:
        seen = peer.request.header("Authorization") or ""
        if where == "body":
            peer.answer(f'{{"headers": "{seen}"}}'.encode())
        elif where == "header":
            peer.answer(b"", f"X-Seen: {seen}")
        else:
            peer.redirect(f"/?seen={seen.removeprefix('Bearer ')}")

    server = web.serve(respond)

    status, rule, fault = web.refused(f"http://good.test:{server.port}/", GRANTED, credential="api")

    assert (status, rule) == (502, "credential")
    assert SECRET not in repr(fault.to_dict())


def test_session_cookie_that_a_secret_buys_is_not_given_to_the_tool(web: Web) -> None:
    server = web.serve(lambda peer: peer.answer(b"", "Set-Cookie: session=1", "X-Kept: 1"))
    url = f"http://good.test:{server.port}/"

    with_secret = {k.lower() for k, _ in web.get(url, GRANTED, credential="api").headers}
    without = {k.lower() for k, _ in web.get(url).headers}

    assert "set-cookie" not in with_secret
    assert "set-cookie" in without
    assert "x-kept" in with_secret


def test_header_of_the_secret_can_not_be_set_beside_it(web: Web) -> None:
    status, rule, _ = web.refused(
        "http://good.test/", GRANTED, credential="api", headers=[("authorization", "Bearer mine")]
    )

    assert (status, rule) == (400, "header")


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ('scheme = ""\nheader = "X-Api-Key"\nvalue = "k1234567"', ("X-Api-Key", "k1234567")),
        ('scheme = "token"\nvalue = "k1234567"', ("Authorization", "token k1234567")),
        ('scheme = "Basic"\nvalue = "u:pw"', ("Authorization", "Basic dTpwdw==")),
        ('env = "PROBE_TOKEN"', ("Authorization", "Bearer from-env")),
    ],
)
def test_secret_is_sent_in_the_form_that_the_store_says(
    tmp_path: Path, fields: str, sent: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBE_TOKEN", "from-env")
    web = with_store(tmp_path, f'[api]\n{fields}\ndomains = ["*.test"]\ninsecure = true\n')
    server = web.serve()

    web.get(f"http://good.test:{server.port}/", GRANTED, credential="api")

    assert server.requests[0].header(sent[0]) == sent[1]
    web.close()


def test_rotated_secret_file_is_used_at_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first-one\n")
    web = with_store(
        tmp_path, f'[api]\nfile = "{token}"\ndomains = ["good.test"]\ninsecure = true\n'
    )
    server = web.serve()
    url = f"http://good.test:{server.port}/"

    web.get(url, GRANTED, credential="api")
    token.write_text("second-one\n")
    web.get(url, GRANTED, credential="api")

    assert [r.header("Authorization") for r in server.requests] == [
        "Bearer first-one",
        "Bearer second-one",
    ]
    web.close()


@pytest.mark.parametrize("value", ["", "a\r\nX-Injected: 1", "a\0b", "ü", " ", "x" * 9000])
def test_value_that_does_not_fit_in_a_header_is_not_sent(tmp_path: Path, value: str) -> None:
    token = tmp_path / "token"
    token.write_text(value)
    web = with_store(
        tmp_path, f'[api]\nfile = "{token}"\ndomains = ["good.test"]\ninsecure = true\n'
    )

    status, rule, fault = web.refused("http://good.test/", GRANTED, credential="api")

    assert (status, rule) == (502, "credential")
    assert str(token) not in repr(fault.to_dict())
    web.close()


@pytest.mark.parametrize(
    "text",
    [
        "[api",
        f'[api]\nvalue = "{SECRET}"\n',
        f'[api]\nvalue = "{SECRET}"\nenv = "X"\ndomains = []\n',
        f'[api]\nvalue = "{SECRET}"\ndomains = ["https://x"]\n',
        f'[api]\nvalue = "{SECRET}"\ndomains = []\nsurplus = 1\n',
        f'[api]\nvalue = "{SECRET}"\ndomains = []\nheader = "Host"\n',
        f'[api]\nvalue = "{SECRET}"\ndomains = []\nheader = "a b"\n',
        f'[api]\nvalue = "{SECRET}"\ndomains = []\nscheme = "a\\nb"\n',
        '[api]\ndomains = ["good.test"]\n',
    ],
)
def test_store_that_is_not_sound_is_a_configuration_error(tmp_path: Path, text: str) -> None:
    web = with_store(tmp_path, text)

    with pytest.raises(ConfigError) as caught:
        web.open(GRANTED).call("http.fetch", url="http://good.test/", credential="api")

    assert SECRET not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    web.close()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_store_that_others_may_read_is_not_read(tmp_path: Path, mode: int) -> None:
    web = with_store(tmp_path, ENTRY, mode)

    with pytest.raises(ConfigError, match="others"):
        web.open(GRANTED).call("http.fetch", url="http://good.test/", credential="api")
    web.close()


def test_store_behind_a_link_is_not_read(tmp_path: Path) -> None:
    real = store(tmp_path / "real.toml", ENTRY)
    (tmp_path / "link.toml").symlink_to(real)
    web = Web(secrets_file=tmp_path / "link.toml")

    with pytest.raises(ConfigError):
        web.open(GRANTED).call("http.fetch", url="http://good.test/", credential="api")
    web.close()


def test_missing_store_holds_no_secret(tmp_path: Path) -> None:
    web = Web(secrets_file=tmp_path / "none.toml")

    assert web.refused("http://good.test/", GRANTED, credential="api")[:2] == (403, "credential")
    web.close()
