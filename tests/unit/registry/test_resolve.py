"""Publishing and resolving in one process."""

import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from artifact_maker import (
    FILES,
    KEY,
    OTHER_ID,
    OTHER_KEY,
    refused,
    registry_of,
    signed,
    trusting_home,
    unsigned,
)

from toolcell.errors import ArtifactRejected, ConfigError, ToolNotFound
from toolcell.registry import registry as registry_module
from toolcell.trust.edit import add_key, remove_key, revoke_key
from toolcell.trust.keys import SigningKey


def blob_of(registry, home, version="1.0.0"):
    (row,) = [row for row in registry.versions("echo") if row.version == version]
    return home.registry / "blobs" / "sha256" / row.blob[:2] / row.blob


def version_of(registry, *asked, **options) -> str:
    return registry.resolve(*asked, **options).artifact.manifest.version


def test_what_was_published_is_resolved_by_name(registry):
    done = registry.publish(signed())
    assert (done.name, done.version, done.publisher, done.created) == (
        "echo", "1.0.0", "acme", True,
    )  # fmt: skip
    found = registry.resolve("echo")
    assert found.artifact.digest == done.digest
    assert found.artifact.read("tool.wasm") == FILES["tool.wasm"]
    assert found.scope == "default"
    assert found.policy is None


def test_the_newest_release_in_the_range_is_taken(registry):
    for version in ("1.0.0", "1.2.0", "1.10.0", "2.0.0-rc1", "0.9.0"):
        registry.publish(signed(version=version))
    assert version_of(registry, "echo") == "1.10.0"
    assert version_of(registry, "echo", "~1.2") == "1.2.0"
    assert version_of(registry, "echo", "<1") == "0.9.0"
    assert version_of(registry, "echo", "2.0.0-rc1") == "2.0.0-rc1"
    with pytest.raises(ToolNotFound, match=r"`\^3`; published: 2.0.0-rc1, 1.10.0") as caught:
        registry.resolve("echo", "^3")
    assert caught.value.status == 404


def test_a_new_version_is_seen_by_the_next_resolve(registry):
    registry.publish(signed())
    assert version_of(registry, "echo") == "1.0.0"
    registry.publish(signed(version="1.1.0"))
    assert version_of(registry, "echo") == "1.1.0"


def test_publishing_the_same_again_changes_nothing(registry):
    first = registry.publish(signed())
    again = registry.publish(signed())
    assert (again.digest, again.created) == (first.digest, False)
    assert len(registry.versions()) == 1


def test_a_published_version_never_changes(registry):
    registry.publish(signed())
    with pytest.raises(ConfigError, match="published with other content") as caught:
        registry.publish(signed({"tool.wasm": b"other"}))
    assert caught.value.status == 409
    assert registry.resolve("echo").artifact.read("tool.wasm") == FILES["tool.wasm"]


def test_a_renewed_signature_takes_the_place_of_the_old_one(registry, home):
    registry.publish(signed())
    add_key(home.trust, "acme", OTHER_KEY.public)
    again = registry.publish(signed(key=OTHER_KEY))
    assert again.created is False
    revoke_key(home.trust, KEY.public.id, "rotated")
    assert registry.resolve("echo").artifact.key.public == OTHER_KEY.public
    assert registry.sweep() <= 1  # the archive with the old signature
    assert registry.resolve("echo").artifact.read("tool.wasm") == FILES["tool.wasm"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (unsigned, "unsigned"),
        (lambda: signed(key=OTHER_KEY), "unknown_key"),
        (lambda: signed() + b"x", "trailing_data"),
    ],
)
def test_what_would_not_be_run_is_not_published(registry, home, make, reason):
    with refused(reason):
        registry.publish(make())
    assert registry.versions() == []
    assert [path for path in home.registry.rglob("*") if "blobs/sha256/" in str(path)] == []


def test_a_name_belongs_to_its_first_publisher_and_id(registry, home):
    registry.publish(signed())
    add_key(home.trust, "mallory", OTHER_KEY.public)
    with pytest.raises(ConfigError, match="belongs to `acme`") as caught:
        registry.publish(signed(key=OTHER_KEY, version="9.0.0"))
    assert caught.value.status == 409
    with pytest.raises(ConfigError, match="this one is"):
        registry.publish(signed(id=OTHER_ID, version="9.0.0"))
    assert version_of(registry, "echo") == "1.0.0"


def test_a_tool_id_belongs_to_one_name(registry):
    registry.publish(signed())
    with pytest.raises(ConfigError, match="belongs to `echo`"):
        registry.publish(signed(name="copy"))
    with pytest.raises(ConfigError, match="belongs to `echo`"):
        registry.publish(signed(name="copy"), transfer=True)


def test_a_name_changes_hands_only_when_told_so(registry, home):
    registry.publish(signed(version="5.0.0"))
    add_key(home.trust, "heir", OTHER_KEY.public)
    registry.publish(signed(id=OTHER_ID, key=OTHER_KEY), transfer=True)
    found = registry.resolve("echo")
    assert (found.artifact.publisher, found.artifact.manifest.version) == ("heir", "1.0.0")


def test_a_grant_does_not_pass_on_with_the_name(registry, home):
    registry.publish(signed(version="5.0.0"), policy="fetcher")
    assert registry.resolve("echo").policy == "fetcher"
    registry.publish(signed(version="6.0.0"))
    assert registry.resolve("echo").policy == "fetcher"
    add_key(home.trust, "heir", OTHER_KEY.public)
    assert registry.publish(signed(version="7.0.0", key=OTHER_KEY), transfer=True).policy is None
    assert registry.resolve("echo").policy is None


def test_an_earlier_publisher_may_heal_his_version_and_nothing_else(registry, home):
    mine = signed()
    registry.publish(mine)
    add_key(home.trust, "heir", OTHER_KEY.public)
    registry.publish(signed(version="2.0.0", key=OTHER_KEY), transfer=True)
    blob_of(registry, home, "1.0.0").write_bytes(b"rotten")
    assert registry.publish(mine).created is False
    assert version_of(registry, "echo", "1.0.0") == "1.0.0"
    with pytest.raises(ConfigError, match="belongs to `heir`"):
        registry.publish(signed(version="3.0.0"))
    with pytest.raises(ConfigError, match="belongs to `heir`"):
        registry.publish(signed(version="2.0.0"))


def test_nobody_puts_his_signature_on_what_another_published(registry, home):
    registry.publish(signed())
    add_key(home.trust, "mallory", OTHER_KEY.public)
    with pytest.raises(ConfigError, match="belongs to `acme`"):
        registry.publish(signed(key=OTHER_KEY))


def test_a_version_that_was_yanked_is_not_resolved_until_it_is_back(registry):
    registry.publish(signed())
    registry.publish(signed(version="1.1.0"))
    registry.yank("echo", "1.1.0", "loses data")
    assert version_of(registry, "echo") == "1.0.0"
    with pytest.raises(ToolNotFound, match="was withdrawn: loses data"):
        registry.resolve("echo", "1.1.0")
    registry.publish(signed(version="1.1.0"))  # publishing it again does not bring it back
    assert version_of(registry, "echo") == "1.0.0"
    registry.unyank("echo", "1.1.0")
    assert version_of(registry, "echo") == "1.1.0"
    with pytest.raises(ToolNotFound):
        registry.yank("echo", "7.0.0", "no such")


def test_a_second_withdrawal_keeps_the_reason_and_the_time_of_the_first(registry):
    registry.publish(signed())
    assert registry.yank("echo", "1.0.0") == "no reason given"
    assert registry.yank("echo", "1.0.0", "loses data") == "loses data"
    (before,) = registry.versions("echo")
    assert registry.yank("echo", "1.0.0") == "loses data"
    assert registry.versions("echo") == [before]
    assert registry.yank("echo", "1.0.0", "leaks too") == "leaks too"


def test_a_scope_that_nobody_made_is_said_to_be_none(registry):
    registry.publish(signed())
    with pytest.raises(ToolNotFound, match="there is no scope 'nope'") as caught:
        registry.resolve("echo", scope="nope")
    assert "scope add" not in caught.value.remedy
    registry.scopes.create("team")
    with pytest.raises(ToolNotFound, match="'echo' is not in scope 'team'"):
        registry.resolve("echo", scope="team")


def test_what_is_looked_at_need_not_be_trusted_any_more(registry, home):
    registry.publish(signed())
    revoke_key(home.trust, KEY.public.id, "stolen")
    with refused("revoked"):
        registry.resolve("echo")
    assert registry.look("echo").manifest.name == "echo"
    with pytest.raises(ToolNotFound):
        registry.look("echo", "^2")


def test_a_revoked_expired_or_removed_key_stops_the_very_next_resolve(registry, home):
    registry.publish(signed())
    registry.resolve("echo")
    revoke_key(home.trust, KEY.public.id, "stolen")
    with refused("revoked"):
        registry.resolve("echo")
    remove_key(home.trust, KEY.public.id, force=True)
    with refused("unknown_key"):
        registry.resolve("echo")
    end = datetime.now(UTC) + timedelta(hours=1)
    add_key(home.trust, "acme", KEY.public, not_after=end)
    registry.resolve("echo")
    with refused("expired"):
        registry.resolve("echo", now=end)
    registry.resolve("echo")


def test_a_newer_version_of_a_revoked_key_is_no_reason_to_fall_back(registry, home):
    registry.publish(signed())
    add_key(home.trust, "acme", OTHER_KEY.public)
    registry.publish(signed(version="2.0.0", key=OTHER_KEY))
    revoke_key(home.trust, OTHER_KEY.public.id, "stolen")
    with refused("revoked"):
        registry.resolve("echo")
    assert version_of(registry, "echo", "1.0.0") == "1.0.0"


def test_a_trust_store_that_broke_trusts_nobody(registry, home):
    registry.publish(signed())
    registry.resolve("echo")
    home.trust.write_text("not toml")
    with pytest.raises(ConfigError):
        registry.resolve("echo")


def test_an_artifact_is_opened_once_however_often_it_is_resolved(registry, monkeypatch):
    registry.publish(signed())
    opened = []
    real = registry_module.open_artifact
    monkeypatch.setattr(
        registry_module, "open_artifact", lambda *args: opened.append(args) or real(*args)
    )
    first = registry.resolve("echo")
    threads = [threading.Thread(target=registry.resolve, args=("echo",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    registry.publish(signed(version="0.1.0"))  # the index changes, the artifact does not
    opened_by_resolve = len(opened) - 1
    assert registry.resolve("echo").artifact.digest == first.artifact.digest
    assert opened_by_resolve == 1


def test_the_bytes_of_a_resolved_artifact_are_not_kept_in_memory(registry):
    registry.publish(signed({"tool.wasm": bytes(4 * 1024 * 1024)}))
    contents = registry.resolve("echo").artifact._contents
    assert contents.raw == b""


def test_an_operator_binds_a_policy_to_a_tool(registry):
    registry.publish(signed(), policy="compute")
    assert registry.resolve("echo").policy == "compute"
    registry.publish(signed(version="1.1.0"))
    assert registry.resolve("echo").policy == "compute"
    registry.bind_policy("echo", None)
    assert registry.resolve("echo").policy is None
    with pytest.raises(ToolNotFound):
        registry.bind_policy("nothing", "compute")


def test_an_unknown_tool_is_not_found_and_a_bad_range_is_wrong_usage(registry):
    for name in ("echo", "", "x" * 10_000, "a\x1b"):
        with pytest.raises(ToolNotFound) as caught:
            registry.resolve(name)
        assert caught.value.message.isprintable()
        assert len(caught.value.message) < 300
    registry.publish(signed())
    with pytest.raises(ConfigError, match="not a version range"):
        registry.resolve("echo", "newest please")


def test_versions_are_listed_newest_first(registry):
    for version in ("1.0.0", "1.10.0", "1.9.0"):
        registry.publish(signed(version=version))
    registry.publish(signed(id=OTHER_ID, name="alpha"))
    listed = [(row.name, row.version) for row in registry.versions()]
    assert listed == [
        ("alpha", "1.0.0"), ("echo", "1.10.0"), ("echo", "1.9.0"), ("echo", "1.0.0"),
    ]  # fmt: skip


def test_an_index_of_another_format_is_refused(home):
    with registry_of(home):
        pass
    with sqlite3.connect(home.registry / "index.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="format 99"), registry_of(home):
        pass


def test_a_damaged_index_is_a_clear_error(home):
    home.registry.mkdir(mode=0o700)
    (home.registry / "index.sqlite").write_bytes(b"garbage " * 1000)
    with pytest.raises(ConfigError, match="damaged"), registry_of(home):
        pass


def test_a_registry_that_others_may_write_to_is_refused(home):
    home.registry.mkdir(mode=0o700)
    home.registry.chmod(0o777)
    with pytest.raises(ConfigError, match="others may write"), registry_of(home):
        pass


def test_two_homes_know_nothing_of_each_other(registry, tmp_path):
    registry.publish(signed())
    tmp_path.chmod(0o700)
    with registry_of(trusting_home(tmp_path)) as other, pytest.raises(ToolNotFound):
        other.resolve("echo")


def test_closing_twice_is_fine(home):
    with registry_of(home) as registry:
        registry.close()


def test_a_hundred_resolves_leave_nothing_open(registry):
    registry.publish(signed())
    registry.resolve("echo").artifact.read("tool.wasm")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(100):
        registry.resolve("echo").artifact.read("tool.wasm")
        with pytest.raises(ArtifactRejected):
            registry.publish(unsigned(version="8.0.0"))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_new_key_of_the_same_publisher_may_publish_the_next_version(registry, home):
    registry.publish(signed())
    key = SigningKey.generate()
    add_key(home.trust, "acme", key.public)
    registry.publish(signed(version="1.1.0", key=key))
    assert version_of(registry, "echo") == "1.1.0"
