"""keygen, sign, verify, inspect, publish, list, yank, scope and trust, as a person types them."""

import json
import stat

import pytest
from artifact_maker import unsigned

from toolcell.cli import main


@pytest.fixture
def run(capsys):
    """Runs `toolcell` with the given words; returns exit status, standard output and error."""

    def call(*words: str) -> tuple[int, str, str]:
        try:
            main([str(word) for word in words])
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def artifact(tmp_path):
    """An unsigned artifact on disk."""
    path = tmp_path / "echo-1.0.0.tool"
    path.write_bytes(unsigned(description="Says it again.\x1b[2J"))
    return path


def words_of(text: str, title: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(title)]
    return line.removeprefix(title).split()[0]


def test_the_way_from_a_key_to_a_published_tool(run, artifact, private_home):
    status, out, _ = run("keygen", "me", "--trust")
    assert status == 0
    assert stat.S_IMODE((private_home / "keys" / "me.pem").stat().st_mode) == 0o600
    assert run("sign", artifact, "--key", "me")[0] == 0
    status, out, _ = run("verify", artifact)
    assert (status, out.splitlines()[0]) == (0, "echo 1.0.0 is valid")
    assert run("publish", artifact)[0] == 0
    status, out, _ = run("list")
    assert "echo  1.0.0    me" in out
    status, out, _ = run("inspect", "echo")
    assert "method say" in out
    assert "\x1b" not in out


def test_verify_says_why_not_and_exits_1(run, artifact):
    status, out, err = run("verify", artifact)
    assert (status, out) == (1, "")
    assert "is not signed" in err
    status, out, _ = run("verify", artifact, "--json")
    assert status == 1
    assert json.loads(out)["error"]["details"]["reason"] == "unsigned"


def test_a_key_is_chosen_where_there_is_only_one(run, artifact):
    status, _, err = run("sign", artifact)
    assert status == 2
    assert "keygen" in err
    run("keygen", "one")
    assert run("sign", artifact)[0] == 0
    run("keygen", "two")
    status, _, err = run("sign", artifact)
    assert status == 2
    assert "one, two" in err


def test_a_key_file_is_never_overwritten(run, private_home):
    run("keygen", "me")
    before = (private_home / "keys" / "me.pem").read_bytes()
    assert run("keygen", "me")[0] == 2
    assert (private_home / "keys" / "me.pem").read_bytes() == before
    for name in ("", "Me", "../me", "a/b"):
        assert run("keygen", name)[0] == 2


def test_an_encrypted_key_needs_its_passphrase(run, artifact, monkeypatch):
    monkeypatch.setenv("TOOLCELL_KEY_PASSPHRASE", "open sesame")
    assert run("keygen", "me", "--passphrase")[0] == 0
    assert run("sign", artifact)[0] == 0
    monkeypatch.setenv("TOOLCELL_KEY_PASSPHRASE", "shazam")
    assert "passphrase is wrong" in run("sign", artifact)[2]
    monkeypatch.delenv("TOOLCELL_KEY_PASSPHRASE")
    assert "nobody to ask" in run("sign", artifact)[2]


def test_a_signature_that_fails_leaves_the_artifact_as_it_was(run, artifact):
    run("keygen", "me")
    artifact.write_bytes(artifact.read_bytes()[:-1])
    before = artifact.read_bytes()
    assert run("sign", artifact)[0] == 1
    assert artifact.read_bytes() == before
    assert [path.name for path in artifact.parent.iterdir()] == [artifact.name]


def test_sign_writes_elsewhere_where_asked(run, artifact, tmp_path):
    run("keygen", "me", "--trust")
    assert run("sign", artifact, "--out", tmp_path / "signed.tool")[0] == 0
    assert run("verify", artifact)[0] == 1
    assert run("verify", tmp_path / "signed.tool")[0] == 0


def test_trust_is_given_listed_revoked_and_taken_away(run, artifact, tmp_path):
    _, out, _ = run("keygen", "me")
    public, key_id = words_of(out, "public key"), words_of(out, "key id")
    run("sign", artifact)
    assert run("trust", "add", "acme", public, "--not-after", "2099-01-01")[0] == 0
    assert run("verify", artifact)[0] == 0
    _, out, _ = run("trust", "list")
    assert f"acme  {key_id[:16]}  valid" in out
    assert run("trust", "revoke", key_id[:16], "--why", "laptop stolen")[0] == 0
    assert "laptop stolen" in run("verify", artifact)[2]
    _, out, _ = run("trust", "list", "--json")
    (listed,) = json.loads(out)
    assert (listed["state"], listed["key_id"]) == ("revoked", key_id)
    assert run("trust", "add", "acme", public)[0] == 2
    assert run("trust", "remove", key_id[:16])[0] == 2
    status, _, err = run("trust", "remove", "--force", key_id[:16])
    assert (status, "warning" in err) == (0, True)
    assert "does not know" in run("verify", artifact)[2]
    (tmp_path / "public").write_text(public)
    assert run("trust", "add", "acme", tmp_path / "public")[0] == 0
    assert run("verify", artifact)[0] == 0


def test_a_key_that_does_not_count_now_is_added_with_a_warning(run):
    keys = [words_of(run("keygen", name)[1], "public key") for name in ("one", "two", "three")]
    for public, option, warned in (
        (keys[0], ("--not-after", "2020-01-01"), "has expired already"),
        (keys[1], ("--not-before", "2099-01-01"), "does not count yet"),
        (keys[2], ("--not-after", "2099-01-01"), ""),
    ):
        status, out, err = run("trust", "add", "acme", public, *option)
        assert status == 0
        assert warned in err
        assert ("is trusted" in out) == (not warned)


def test_a_key_that_is_not_in_the_store_is_listed_as_revoked(run):
    assert run("trust", "revoke", "ab" * 32, "--why", "named in their notice")[0] == 0
    _, out, _ = run("trust", "list")
    assert "abababababababab  revoked" in out
    assert "named in their notice" in out
    (listed,) = json.loads(run("trust", "list", "--json")[1])
    assert (listed["publisher"], listed["state"]) == (None, "revoked")


@pytest.mark.parametrize("given", ["", "x" * 5000, "a/" * 300, "\0", "nothing.pem", ".", "A" * 44])
def test_what_is_no_public_key_is_a_clear_error(run, given):
    status, _, err = run("trust", "add", "acme", given)
    assert status == 2
    assert "remedy" in err
    assert len(err) < 500


def test_scopes_and_withdrawal(run, artifact):
    run("keygen", "me", "--trust")
    run("sign", artifact)
    assert run("publish", artifact, "--scope", "team")[0] == 1
    assert run("scope", "create", "team")[0] == 0
    assert run("publish", artifact, "--scope", "team", "--json")[0] == 0
    assert run("inspect", "echo")[0] == 1
    assert run("inspect", "echo@^1", "--scope", "team")[0] == 0
    assert run("scope", "rotate", "team")[0] == 0
    _, out, _ = run("scope", "list", "--json")
    assert json.loads(out)[0]["previous_key_valid"] is True
    assert run("yank", "echo", "1.0.0", "--why", "loses data")[0] == 0
    assert "loses data" in run("inspect", "echo", "--scope", "team")[2]
    assert "withdrawn: loses data" in run("list", "--scope", "team")[1]
    assert run("yank", "echo", "1.0.0", "--undo")[0] == 0
    assert run("scope", "remove", "team", "echo")[0] == 0
    assert json.loads(run("list", "--json")[1])[0]["scopes"] == []
    assert run("scope", "add", "default", "echo")[0] == 0
    assert run("inspect", "echo")[0] == 0


def test_a_policy_class_that_is_bound_must_exist(run, artifact):
    run("keygen", "me", "--trust")
    run("sign", artifact)
    status, _, err = run("publish", artifact, "--policy", "everything")
    assert status == 2
    assert "safe-default" in err
    status, _, err = run("publish", artifact, "--policy", str(artifact.parent / "own.toml"))
    assert (status, "there is no policy class" in err) == (2, True)
    assert run("publish", artifact, "--policy", "compute")[0] == 0


def test_a_binding_is_told_listed_changed_and_taken_back(run, artifact):
    run("keygen", "me", "--trust")
    run("sign", artifact)
    assert "bound" not in run("publish", artifact)[1]
    assert json.loads(run("list", "--json")[1])[0]["policy"] is None
    out = run("publish", artifact, "--policy", "compute")[1]
    assert "was published already" in out
    assert "policy class compute is bound to echo" in out
    assert "  compute  sha256:" in run("list")[1]
    assert json.loads(run("publish", artifact, "--json")[1])["policy"] == "compute"
    assert run("policy", "bind", "echo", "observer")[0] == 0
    assert json.loads(run("list", "--json")[1])[0]["policy"] == "observer"
    assert run("policy", "unbind", "echo")[0] == 0
    assert json.loads(run("list", "--json")[1])[0]["policy"] is None
    for words in (("bind", "echo", "everything"), ("bind", "nothing", "compute"), ("unbind", "x")):
        assert run("policy", *words)[0] in (1, 2)


def test_a_tool_whose_key_was_revoked_is_listed_as_such_and_still_shown(run, artifact):
    _, out, _ = run("keygen", "me", "--trust")
    run("sign", artifact)
    run("publish", artifact)
    assert run("list")[1].splitlines()[1].rstrip().endswith("sha256:" + _digest_start(run))
    run("trust", "revoke", words_of(out, "key id")[:16], "--why", "laptop stolen")
    assert run("list")[1].rstrip().endswith("key revoked")
    assert json.loads(run("list", "--json")[1])[0]["key_state"] == "revoked"
    status, out, _ = run("inspect", "echo")
    assert (status, "revoked" in out, "laptop stolen" in out) == (0, True, True)
    run("trust", "remove", "--force", json.loads(run("list", "--json")[1])[0]["key_id"])
    assert run("list")[1].rstrip().endswith("key unknown")
    assert run("inspect", "echo")[0] == 0


def _digest_start(run) -> str:
    return json.loads(run("list", "--json")[1])[0]["digest"].removeprefix("sha256:")[:12]


def test_a_second_withdrawal_without_a_reason_keeps_the_first_one(run, artifact):
    run("keygen", "me", "--trust")
    run("sign", artifact)
    run("publish", artifact)
    run("yank", "echo", "1.0.0", "--why", "loses data")
    assert "is withdrawn: loses data" in run("yank", "echo", "1.0.0")[1]
    assert "withdrawn: loses data" in run("list")[1]


@pytest.mark.parametrize("words", [("sign",), ("verify",), ("inspect",), ("publish",)])
def test_a_file_that_can_not_be_read_is_named_as_it_was_typed(run, tmp_path, words):
    run("keygen", "me", "--trust")
    status, _, err = run(*words, tmp_path / "gone.tool")
    assert status == 1
    assert f"{tmp_path}/gone.tool can't be read" in err


def test_inspect_shows_an_artifact_that_nobody_trusts(run, artifact):
    status, out, _ = run("inspect", artifact)
    assert status == 0
    assert "unsigned" in out
    status, out, _ = run("inspect", artifact, "--json")
    about = json.loads(out)
    assert about["signature"]["state"] == "unsigned"
    assert about["manifest"]["name"] == "echo"


def test_empty_places_say_what_to_do(run):
    assert "toolcell publish" in run("list")[1]
    assert "toolcell trust add" in run("trust", "list")[1]
    assert "publishing makes" in run("scope", "list")[1]


def test_words_that_are_no_text_and_values_too_deep_are_errors_and_no_traceback(run, private_home):
    for words in (
        ("run", "h\udcff", "greet"),
        ("run", "hello", "greet", "--scope", "\udcff"),
        ("run", "hello", "gr\udcffeet"),
        ("yank", "\udcff", "1.0.0"),
        ("scope", "add", "default", "\udcff"),
        ("run", "hello", "greet", "--arg", "x:=" + "[" * 3000),
        ("run", "hello", "greet", "--input", "[" * 3000, "--arg", "x=1"),
    ):
        status, _out, err = run(*words)
        assert status in {1, 2}, words
        assert "rror" in err
