"""What an operator takes back counts for the next call, also in a runtime that has long been up.

Each change is made by another registry or store than the runtime's own, as another process does.
"""

import pytest
from artifact_maker import KEY, OTHER_ID, registry_of, signed, trusting_home

from toolcell.errors import ConfigError
from toolcell.fake_lane import FakeLane
from toolcell.runtime import Runtime
from toolcell.trust.edit import add_key, remove_key, revoke_key
from toolcell.trust.keys import SigningKey

RENEWED = SigningKey.generate()


class ReadingLane(FakeLane):
    """Reads the program, as a real lane does."""

    def prepare(self, artifact):
        artifact.read("tool.wasm")
        return super().prepare(artifact)


@pytest.fixture
def home(private_home):
    made = trusting_home(private_home)
    with registry_of(made) as registry:
        registry.publish(signed())
    return made


@pytest.fixture
def runtime(home):
    lane = ReadingLane({("echo", "say"): lambda value, _: value["text"]})
    with Runtime(home.root, lanes={"wasi": lane}) as made:
        assert say(made).ok
        yield made


def say(runtime, **options):
    return runtime.invoke("echo", "say", {"text": "x"}, **options)


def test_a_withdrawn_version_is_not_called_again(home, runtime):
    with registry_of(home) as registry:
        registry.yank("echo", "1.0.0", "it leaks")
        assert say(runtime).error.message == "echo 1.0.0 was withdrawn: it leaks"
        registry.unyank("echo", "1.0.0")
        assert say(runtime).ok


def test_a_tool_that_was_taken_out_of_the_scope_is_not_called_again(home, runtime):
    with registry_of(home) as registry:
        registry.scopes.remove("default", "echo")
    assert say(runtime).status == 404


def test_an_entry_under_a_key_that_has_ended_is_not_called_again(home, runtime):
    home.scopes.unlink()
    with registry_of(home) as registry:
        registry.scopes.for_publishing("default")
    assert say(runtime).error.details["reason"] == "membership"


def test_what_a_revoked_key_signed_is_not_called_again(home, runtime):
    revoke_key(home.trust, KEY.public.id, "laptop stolen")
    assert say(runtime).error.details["reason"] == "revoked"
    remove_key(home.trust, KEY.public.id, force=True)
    assert say(runtime).error.details["reason"] == "unknown_key"


def test_a_policy_that_was_bound_anew_counts_for_the_next_call(home, runtime):
    before = say(runtime).policy_digest
    with registry_of(home) as registry:
        registry.bind_policy("echo", "compute")
    assert say(runtime).policy_digest != before


def test_a_policy_file_that_somebody_wrote_into_the_index_is_not_taken(home, runtime, tmp_path):
    """A class that is bound there is one of the operator's; a file could be anybody's."""
    evil = tmp_path / "evil.toml"
    evil.write_text("memory_mb = 4096\n")
    assert say(runtime, policy=evil).ok, "the file would do, were it taken"
    with registry_of(home) as registry, registry._index.change() as change:
        change._connection.execute("UPDATE tool SET policy = ?", (str(evil),))
    assert "not the name of a policy class" in say(runtime).error.message


@pytest.mark.parametrize("policy", ["./evil.toml", "evil.toml", "compute#x", "Compute", "a\n", ""])
def test_only_a_class_can_be_bound(home, policy):
    with registry_of(home) as registry:
        with pytest.raises(ConfigError, match="can't be bound"):
            registry.bind_policy("echo", policy)
        with pytest.raises(ConfigError, match="can't be bound"):
            registry.publish(signed(version="1.1.0"), policy=policy)


def test_a_trust_store_that_others_may_write_stops_every_call(home, runtime):
    home.trust.chmod(0o666)
    assert "others may change it" in say(runtime).error.message


def test_a_renewed_signature_takes_the_place_of_one_whose_file_is_gone(home):
    """The verified copy on disk is swept once the new one is published; so nothing may hold on to
    it. A refused call had been enough to remember it.
    """
    lane = ReadingLane({("echo", "say"): lambda value, _: value["text"]})
    with Runtime(home.root, lanes={"wasi": lane}) as runtime:
        assert say(runtime, policy="no-such-class").status == 400
        add_key(home.trust, "acme", RENEWED.public)
        with registry_of(home) as registry:
            registry.publish(signed(key=RENEWED))
            registry.sweep()
        assert say(runtime).ok
        revoke_key(home.trust, KEY.public.id, "renewed")
        assert say(runtime).ok
        revoke_key(home.trust, RENEWED.public.id, "lost too")
        assert say(runtime).error.details["reason"] == "revoked"


def test_a_file_is_verified_on_every_call_and_its_bytes_are_not_held(home, runtime, tmp_path):
    file = tmp_path / "echo.tool"
    file.write_bytes(signed(version="3.0.0"))
    assert runtime.invoke(file, "say", {"text": "x"}).ok
    assert {len(tool.artifact._contents.raw) for tool in runtime._planner._tools.values()} == {0}
    raw = bytearray(file.read_bytes())
    raw[raw.index(b"no component")] ^= 1
    file.write_bytes(raw)
    assert runtime.invoke(file, "say", {"text": "x"}).status == 400
    file.write_bytes(signed(version="3.0.0", key=RENEWED))
    assert runtime.invoke(file, "say", {"text": "x"}).error.details["reason"] == "unknown_key"
    file.unlink()
    assert runtime.invoke(file, "say", {"text": "x"}).status == 404


@pytest.mark.parametrize("name", ["\udcff", "e\x00cho", "\x1b[2J", "x" * 100_000, ""])
@pytest.mark.parametrize("field", ["tool", "scope", "version"])
def test_a_name_that_is_no_name_is_the_callers_error(runtime, field, name):
    options = {"scope": "default", "version": "", field: name}
    result = runtime.invoke(options.pop("tool", "echo"), "say", {"text": "x"}, **options)
    assert result.ok or result.status in {400, 404}
    assert result.ok == (field == "version" and name == "")


def test_another_tool_of_the_same_publisher_does_not_come_in_by_the_index(home, runtime):
    with registry_of(home) as registry:
        registry.publish(signed(id=OTHER_ID, name="other"))
        with registry._index.change() as change:
            other = change.version("other", "1.0.0")
            change._connection.execute(
                "UPDATE version SET blob = ?, digest = ? WHERE name = 'echo'",
                (other.blob, other.digest),
            )
    assert say(runtime).error.details["reason"] == "index_mismatch"
