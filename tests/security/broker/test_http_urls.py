"""URLs that mean one thing to who checks them and another to who dials them."""

import socket
from urllib.parse import urlsplit

import pytest
from loopback import Web

INET_ATON_SPELLINGS = ["0177.0.0.1", "2130706433", "0x7f.1", "127.1", "0x7f000001", "127.0.1"]


@pytest.mark.parametrize("host", INET_ATON_SPELLINGS)
def test_number_that_a_resolver_reads_as_loopback_is_no_host(web: Web, host: str) -> None:
    assert socket.inet_aton(host) == b"\x7f\0\0\1", "the attack: libc dials loopback for this"
    server = web.serve()

    status, rule, _ = web.refused(f"http://{host}:{server.port}/", {"domains": ("good.test",)})

    assert (status, rule) == (400, "url")
    assert web.lookups == []
    assert server.connections == 0


@pytest.mark.parametrize(
    "host", ["127.0.0.01", "1.2.3", "256.1.1.1", "1.2.3.4.5", "good.test.0x1", "0x", "1.2.3.0xg."]
)
def test_host_that_ends_in_a_number_is_four_decimals_or_nothing(web: Web, host: str) -> None:
    status, rule, _ = web.refused(f"http://{host}/")

    assert status in {400, 403}
    assert rule in {"url", "domain"}
    assert web.lookups == []


@pytest.mark.parametrize(
    "url",
    [
        "http://good.test@evil.test/",
        "http://good.test:80@evil.test/",
        "http://good.test%40evil.test/",
        "http://good.test\\@evil.test/",
        "http://evil.test\\.good.test/",
        "http:\\\\evil.test/",
        "http:good.test/",
        "http:/good.test/",
        "http:///good.test/",
        "//good.test/",
        "http://@good.test/",
        "http://[2606:4700::12/",
        "http://[2606:4700::1]2/",
        "http://[[2606:4700::1]/",
    ],
)
def test_authority_that_two_readers_take_apart_differently_is_refused(web: Web, url: str) -> None:
    status, rule, _ = web.refused(url)

    assert (status, rule) == (400, "url")
    assert web.lookups == []


def test_user_name_trick_reaches_the_other_host_where_it_is_read_leniently() -> None:
    assert urlsplit("http://good.test@evil.test/").hostname == "evil.test"
    assert urlsplit("http://good.test\\@evil.test/").hostname == "evil.test"


@pytest.mark.parametrize(
    "url",
    ["http://evil.test#@good.test/", "http://evil.test?@good.test/", "http://evil.test/@good.test"],
)
def test_granted_name_after_the_authority_grants_nothing(web: Web, url: str) -> None:
    status, rule, fault = web.refused(url)

    assert (status, rule) == (403, "domain")
    assert "evil.test" in fault.message
    assert web.lookups == []


@pytest.mark.parametrize("char", [chr(code) for code in (*range(0x21), 0x7F)])
@pytest.mark.parametrize(
    "url", ["http://good.test/{}", "http://good{}.test/", "{}http://good.test/"]
)
def test_control_character_or_space_in_a_url_is_refused(web: Web, url: str, char: str) -> None:
    status, rule, _ = web.refused(url.format(char))

    assert (status, rule) == (400, "url")
    assert web.lookups == []


@pytest.mark.parametrize(
    "url", ["http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[::1%lo]/"]
)
def test_zone_of_an_ipv6_address_is_refused(web: Web, url: str) -> None:
    status, rule, _ = web.refused(url)

    assert (status, rule) == (400, "url")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://\uff47ood.test/", "full-width letter that IDNA maps to g"),
        ("http://good。test/", "ideographic full stop that IDNA maps to a dot"),
        ("http://goo\u00add.test/", "soft hyphen that IDNA drops"),
        ("http://good\u200d.test/", "zero-width joiner that IDNA drops"),
        ("http://ⓖood.test/", "circled letter that IDNA maps to g"),
        ("http://ﬁne.test/", "ligature that IDNA maps to two letters"),
        ("http://goods.teßt/", "sharp s that IDNA 2003 maps to ss"),
        ("http://good\udcff.test/", "lone surrogate"),
    ],
)
def test_spelling_that_idna_maps_to_another_name_is_refused(web: Web, url: str, why: str) -> None:
    web.names["fine.test"] = web.names["goods.tesst"] = ["127.0.0.1"]

    fault = web.open().refused("http.fetch", url=url)

    assert fault.status == 400, why
    assert web.lookups == []


def test_homograph_is_another_name_and_not_granted(web: Web) -> None:
    status, rule, fault = web.refused("http://g\u043e\u043ed.test/")  # Cyrillic letters

    assert (status, rule) == (403, "domain")
    assert "xn--" in fault.message
    assert web.lookups == []


def test_name_in_another_script_is_looked_up_as_its_a_label(web: Web) -> None:
    web.names["xn--bcher-kva.test"] = ["127.0.0.1"]
    server = web.serve()

    answer = web.get(f"http://BÜCHER.test:{server.port}/")

    assert answer.status == 200
    assert web.lookups == ["xn--bcher-kva.test"]
    assert server.requests[0].header("Host") == f"xn--bcher-kva.test:{server.port}"


@pytest.mark.parametrize("host", ["GOOD.TEST", "good.test.", "Good.Test."])
def test_one_name_has_one_spelling(web: Web, host: str) -> None:
    server = web.serve()

    answer = web.get(f"HTTP://{host}:{server.port}/x")

    assert answer.url == f"http://good.test:{server.port}/x"
    assert web.lookups == ["good.test"]


@pytest.mark.parametrize(
    "host", ["good.test..", ".good.test", "good..test", "-good.test", "a" * 64 + ".test"]
)
def test_malformed_name_is_refused(web: Web, host: str) -> None:
    status, rule, _ = web.refused(f"http://{host}/")

    assert (status, rule) == (400, "url")


@pytest.mark.parametrize(
    "port", ["0", "65536", "080", "-1", "+80", "8 0", "", "\uff18\uff10", "80x", "99999999999"]
)
def test_port_is_a_plain_number(web: Web, port: str) -> None:
    status, rule, _ = web.refused(f"http://good.test:{port}/")

    assert (status, rule) == (400, "url")


def test_default_port_written_out_is_the_same_place(web: Web) -> None:
    explicit = web.refused("https://good.test:443/", {"ports": (1,)})
    implied = web.refused("https://good.test/", {"ports": (1,)})

    assert explicit[:2] == implied[:2] == (403, "port")
    assert explicit[2].message == implied[2].message


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://good.test/", "gopher://good.test/", "data:,x", "javascript:1"],
)
def test_other_scheme_is_refused(web: Web, url: str) -> None:
    status, rule, _ = web.refused(url)

    assert (status, rule) == (400, "url")
    assert web.lookups == []


def test_url_is_bounded(web: Web) -> None:
    status, rule, fault = web.refused("http://good.test/" + "a" * 9000)

    assert (status, rule) == (400, "url")
    assert len(fault.message) < 300


@pytest.mark.parametrize(
    ("url", "policy", "rule"),
    [
        ("http://good.test/", {"schemes": ("https",)}, "scheme"),
        ("http://evil.test/", {}, "domain"),
        ("http://good.test:81/", {}, "port"),
        ("http://good.test/", {"methods": ("POST",)}, "method"),
        ("http://sub.good.test/", {}, "domain"),
        ("http://xgood.test/", {"domains": ("*.good.test",)}, "domain"),
        ("http://good.test/", {"domains": ("*.good.test",)}, "domain"),
        ("http://127.0.0.1/", {}, "domain"),
        ("http://good.test/", {"domains": ()}, "domain"),
    ],
)
def test_policy_is_asked_before_any_lookup(web: Web, url: str, policy: dict, rule: str) -> None:
    status, refused_by, fault = web.refused(url, policy)

    assert (status, refused_by) == (403, rule)
    assert fault.remedy, "a denial names the missing grant"
    assert web.lookups == []


def test_wildcard_grants_names_below_at_any_depth(web: Web) -> None:
    web.names["a.b.good.test"] = ["127.0.0.1"]
    server = web.serve()

    answer = web.get(f"http://a.b.good.test:{server.port}/", {"domains": ("*.good.test",)})

    assert answer.status == 200


def test_path_and_query_arrive_as_they_were_meant(web: Web) -> None:
    server = web.serve()

    web.get(f"http://good.test:{server.port}/a%2Fb/ü/[x]?q=a|b&r=%20#fragment")

    assert server.requests[0].target == "/a%2Fb/%C3%BC/%5Bx%5D?q=a%7Cb&r=%20"
