"""Somebody writes into the registry behind our back: index, blobs, membership."""

import shutil
import sqlite3

import pytest
from artifact_maker import KEY, OTHER_ID, OTHER_KEY, refused, registry_of, signed

from toolcell.errors import ArtifactRejected, ConfigError, PolicyDenied, ToolNotFound
from toolcell.registry.membership import Scopes


@pytest.fixture
def raw_index(home, registry):
    """A way to change the index as somebody with an SQLite shell would."""
    connection = sqlite3.connect(home.registry / "index.sqlite", isolation_level=None)
    yield connection.execute
    connection.close()


def blob_file(home, registry, version="1.0.0"):
    (row,) = [row for row in registry.versions("echo") if row.version == version]
    return home.registry / "blobs" / "sha256" / row.blob[:2] / row.blob


@pytest.fixture
def published(registry):
    """echo 1.0.0 in the default scope, resolved once, so that it is remembered."""
    registry.publish(signed())
    registry.resolve("echo")
    return registry


def test_a_membership_that_was_written_by_hand_does_not_count(published, raw_index):
    published.scopes.create("team")
    raw_index("INSERT INTO membership SELECT 'team', name, tool_id, mac, added_at FROM membership")
    with pytest.raises(PolicyDenied, match="not made with a key of that scope") as caught:
        published.resolve("echo", scope="team")
    assert caught.value.details["reason"] == "membership"
    assert published.scopes.listing()[1].tampered == ("echo",)


def test_without_the_keyed_hash_that_entry_would_count(published, raw_index, monkeypatch):
    published.scopes.create("team")
    raw_index("INSERT INTO membership SELECT 'team', name, tool_id, mac, added_at FROM membership")
    monkeypatch.setattr(Scopes, "require_member", lambda *_: None)
    assert published.resolve("echo", scope="team").scope == "team"


@pytest.mark.parametrize(
    "change",
    [
        "mac = zeroblob(32)",
        "mac = x''",
        "mac = substr(mac, 1, 31)",
        "mac = CAST(substr(mac, 1, 31) || x'00' AS BLOB)",
        f"tool_id = '{OTHER_ID}'",
    ],
)
def test_an_entry_that_was_changed_stops_the_very_next_resolve(published, raw_index, change):
    raw_index(f"UPDATE membership SET {change}")
    with pytest.raises(PolicyDenied):
        published.resolve("echo")


def test_an_entry_of_another_tool_can_not_be_moved(published, raw_index):
    published.scopes.create("team")
    published.publish(signed(id=OTHER_ID, name="admin"), scope="team")
    raw_index("UPDATE membership SET scope = 'default' WHERE name = 'admin'")
    with pytest.raises(PolicyDenied):
        published.resolve("admin")


def test_a_rotation_does_not_make_a_forged_entry_count(published, raw_index):
    raw_index("UPDATE membership SET mac = zeroblob(32)")
    published.scopes.rotate("default")
    with pytest.raises(PolicyDenied):
        published.resolve("echo")


def test_an_entry_made_with_a_key_that_has_ended_does_not_count(published, raw_index):
    (mac,) = raw_index("SELECT mac FROM membership").fetchone()
    published.scopes.rotate("default")
    published.scopes.rotate("default")
    raw_index("UPDATE membership SET mac = ?", (mac,))
    with pytest.raises(PolicyDenied):
        published.resolve("echo")


def test_an_entry_is_checked_on_every_resolve_remembered_or_not(published, monkeypatch):
    checked = []
    real = Scopes.require_member
    monkeypatch.setattr(
        Scopes, "require_member", lambda *args: checked.append(args[1].name) or real(*args)
    )
    for _ in range(3):
        checked.clear()
        published.resolve("echo")
        assert checked


@pytest.mark.parametrize("spoil", ["flip", "cut", "remove"])
def test_a_copy_that_is_not_what_was_published_is_named_and_healed(registry, home, spoil):
    archive = signed()
    registry.publish(archive)
    path = blob_file(home, registry)
    match spoil:
        case "flip":
            path.write_bytes(bytes([*archive[:-1], archive[-1] ^ 1]))
        case "cut":
            path.write_bytes(archive[:-1])
        case "remove":
            path.unlink()
    for ask in (registry.resolve, registry.look):
        with pytest.raises(ArtifactRejected, match=r"copy of echo 1\.0\.0 is") as caught:
            ask("echo")
        assert "publish the same artifact again" in caught.value.remedy
        assert str(home.root) not in caught.value.message
    registry.publish(archive)
    assert registry.resolve("echo").artifact.digest == registry.look("echo").digest


def test_a_copy_that_is_damaged_after_it_was_resolved_says_whose_it_is(registry, home):
    registry.publish(signed())
    artifact = registry.resolve("echo").artifact
    path = blob_file(home, registry)
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(
        ArtifactRejected, match=r"^echo 1\.0\.0: `tool\.wasm` was altered"
    ) as caught:
        artifact.read("tool.wasm")
    assert "publish" in caught.value.remedy


def test_another_artifact_under_the_same_row_is_refused(published, raw_index):
    published.publish(signed(id=OTHER_ID, name="other"))
    raw_index(
        "UPDATE version SET blob = (SELECT blob FROM version WHERE name = 'other') "
        "WHERE name = 'echo'"
    )
    with refused("index_mismatch"):
        published.resolve("echo")


def test_an_older_version_under_the_name_of_a_newer_one_is_refused(published, raw_index):
    """A rollback: the old, signed, vulnerable artifact shown as the new version."""
    published.publish(signed(version="2.0.0"))
    raw_index(
        "UPDATE version SET (blob, digest) = (SELECT blob, digest FROM version "
        "WHERE version = '1.0.0') WHERE version = '2.0.0'"
    )
    with refused("index_mismatch"):
        published.resolve("echo")


def test_a_row_for_a_version_that_nobody_published_is_refused(published, raw_index):
    raw_index("UPDATE version SET version = '9.9.9'")
    with refused("index_mismatch"):
        published.resolve("echo")


@pytest.mark.parametrize("version", ["9.9", "newest", "", "1.0.0; DROP TABLE tool"])
def test_a_version_that_is_none_is_a_clear_error(published, raw_index, version):
    raw_index("UPDATE version SET version = ?", (version,))
    with pytest.raises(ConfigError, match="is not a version"):
        published.resolve("echo")


def test_a_blob_name_can_not_lead_out_of_the_registry(published, raw_index, home):
    outside = home.root / "outside.tool"
    outside.write_bytes(signed({"tool.wasm": b"evil"}, key=OTHER_KEY))
    raw_index("UPDATE version SET blob = ?", ("../../../../outside.tool",))
    with pytest.raises(ArtifactRejected):
        published.resolve("echo")


def test_a_blob_that_was_altered_is_refused_when_it_is_opened(home):
    with registry_of(home) as registry:
        registry.publish(signed())
        path = blob_file(home, registry)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"no component")] ^= 1
    path.write_bytes(raw)
    with registry_of(home) as registry, refused("crc"):
        registry.resolve("echo")


def test_a_blob_that_was_altered_after_it_was_verified_hands_out_nothing(published, home):
    artifact = published.resolve("echo").artifact
    path = blob_file(home, published)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"no component", b"NO component"))
    with refused("file_digest"):
        artifact.read("tool.wasm")
    with refused("file_digest"):
        published.resolve("echo").artifact.read("tool.wasm")


def test_a_blob_by_an_untrusted_publisher_in_the_place_of_a_good_one_is_refused(home):
    with registry_of(home) as registry:
        registry.publish(signed())
        blob_file(home, registry).write_bytes(signed(key=OTHER_KEY))
    with registry_of(home) as registry, refused("unknown_key"):
        registry.resolve("echo")


def test_a_blob_that_is_a_link_is_not_followed(home, tmp_path):
    with registry_of(home) as registry:
        registry.publish(signed())
        path = blob_file(home, registry)
    shutil.move(path, tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with registry_of(home) as registry, refused("not_a_file"):
        registry.resolve("echo")


def test_a_blob_that_is_gone_is_a_clear_error(published, home):
    blob_file(home, published).unlink()
    with registry_of(home) as fresh, refused("not_a_file"):
        fresh.resolve("echo")
    published.publish(signed())  # the remedy: publish it again
    with registry_of(home) as fresh:
        assert fresh.resolve("echo").artifact.key.public == KEY.public


@pytest.mark.parametrize(
    "name", ["' OR 1=1 --", 'echo"; DROP TABLE version; --', "%", "ec_o", "\0", "echo\0"]
)
def test_names_are_values_not_sql(published, name):
    for call in (
        lambda: published.resolve(name),
        lambda: published.resolve("echo", scope=name),
        lambda: published.scopes.add("default", name),
        lambda: published.yank(name, "1.0.0", "x"),
        lambda: published.yank("echo", name, "x"),
    ):
        with pytest.raises(ToolNotFound):
            call()
    assert published.resolve("echo").artifact.manifest.version == "1.0.0"
