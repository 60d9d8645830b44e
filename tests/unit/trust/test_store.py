"""Reading and changing the trust store."""

import tomllib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from artifact_maker import KEY, OTHER_KEY, refused
from hypothesis import given
from hypothesis import strategies as st

from toolcell.errors import ConfigError
from toolcell.trust.edit import add_key, remove_key, revoke_key, to_toml
from toolcell.trust.keys import PublicKey
from toolcell.trust.store import (
    KeyRecord,
    PublisherRecord,
    Revocation,
    StoreRecord,
    TrustStore,
    parse_record,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)
PUBLIC = str(KEY.public)


def store(text: str) -> TrustStore:
    return TrustStore.parse(text.encode())


def entry(extra: str = "", publisher: str = "acme", key: str = PUBLIC) -> str:
    head = f"[publishers.{publisher}]\n[[publishers.{publisher}.keys]]\n"
    return f'{head}public_key = "{key}"\n{extra}\n'


def test_no_file_and_an_empty_file_trust_nobody(tmp_path):
    assert TrustStore.load(tmp_path / "trust.toml").keys == {}
    assert store("").keys == {}


def test_a_key_is_found_by_the_id_that_is_made_from_it():
    key = store(entry('comment = "build server"')).verify(KEY.public.id, NOW)
    assert (key.publisher, key.public, key.comment) == ("acme", KEY.public, "build server")


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ("not_before = 2026-06-01T00:00:01Z", "not_yet_valid"),
        ("not_before = 2026-06-01T01:00:00+00:30", "not_yet_valid"),
        ("not_after = 2026-06-01T00:00:00Z", "expired"),
        ('revoked = { when = 2026-01-01T00:00:00Z, why = "lost" }', "revoked"),
    ],
)
def test_each_reason_not_to_count_is_its_own(extra, reason):
    with refused(reason) as caught:
        store(entry(extra)).verify(KEY.public.id, NOW)
    assert KEY.public.id[:16] in caught.value.message


def test_limits_are_inclusive_at_the_beginning_and_exclusive_at_the_end():
    limited = store(entry("not_before = 2026-06-01T00:00:00Z\nnot_after = 2026-06-02T00:00:00Z"))
    assert limited.verify(KEY.public.id, NOW)
    assert limited.verify(KEY.public.id, NOW + timedelta(hours=23, minutes=59))
    assert limited.verify(KEY.public.id, NOW.astimezone(timezone(timedelta(hours=9))))


def test_an_unknown_key_is_refused_with_the_way_to_trust_it():
    with refused("unknown_key") as caught:
        store("").verify(KEY.public.id)
    assert "trust add" in caught.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "[publishers.acme]\nkeys = 1",
        "[publishers.Acme]\nkeys = []",
        '[publishers."acme\\n"]\nkeys = []',
        "[publishers.acme]\nkeys = []\nunknown = 1",
        "publisher = 1",
        entry("not_before = 2026-01-01T00:00:00"),  # no UTC offset
        entry("not_before = 2026-01-01"),
        entry("not_after = 'tomorrow'"),
        entry("not_before = 2026-02-01T00:00:00Z\nnot_after = 2026-01-01T00:00:00Z"),
        entry('revoked = { when = 2026-01-01T00:00:00Z, why = "" }'),
        entry("revoked = true"),
        entry(key="AAAA"),
        entry(key="not base64"),
        entry("extra = 1"),
        entry() + entry(publisher="other"),
        "\ufeff",
        "a = " + "[" * 5000,
    ],
)
def test_a_store_that_is_wrong_in_any_part_is_refused_as_a_whole(text):
    with pytest.raises(ConfigError) as caught:
        store(text)
    assert caught.value.remedy


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(ConfigError):
        TrustStore.parse(b"\xff\xfe")


def test_a_key_is_added_revoked_and_removed(tmp_path):
    path = tmp_path / "trust.toml"
    add_key(path, "acme", KEY.public, comment='"quoted" \\ \x7f \u2603 \U0001f600')
    add_key(path, "acme", OTHER_KEY.public, not_after=NOW)
    assert set(TrustStore.load(path).keys) == {KEY.public.id, OTHER_KEY.public.id}
    assert revoke_key(path, KEY.public.id[:10].upper(), "laptop stolen") == KEY.public.id
    with refused("revoked") as caught:
        TrustStore.load(path).verify(KEY.public.id)
    assert "laptop stolen" in caught.value.message
    assert remove_key(path, OTHER_KEY.public.id) == OTHER_KEY.public.id
    assert set(TrustStore.load(path).keys) == {KEY.public.id}
    remove_key(path, KEY.public.id, force=True)
    assert TrustStore.load(path).keys == {}


def test_a_revoked_key_does_not_come_back_by_adding_it_again(tmp_path):
    path = tmp_path / "trust.toml"
    add_key(path, "acme", KEY.public)
    revoke_key(path, KEY.public.id, "stolen")
    for publisher in ("acme", "other"):
        with pytest.raises(ConfigError, match="revoked key of `acme`"):
            add_key(path, publisher, KEY.public)
    with pytest.raises(ConfigError, match="revoked already"):
        revoke_key(path, KEY.public.id, "again")


def test_a_revocation_is_not_lost_by_removing_the_key(tmp_path):
    path = tmp_path / "trust.toml"
    add_key(path, "acme", KEY.public)
    revoke_key(path, KEY.public.id, "stolen")
    with pytest.raises(ConfigError, match=r"is revoked \(stolen\)") as caught:
        remove_key(path, KEY.public.id)
    assert "leave it" in caught.value.remedy
    with pytest.raises(ConfigError) as caught:
        add_key(path, "acme", KEY.public)
    assert "remove" not in caught.value.remedy
    with refused("revoked"):
        TrustStore.load(path).verify(KEY.public.id)


def test_a_key_that_is_not_in_the_store_can_be_revoked_by_its_full_id(tmp_path):
    path = tmp_path / "trust.toml"
    with pytest.raises(ConfigError, match="no key") as caught:
        revoke_key(path, KEY.public.id[:16], "leaked")
    assert "full id" in caught.value.remedy
    assert revoke_key(path, KEY.public.id.upper(), "leaked") == KEY.public.id
    with refused("revoked") as rejected:
        TrustStore.load(path).verify(KEY.public.id)
    assert "leaked" in rejected.value.message
    with pytest.raises(ConfigError, match="as revoked: leaked"):
        add_key(path, "acme", KEY.public)
    with pytest.raises(ConfigError, match="revoked already"):
        revoke_key(path, KEY.public.id, "again")
    add_key(path, "acme", OTHER_KEY.public)
    assert set(TrustStore.load(path).revoked_elsewhere) == {KEY.public.id}
    with pytest.raises(ConfigError, match="is revoked"):
        remove_key(path, KEY.public.id[:8])
    remove_key(path, KEY.public.id, force=True)
    add_key(path, "acme", KEY.public)


def test_a_revocation_counts_for_a_key_that_was_written_in_beside_it(tmp_path):
    path = tmp_path / "trust.toml"
    revoke_key(path, KEY.public.id, "leaked")
    with path.open("a") as file:
        file.write(f'\n[[publishers.acme.keys]]\npublic_key = "{KEY.public}"\n')
    with refused("revoked"):
        TrustStore.load(path).verify(KEY.public.id)


@pytest.mark.parametrize(("prefix", "match"), [("abc", "too short"), ("0" * 12, "no key")])
def test_a_key_id_must_name_one_key(tmp_path, prefix, match):
    path = tmp_path / "trust.toml"
    add_key(path, "acme", KEY.public)
    with pytest.raises(ConfigError, match=match):
        remove_key(path, prefix)


@pytest.mark.parametrize("publisher", ["", "Acme", "a b", "a\n", "../x", "x" * 65])
def test_a_publisher_with_a_bad_name_is_not_added(tmp_path, publisher):
    path = tmp_path / "trust.toml"
    with pytest.raises(ConfigError):
        add_key(path, publisher, KEY.public)
    assert not path.exists()


def test_text_that_is_not_unicode_is_not_added(tmp_path):
    path = tmp_path / "trust.toml"
    with pytest.raises(ConfigError, match="UTF-8"):
        add_key(path, "acme", KEY.public, comment="\udc80")
    assert not path.exists()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TIMES = st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1))  # noqa: DTZ001
REVOCATIONS = st.builds(Revocation, when=TIMES, why=TEXT.filter(bool))
IDS = st.from_regex(r"[0-9a-f]{64}\Z", fullmatch=True)
KEYS = st.builds(
    KeyRecord,
    public_key=st.binary(min_size=32, max_size=32).map(lambda raw: str(PublicKey(raw))),
    not_before=st.none() | TIMES,
    not_after=st.none() | TIMES,
    comment=TEXT,
    revoked=st.none() | REVOCATIONS,
)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,10}\Z", fullmatch=True)


PUBLISHERS = st.builds(PublisherRecord, keys=st.lists(KEYS, max_size=3).map(tuple))


@pytest.mark.slow
@given(st.dictionaries(NAMES, PUBLISHERS), st.dictionaries(IDS, REVOCATIONS, max_size=3))
def test_what_is_written_reads_back_as_the_same(publishers, revoked):
    record = StoreRecord(publishers=publishers, revoked_keys=revoked)
    assert tomllib.loads(to_toml(record)) is not None
    assert parse_record(to_toml(record).encode()) == record
