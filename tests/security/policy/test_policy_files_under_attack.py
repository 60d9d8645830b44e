"""Policy files that somebody else could have written, or that are made to hurt who reads them."""

import os
import threading

import pytest

from toolcell.errors import ConfigError
from toolcell.policy import files
from toolcell.policy.book import PolicyBook

DIGEST = "sha256:" + "0" * 64
PLANTED = (
    "[classes.planted]\nallow_network_egress = true\nallowed_host_apis = ['http.fetch']\n"
    "[classes.planted.capabilities.http]\ndomains = ['evil.example']\n"
)


def gained(book, manifest) -> bool:
    """Whether the planted class gives the tool its way out."""
    return book.ruling(manifest, DIGEST, "planted").envelope.grants("http.fetch")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused_by_its_mode(
    home, manifest, write_policy, monkeypatch, mode
):
    write_policy("p.toml", PLANTED).chmod(mode)
    with pytest.raises(ConfigError, match="may be written by others than its owner") as caught:
        PolicyBook(home)
    assert "chmod go-w" in caught.value.remedy
    monkeypatch.setattr(files, "_refuse_foreign", lambda *_: None)
    assert gained(PolicyBook(home), manifest)


def test_a_file_of_another_user_is_refused_by_its_owner(home, manifest, write_policy, monkeypatch):
    path = write_policy("p.toml", PLANTED)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        stranger = os.geteuid() + 1
        monkeypatch.setattr(files.os, "geteuid", lambda: stranger)
        monkeypatch.setattr(files, "policy_files", lambda folder: [path])
    with pytest.raises(ConfigError, match="belongs to another user"):
        files.read_policy_file(path, ours=True)
    monkeypatch.setattr(files, "_refuse_foreign", lambda *_: None)
    assert files.read_policy_file(path, ours=True).raw["classes"]["planted"]


def test_a_folder_that_others_may_write_is_refused_though_its_files_look_right(
    home, manifest, write_policy, monkeypatch
):
    write_policy("p.toml", PLANTED)
    home.policies.chmod(0o777)
    with pytest.raises(ConfigError, match="policies may be written by others"):
        PolicyBook(home)
    monkeypatch.setattr(files, "_refuse_foreign", lambda *_: None)
    assert gained(PolicyBook(home), manifest)


def test_a_link_in_the_home_is_refused_by_not_being_followed(home, manifest, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text(PLANTED)
    elsewhere.chmod(0o600)
    (home.policies / "p.toml").symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="it is a link"):
        PolicyBook(home)
    monkeypatch.setattr(files.os, "O_NOFOLLOW", 0)
    assert gained(PolicyBook(home), manifest)


def test_a_folder_that_is_a_link_is_refused(home, tmp_path):
    home.policies.rmdir()
    home.policies.symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder"):
        PolicyBook(home)


def test_a_named_file_that_everybody_may_write_is_refused(home, manifest, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("memory_mb = 5\n")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="may be written by everybody"):
        PolicyBook(home).ruling(manifest, DIGEST, path)
    path.chmod(0o664)  # what `umask 002` makes, where a group is one user's own
    assert PolicyBook(home).ruling(manifest, DIGEST, path).envelope.memory_mb == 5


@pytest.mark.parametrize("name", ["policy.toml", "policies/pipe.toml"])
def test_a_named_pipe_holds_nobody_up(home, manifest, name, tmp_path):
    """Opened without O_NONBLOCK, a pipe blocks until somebody writes into it."""
    place = home.policies / "pipe.toml" if "/" in name else tmp_path / name
    os.mkfifo(place, 0o600)
    refused = []

    def read() -> None:
        try:
            files.read_policy_file(place, ours="/" in name)
        except ConfigError as error:
            refused.append(error.message)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(timeout=5)
    assert not reader.is_alive(), "reading the pipe blocks"
    assert "is not a plain file" in refused[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#" * (files.MAX_FILE_BYTES + 1), "more than 262144 bytes"),
        (b"a = " + b"[" * 100_000, "nested too deeply|not TOML"),
        (b"a = " + b"{b=" * 50_000, "nested too deeply|not TOML"),
        (b"a" + b".a" * 60_000 + b" = 1", "a key of more than 32 parts"),
        (b"x = {" + b'"a\\"" . ' * 20_000 + b"a = 1}", "a key of more than 32 parts"),
        (b'x = """\n\\""" "" """\ny' + b".a" * 60_000 + b" = 'z'", "a key of more than 32 parts"),
        (
            b'x = {y = """z"""", ' + b"a." * 60_000 + b'a = 1, b = "c"}',
            "a key of more than 32 parts",
        ),
        (
            b"x = {y = '''z'''', " + b"a." * 60_000 + b"a = 1, b = 'c'}",
            "a key of more than 32 parts",
        ),
        (b"".join(b"f%d = 1\n" % number for number in range(20_000)), "and 99 more problems"),
        (b"f" * 200_000 + b" = 1", "unknown field"),
        (b"x = " + b'\\"' * 100_000, "not TOML"),
        (b"fuel = " + b"9" * 10_000, "not TOML|fuel"),
        (b"fuel = " + b"9" * 30, "`fuel` = 9"),
        (b"fuel = nan", "`fuel` = nan"),
        (b"fuel = 1\nfuel = 2", "not TOML"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b"fuel = 1\x00", "not TOML"),
    ],
)
def test_a_file_made_to_hurt_its_reader_is_refused(home, manifest, tmp_path, content, message):
    path = tmp_path / "p.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        PolicyBook(home).ruling(manifest, DIGEST, path)
    assert len(caught.value.message) < 2000


def test_too_many_files_are_refused_before_one_is_read(home):
    for number in range(files.MAX_FILES + 1):
        (home.policies / f"p{number}.toml").touch(mode=0o600)
    with pytest.raises(ConfigError, match="65 policy files; the limit is 64"):
        PolicyBook(home)


def test_authority_that_was_taken_away_is_not_kept_by_breaking_the_file(
    home, manifest, write_policy
):
    """Who can damage the file (a full disk, a killed editor) must not keep the old grant alive."""
    path = write_policy("p.toml", PLANTED)
    book = PolicyBook(home, check_every_ms=0)
    assert gained(book, manifest)
    path.write_text(PLANTED[: len(PLANTED) // 2] + "[[[")
    with pytest.raises(ConfigError, match="not TOML"):
        gained(book, manifest)
