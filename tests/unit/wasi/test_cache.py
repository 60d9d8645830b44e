"""The compiled cache: only what was written here, unchanged, comes out again."""

import os
import threading

import pytest

from toolcell.errors import ConfigError
from toolcell_wasi.aot.cache import HEADER_BYTES, CompiledCache
from toolcell_wasi.aot.sealed import SealedFile

CODE = bytes(range(256)) * 4
MIB = 1024 * 1024


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def cache(folder, warnings):
    return CompiledCache(folder, 10 * MIB, lambda kind, message: warnings.append((kind, message)))


def keep(cache, name="0" * 64, code=CODE):
    with SealedFile.of("test", code) as sealed:
        cache.store(name, sealed)
    return cache._path(name)


def take(cache, name="0" * 64):
    found = cache.load(name)
    if found is None:
        return None
    with found:
        return found.read(MIB)


def test_what_was_stored_is_loaded(cache, warnings):
    keep(cache)
    assert take(cache) == CODE
    assert take(cache, "1" * 64) is None
    assert warnings == []


def test_another_process_with_the_same_key_believes_it(cache, folder):
    keep(cache)
    assert take(CompiledCache(folder, MIB, None)) == CODE


def test_no_flipped_byte_goes_unseen(cache, warnings):
    path = keep(cache)
    good = path.read_bytes()
    for at in (*range(HEADER_BYTES + 8), len(good) // 2, len(good) - 1):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert take(cache) is None, f"byte {at}"
        assert not path.exists()
        assert warnings.pop()[0] == "wasi.cache.rejected"


def test_an_entry_under_another_name_is_refused(cache, warnings):
    path = keep(cache)
    path.rename(cache._path("1" * 64))
    assert take(cache, "1" * 64) is None
    assert "MAC" in warnings[0][1]


def test_the_defence_is_the_mac(cache, monkeypatch):
    """With the comparison switched off, the swapped entry is handed out."""
    keep(cache).rename(cache._path("1" * 64))
    monkeypatch.setattr("toolcell_wasi.aot.cache.hmac.compare_digest", lambda *_: True)
    assert take(cache, "1" * 64) == CODE


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1])
def test_a_truncated_entry_is_refused(cache, size):
    path = keep(cache)
    os.truncate(path, size)
    assert take(cache) is None
    assert not path.exists()


def test_a_link_is_not_followed(cache, tmp_path):
    path = keep(cache)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert take(cache) is None
    assert elsewhere.exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_plain_file_is_neither_waited_for_nor_believed(cache, warnings, make):
    make(cache._path("0" * 64))
    assert take(cache) is None
    assert "not a plain file" in warnings[0][1]


def test_a_key_that_others_can_read_stops_the_cache(cache, folder):
    (folder / "aot.key").chmod(0o644)
    with pytest.raises(ConfigError, match=r"aot\.key"):
        CompiledCache(folder, MIB, None)


def test_entries_of_another_key_are_refused(cache, folder):
    keep(cache)
    (folder / "aot.key").unlink()
    assert take(CompiledCache(folder, MIB, None)) is None


def test_a_loaded_entry_can_not_be_changed_any_more(cache):
    keep(cache)
    with cache.load("0" * 64) as sealed, pytest.raises(PermissionError):
        os.pwrite(sealed.fd, b"x", 0)


def test_the_oldest_entries_go_where_the_folder_is_full(folder):
    small = CompiledCache(folder, 3 * (len(CODE) + HEADER_BYTES), None)
    for at in range(5):
        os.utime(keep(small, f"{at}" * 64), (at, at))
    assert [take(small, f"{at}" * 64) is not None for at in range(5)] == [False] * 2 + [True] * 3


def test_a_cache_of_no_size_keeps_nothing(folder):
    small = CompiledCache(folder, 0, None)
    assert not keep(small).exists()


def test_what_a_crash_left_behind_is_cleared_away(cache, folder):
    left = folder / ".half-written"
    left.write_bytes(b"x")
    os.utime(left, (0, 0))
    keep(cache)
    assert not left.exists()


def test_an_entry_that_can_not_be_written_costs_a_warning_only(cache, folder, warnings):
    (folder / f"{'0' * 64}.aot").mkdir()
    keep(cache)
    assert warnings[-1][0] == "wasi.cache.not_written"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_writers_at_the_same_time_leave_a_whole_entry(cache, warnings):
    threads = [threading.Thread(target=keep, args=(cache,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert take(cache) in (None, CODE)
    assert take(cache) == CODE
    assert warnings == []


def test_the_name_depends_on_component_and_engine(cache):
    names = {cache.name_of(wasm, engine) for wasm in (b"a", b"b") for engine in ("x", "y")}
    assert len(names) == 4
