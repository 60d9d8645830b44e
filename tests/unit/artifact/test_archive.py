"""The container: one byte sequence for what is in it, readable by every zip tool."""

import io
import zipfile

import pytest
from artifact_maker import refused
from hypothesis import given
from hypothesis import strategies as st

from toolcell.artifact import archive
from toolcell.artifact.archive import read_archive, write_archive

FILES = {
    "manifest.json": b"{}",
    "bin/run": b"#!/bin/sh\n",
    "lib/a/b.py": b"",
    "tool.wasm": b"x" * 99,
}


def contents(raw: bytes) -> dict[str, bytes]:
    return {
        name: raw[span.offset : span.offset + span.size] for name, span in read_archive(raw).items()
    }


def test_what_was_written_is_read_back():
    assert contents(write_archive(FILES)) == FILES


def test_order_of_arguments_does_not_change_a_byte():
    backwards = dict(reversed(FILES.items()))
    assert write_archive(backwards) == write_archive(FILES)


def test_other_zip_readers_agree_on_names_data_and_modes():
    with zipfile.ZipFile(io.BytesIO(write_archive(FILES))) as other:
        assert other.testzip() is None
        assert other.namelist() == sorted(FILES)
        assert {name: other.read(name) for name in FILES} == FILES
        modes = {info.filename: info.external_attr >> 16 for info in other.infolist()}
        dates = {info.date_time for info in other.infolist()}
    assert modes["bin/run"] == 0o100755
    assert modes["tool.wasm"] == 0o100644
    assert dates == {(1980, 1, 1, 0, 0, 0)}


NAMES = [f"{folder}{stem}.x" for folder in ("", "a/", "a/b/") for stem in ("m", "n", "o-1+2")]


@given(st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=200), min_size=1))
def test_any_files_survive_the_way_there_and_back(files):
    assert contents(write_archive(files)) == files


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../up", "a/../b", "a//b", "./a", "a/", ".hidden", "a\\b", "C:x", "ä", "a b",
     "", "a\0b", "a\n", "a/.", "dir./x", "x" * 201],
)  # fmt: skip
def test_the_writer_refuses_a_name_that_the_reader_would(name):
    with refused("name_length" if len(name) > 200 else "unsafe_name"):
        write_archive({name: b""})


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["lib/A.py", "lib/a.py"], "case_clash"),
        (["Lib/a.py", "lib/b.py"], "case_clash"),
        (["a", "a/b"], "file_and_folder"),
        (["A", "a/b"], "case_clash"),
    ],
)
def test_names_that_meet_on_some_file_system_are_refused(names, reason):
    with refused(reason):
        write_archive(dict.fromkeys(names, b""))


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_ARCHIVE_BYTES", 300), ("MAX_FILES", 3), ("MAX_FILE_BYTES", 98)]
)
def test_each_limit_holds_for_writer_and_reader(monkeypatch, limit, value):
    raw = write_archive(FILES)
    monkeypatch.setattr(archive, limit, value)
    for attempt in (lambda: write_archive(FILES), lambda: read_archive(raw)):
        with refused("too_large") as caught:
            attempt()
        assert caught.value.status == 413
        assert caught.value.details["limit"] == value
        assert caught.value.details["value"] > value
