"""Scopes: named sets of tools with keys of their own."""

import stat
import threading

import pytest
from artifact_maker import OTHER_ID, registry_of, signed

from toolcell.errors import ConfigError, ToolNotFound
from toolcell.registry.membership import put_member


def test_publishing_puts_a_tool_into_the_default_scope_only(registry):
    registry.publish(signed())
    registry.scopes.create("team")
    with pytest.raises(ToolNotFound, match="not in scope 'team'"):
        registry.resolve("echo", scope="team")
    registry.scopes.add("team", "echo")
    assert registry.resolve("echo", scope="team").scope == "team"


def test_publishing_into_a_scope_that_is_named(registry):
    registry.scopes.create("team")
    registry.publish(signed(), scope="team")
    registry.resolve("echo", scope="team")
    with pytest.raises(ToolNotFound):
        registry.resolve("echo")


def test_a_scope_must_be_made_first(registry):
    with pytest.raises(ToolNotFound, match="no scope 'team'"):
        registry.publish(signed(), scope="team")
    assert registry.versions() == []


def test_a_tool_that_was_removed_from_a_scope_is_not_found_there(registry):
    registry.scopes.create("team")
    registry.publish(signed())
    registry.scopes.add("team", "echo")
    registry.resolve("echo", scope="team")
    registry.scopes.remove("team", "echo")
    with pytest.raises(ToolNotFound):
        registry.resolve("echo", scope="team")
    registry.resolve("echo")
    with pytest.raises(ToolNotFound, match="is not in scope"):
        registry.scopes.remove("team", "echo")


@pytest.mark.parametrize("name", ["", "Team", "a b", "a_b", "-a", "a-", "a" * 65, "a\n", "a.b"])
def test_a_scope_with_a_bad_name_is_refused(registry, name):
    with pytest.raises(ConfigError, match="not a name for a scope"):
        registry.scopes.create(name)


def test_a_scope_is_made_once(registry):
    registry.scopes.create("team")
    with pytest.raises(ConfigError, match="exists"):
        registry.scopes.create("team")


def test_only_a_published_tool_can_be_added(registry):
    with pytest.raises(ToolNotFound, match="no tool `echo`"):
        registry.scopes.add("default", "echo")


def test_entries_outlive_rotation_after_rotation(registry, home):
    registry.publish(signed())
    before = home.scopes.read_text()
    for _ in range(3):
        registry.scopes.rotate("default")
        registry.resolve("echo")
    (listed,) = registry.scopes.listing()
    assert listed.previous_key_valid
    assert listed.rotated_at is not None
    assert home.scopes.read_text() != before
    registry.scopes.rotate("default", drop_previous=True)
    registry.resolve("echo")
    assert not registry.scopes.listing()[0].previous_key_valid


def test_two_keys_are_valid_at_once(registry, home):
    """An entry made under the old key, by a process that does not know the new one yet."""
    registry.publish(signed())
    old_keys = registry.scopes.keys("default")
    registry.scopes.rotate("default")
    with registry._index.change() as change:
        put_member(change, old_keys, "default", registry.versions()[0].tool_id, "echo")
    registry.resolve("echo")
    registry.scopes.rotate("default")  # made again under the new key, so it outlives this too
    registry.scopes.rotate("default")
    registry.resolve("echo")


def test_rotations_at_the_same_time_lose_no_entry(registry, home):
    registry.publish(signed())
    with registry_of(home) as other:
        threads = [
            threading.Thread(target=each.scopes.rotate, args=("default",))
            for each in (registry, other) * 6
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert other.resolve("echo")
    assert registry.resolve("echo")


def test_the_file_of_scope_keys_is_secret(registry, home):
    registry.publish(signed())
    assert stat.S_IMODE(home.scopes.stat().st_mode) == 0o600
    home.scopes.chmod(0o640)
    with pytest.raises(ConfigError, match="others may read"):
        registry.resolve("echo")


def test_keys_show_in_no_representation(registry, home):
    registry.publish(signed())
    keys = registry.scopes.keys("default")
    assert keys._current.hex() not in repr(keys)
    assert "current" not in repr(keys)


@pytest.mark.parametrize(
    "text",
    ["x", "[scopes.default]", '[scopes.default]\ncurrent = "AAAA"',
     '[scopes.default]\ncurrent = "%"',
     '[scopes.Default]\ncurrent = "' + "A" * 43 + '="', "[other]"],
)  # fmt: skip
def test_scope_keys_that_are_wrong_in_any_part_are_refused(home, text):
    home.scopes.write_text(text)
    home.scopes.chmod(0o600)
    with registry_of(home) as registry, pytest.raises(ConfigError, match="scope keys"):
        registry.resolve("echo")


def test_scopes_are_listed_with_their_tools(registry):
    registry.publish(signed())
    registry.scopes.create("team")
    registry.publish(signed(id=OTHER_ID, name="alpha"), scope="team")
    listed = {each.name: each.tools for each in registry.scopes.listing()}
    assert listed == {"default": ("echo",), "team": ("alpha",)}
