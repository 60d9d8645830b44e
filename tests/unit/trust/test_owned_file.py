"""Files that only their owner may write."""

import os

import pytest

from toolcell.errors import ConfigError
from toolcell.trust import owned_file
from toolcell.trust.owned_file import WatchedFile, read_owned, replace_owned


def settle(path) -> None:
    """Makes the file look as if it had not been touched for a minute."""
    past = path.stat().st_mtime_ns - 60_000_000_000
    os.utime(path, ns=(past, past))


@pytest.fixture
def parsed(monkeypatch) -> list[bytes | None]:
    """Every content that was parsed. The change time can't be set back, so it does not count."""
    monkeypatch.setattr(owned_file, "_SETTLED_NS", -1)
    return []


def watched(path, parsed) -> WatchedFile:
    return WatchedFile(path, lambda raw: parsed.append(raw) or raw)


def test_a_missing_file_is_none(tmp_path):
    assert read_owned(tmp_path / "x.toml") is None


def test_a_replaced_file_is_mode_0600_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "x.toml"
    replace_owned(path, b"one")
    replace_owned(path, b"two")
    assert read_owned(path, secret=True) == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["x.toml"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_a_killed_writer_left_is_gone_with_the_next_change(tmp_path):
    (tmp_path / ".x.toml.new").write_bytes(b"half a sec")
    replace_owned(tmp_path / "x.toml", b"whole")
    assert [each.name for each in tmp_path.iterdir()] == ["x.toml"]


@pytest.mark.parametrize(("mode", "secret"), [(0o620, False), (0o602, False), (0o640, True)])
def test_a_file_that_is_open_to_others_is_refused(tmp_path, mode, secret):
    path = tmp_path / "x.toml"
    replace_owned(path, b"")
    path.chmod(mode)
    with pytest.raises(ConfigError, match="others may"):
        read_owned(path, secret=secret)


def test_others_may_read_what_is_not_secret(tmp_path):
    path = tmp_path / "x.toml"
    replace_owned(path, b"x")
    path.chmod(0o644)
    assert read_owned(path) == b"x"


def test_a_link_a_folder_and_a_pipe_are_refused(tmp_path):
    (tmp_path / "real").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "folder", "pipe"):
        with pytest.raises(ConfigError):
            read_owned(tmp_path / name)


def test_a_file_over_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(owned_file, "MAX_FILE_BYTES", 10)
    replace_owned(tmp_path / "x.toml", b"x" * 11)
    with pytest.raises(ConfigError, match="10 bytes, the limit"):
        read_owned(tmp_path / "x.toml")


def test_an_unchanged_file_is_parsed_once(tmp_path, parsed):
    path = tmp_path / "x.toml"
    replace_owned(path, b"one")
    file = watched(path, parsed)
    assert [file.current() for _ in range(5)] == [b"one"] * 5
    assert parsed == [b"one"]


def test_a_change_an_end_and_a_beginning_are_noticed(tmp_path, parsed):
    path = tmp_path / "x.toml"
    file = watched(path, parsed)
    assert file.current() is None
    replace_owned(path, b"one")
    assert file.current() == b"one"
    path.write_bytes(b"two and more")
    assert file.current() == b"two and more"
    path.unlink()
    assert file.current() is None


def test_a_file_that_was_changed_just_now_is_not_remembered(tmp_path):
    path = tmp_path / "x.toml"
    replace_owned(path, b"one")
    parsed: list[bytes | None] = []
    file = watched(path, parsed)
    file.current()
    file.current()
    assert len(parsed) == 2


def test_a_file_that_broke_is_not_answered_from_memory(tmp_path, parsed):
    path = tmp_path / "x.toml"
    replace_owned(path, b"one")
    file = watched(path, parsed)
    assert file.current() == b"one"
    path.chmod(0o666)
    with pytest.raises(ConfigError):
        file.current()
    path.chmod(0o600)
    assert file.current() == b"one"
