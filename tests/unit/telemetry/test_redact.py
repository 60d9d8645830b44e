"""Redaction: what goes, what stays, and what it costs where there is nothing to do."""

import json
import math
import sys
import time
import typing
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from audit_logs import CONTEXT, capability
from event_reference import all_events
from hypothesis import given
from hypothesis import strategies as st

from toolcell.errors import CapabilityFault, ToolFault
from toolcell.events import MonitorIncident, SandboxViolation, ToolInvocation
from toolcell.home import Home
from toolcell.telemetry import patterns
from toolcell.telemetry.redact import MAX_NAME_CHARS, MAX_TEXT_CHARS, Redactor

PLAIN = Redactor()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def-ghi", "Authorization: <redacted>"),
        ('{"authorization": "Basic dXNlcjpwYXNz"}', '{"authorization": <redacted>'),
        ("Cookie: a=b; c=d\nHost: x", "Cookie: <redacted>\\nHost: x"),
        ("sent with bearer eyJhbGciOi", "sent with bearer <redacted>"),
        ("Basic dXNlcjpwYXNz is set", "Basic <redacted> is set"),
        ("key AKIAIOSFODNN7EXAMPLE here", "key <redacted> here"),
        ("aws_secret_access_key = wJalrXUt/K7MDENG", "aws_secret_access_key = <redacted>"),
        ("password=hunter2, user=me", "password=<redacted>, user=me"),
        ("PASSWORD: 'two words' left", "PASSWORD: <redacted> left"),
        ('{"api_key": "abc def", "n": 1}', '{"api_key": <redacted>, "n": 1}'),
        ("https://user:pw@example.com/x", "https://<redacted>@example.com/x"),
        ("GET https://x.y/z?access_token=abc&n=1", "GET https://x.y/z?access_token=<redacted>&n=1"),
        ("https://x.y/?key=abc&sig=def#f", "https://x.y/?key=<redacted>&sig=<redacted>#f"),
        ("?X-Amz-Signature=0123&a=1", "?X-Amz-Signature=<redacted>&a=1"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ0123 pushed", "<redacted> pushed"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM ok", "<redacted> ok"),
        (
            "a -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- b",
            "a <redacted> b",
        ),
        ("a -----BEGIN PRIVATE KEY-----\nMIIEv", "a <redacted>"),
    ],
)
def test_what_looks_like_a_secret_goes(text, shown):
    assert PLAIN.redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "kv.get notes/a: 404",
        "max_tokens=5, tokens: 12",
        "https://example.com/a?page=2&n=10",
        "memory_mb is 128, used 130.5",
        "the policy grants no http.fetch to csv-profile@1.2.3",
        "sha256:" + "ab" * 32,
        "Größe 10 µm, 日本語, émoji 🙂",
        "a basic question about bearers",
    ],
)
def test_ordinary_text_stays_the_same_object(text):
    assert PLAIN.redact(text) is text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202egpj.exe", "abc\\u202egpj.exe"),
        ("a\u2028b\u200bc\ufeffd", "a\\u2028b\\u200bc\\ufeffd"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("a\0b", "a\\x00b"),
        ("non\u00a0breaking", "non\u00a0breaking"),
    ],
)
def test_control_characters_are_spelled_out(text, shown):
    assert PLAIN.redact(text) == shown


def test_a_block_of_text_keeps_its_newlines_and_nothing_else():
    assert PLAIN.redact("a\n\tb\x1b[2J\r\n", keep_newlines=True) == "a\n\tb\\x1b[2J\\r\n"


SECRETS = ["correct-horse/battery+staple", 'with "quotes" and\nnewline', "s3"]


@pytest.mark.parametrize("secret", SECRETS[:2])
@pytest.mark.parametrize(
    "spelled",
    [
        str,
        lambda secret: quote(secret, safe=""),
        lambda secret: json.dumps(secret)[1:-1],
        lambda secret: repr(secret)[1:-1],
        lambda secret: secret.encode().hex(),
        lambda secret: b64encode(secret.encode()).decode(),
        lambda secret: b64encode(b"user:" + secret.encode() + b"more").decode(),
        lambda secret: urlsafe_b64encode(b"ab" + secret.encode()).decode(),
    ],
    ids=["raw", "percent", "json", "repr", "hex", "base64", "in base64", "url base64"],
)
def test_a_registered_secret_goes_in_every_spelling(secret, spelled):
    redactor = Redactor(SECRETS)
    text = f"before {spelled(secret)} after"
    shown = redactor.redact(text)
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "<redacted>" in shown
    assert spelled(secret)[4:-4] not in shown


def test_a_short_secret_goes_as_a_word_only():
    assert Redactor(SECRETS).redact("s3 and us3r and bus3") == "<redacted> and us3r and bus3"


def test_a_secret_that_begins_like_another_goes_as_a_whole():
    assert Redactor(["abcdef", "abcdefghi"]).redact("abcdefghi abcdef") == "<redacted> <redacted>"


def test_a_secret_can_be_registered_later_and_is_not_in_the_repr():
    redactor = Redactor()
    assert redactor.redact("open sesame") == "open sesame"
    redactor.add_secret("open sesame")
    redactor.add_secret("")
    assert redactor.redact("open sesame") == "<redacted>"
    assert "sesame" not in repr(redactor)


@pytest.mark.parametrize("offset", range(-40, 41, 4))
def test_a_secret_at_the_place_where_a_text_is_cut_does_not_show_in_part(offset):
    secret = "correct-horse-battery"
    redactor = Redactor([secret])
    for where in (100, 4 * 100 + 256):
        text = "x" * (where + offset) + secret + "y" * 2_000
        assert "corr" not in redactor.redact(text, limit=100)
    many = secret * 300
    assert "corr" not in redactor.redact(many, limit=100)


def test_host_paths_are_shown_by_name(tmp_path):
    home = Home()
    redactor = Redactor.for_host(home, paths={tmp_path / "data": "<data>"})
    assert redactor.redact(f"{home.registry}/blobs/ab") == "<registry>/blobs/ab"
    assert redactor.redact(f"{home.audit}: full") == "<toolcell-home>/audit.jsonl: full"
    assert redactor.redact(f"in {tmp_path}/data/x") == "in <data>/x"
    assert redactor.redact(f'File "{msgspec.__file__}", line 3').startswith('File "<site-packages>')
    assert redactor.redact(f"{Path.home()}/x") == "<home>/x"
    assert redactor.redact("file:///tmp/x and (/tmp)") == "file://<tmp>/x and (<tmp>)"
    assert redactor.redact(f"{sys.prefix}/bin/python").endswith(">/bin/python")


@pytest.mark.parametrize("text", ["/tmpfs", "a/tmp", "x.tmp/y", "/var/lib", "/usr/bin", "1/2"])
def test_what_only_looks_like_a_host_path_stays(text):
    redactor = Redactor(paths={"/tmp": "<tmp>", "/": "<root>"})
    assert redactor.redact(text) is text


def test_the_longest_prefix_wins():
    redactor = Redactor(paths={"/srv": "<srv>", "/srv/tools/": "<tools>"})
    assert redactor.redact("/srv/tools/a /srv/b") == "<tools>/a <srv>/b"


def test_a_long_text_is_cut_and_says_how_long_it_was():
    shown = PLAIN.redact("x" * 5_000)
    assert len(shown) == MAX_TEXT_CHARS
    assert shown.endswith("x…[5000 chars]")
    assert PLAIN.redact("\n" * 2_000).count("\\n") < 1_000, "spelled out, it is still in bounds"


@given(st.text(max_size=400), st.integers(1, 300))
def test_any_text_comes_out_bounded_and_printable(text, limit):
    shown = Redactor(["abc"], {"/tmp": "<tmp>"}).redact(text, limit=limit)
    assert len(shown) <= limit
    assert patterns.CONTROL.search(shown) is None
    shown.encode()


SHAPES = [
    *("-----BEGIN ", "PRIVATE KEY-----", "authorization", "bearer ", "Basic ", "://", "user:pw@"),
    *("?key=", "&sig=", "password", "token", "=", ": ", "AKIA", "ABCDEFGHIJKLMNOP", "ghp_", "sk-"),
    *("xoxb-", "eyJ", "abcdefgh1234567890", ".", "\n", " ", "'", '"', "x"),
]
FRAGMENTS = st.sampled_from(SHAPES)


@given(st.lists(FRAGMENTS, max_size=12).map("".join))
def test_the_trigger_never_hides_a_match_of_the_patterns(text):
    assert patterns.hide_patterns(text) == patterns._PATTERNS.sub(patterns._kept_part, text)


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN " * 200,
        "-----BEGIN PRIVATE KEY" * 100,
        "token" * 400,
        "token" + "a" * 1_990,
        "://" * 600,
        "://" + "a" * 1_990,
        "eyJ" + "a-" * 990,
        "Basic " + "a" * 1_990,
        "secret" + " " * 1_990,
        "?x-amz-" + "a-" * 990,
        "password='" * 200,
        "A" * 2_000,
    ],
    ids=lambda text: text[:12],
)
def test_eight_times_the_hostile_text_does_not_cost_more_than_linear_time(text):
    """Quadratic would be 64 times as much; 24 leaves room for a busy machine."""

    def cost(sample):
        best = math.inf
        for _ in range(5):
            before = time.thread_time_ns()
            patterns.hide_patterns(sample)
            best = min(best, time.thread_time_ns() - before)
        return best

    assert cost(text * 8) < 24 * max(cost(text), 20_000)


def test_a_value_is_redacted_to_its_leaves():
    shown = PLAIN.redact_value(
        {
            "password": "x",
            "nested": [{"Authorization": "y", "n": 1, "f": 1.5, "t": True, "none": None}],
            "text": "a\x1b[0m",
            "raw": b"12345",
            "huge": 10**40,
            "max_tokens": 5,
            "token": 5,
            "key\n": ("a", {"b"}),
        }
    )
    assert shown == {
        "password": "<redacted>",
        "nested": [{"Authorization": "<redacted>", "n": 1, "f": 1.5, "t": True, "none": None}],
        "text": "a\\x1b[0m",
        "raw": "<5 bytes>",
        "huge": hex(10**40),
        "max_tokens": 5,
        "token": 5,
        "key\\n": ["a", ["b"]],
    }
    msgspec.json.encode(shown)


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(JSON_LIKE)
def test_any_value_comes_out_as_json(value):
    msgspec.json.encode(PLAIN.redact_value(value))


def test_a_huge_or_endless_value_comes_out_bounded():
    endless: list = []
    endless.append(endless)
    wide = {str(number): "x" * 3_000 for number in range(10_000)}
    for value in (endless, wide, [wide] * 100):
        assert len(msgspec.json.encode(PLAIN.redact_value(value))) < 32_768


def test_an_event_with_nothing_to_hide_is_the_same_object():
    event = capability()
    assert PLAIN.redact_event(event) is event


def test_every_free_text_of_an_event_is_redacted():
    incident = MonitorIncident.of(
        CONTEXT,
        severity="warning",
        type="output",
        message="password=x\n",
        details={"line": "Bearer abcdefghijk", "secret": "y"},
    )
    shown = PLAIN.redact_event(incident)
    assert shown.message == "password=<redacted>\\n"
    assert shown.details == {"line": "Bearer <redacted>", "secret": "<redacted>"}
    assert incident.message == "password=x\n", "the event of the caller is left alone"


def test_a_name_that_is_too_long_or_not_printable_is_cut_and_spelled_out():
    event = capability(name="x" * 5_000)
    assert len(PLAIN.redact_event(event).name) == MAX_NAME_CHARS
    event = msgspec.structs.replace(capability(), correlation_id='"}\n{"forged":1}\ud800')
    assert PLAIN.redact_event(event).correlation_id == '"}\\n{"forged":1}\\ud800'


def test_every_field_of_every_event_is_of_a_kind_that_redaction_knows():
    """A `str | None`, a `list[str]` or a nested struct would pass through unseen."""
    for kind in all_events():
        hints = typing.get_type_hints(kind)
        for field in msgspec.structs.fields(kind):
            hint = hints[field.name]
            known = hint in (str, int, float, bool) or typing.get_origin(hint) in (
                dict,
                typing.Literal,
            )
            assert known, (kind.__name__, field.name, hint)


def test_what_a_person_may_have_written_is_declared_free_text():
    from toolcell.telemetry.redact import _plan

    assert _plan(SandboxViolation).texts == ("detail",)
    assert _plan(ToolInvocation).texts == ("method",)
    assert _plan(MonitorIncident).values == ("details",)


def test_an_error_is_redacted_in_all_its_parts():
    redactor = Redactor(["open sesame"], {"/srv/me": "<home>"})
    error = ToolFault(
        "no open sesame",
        guest_detail='File "/srv/me/x.py"\n  password="p"\n' + "y" * 20_000,
        remedy="look in /srv/me",
        details={"path": "/srv/me/y"},
    )
    redactor.redact_error(error)
    assert str(error) == error.message == "no <redacted>"
    assert error.remedy == "look in <home>"
    assert error.details == {"path": "<home>/y"}
    assert error.guest_detail.startswith('File "<home>/x.py"\n  password=<redacted>\n')
    assert len(error.guest_detail) == 16_000
    fault = CapabilityFault("http.fetch", "https://u:p@x")
    redactor.redact_error(fault)
    assert fault.message == "http.fetch: https://<redacted>@x"
