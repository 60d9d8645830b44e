"""Every trick of the zip format against a signed artifact, and the defence that stops it."""

import io
import struct
import tracemalloc
import warnings
import zipfile

import pytest
import zip_tricks as tricks
from artifact_maker import FILES, TRUST, refused, signed

from toolcell.artifact import open as opening
from toolcell.artifact.archive import MAX_ARCHIVE_BYTES, MAX_FILE_BYTES, MAX_FILES, Span
from toolcell.artifact.open import open_artifact

STRUCTURE = {
    "with_duplicate": "duplicate_name",
    "unsorted": "name_order",
    "with_link": "link",
    "with_device": "special_file",
    "compressed": "method",
    "with_comment": "end_record",
    "with_entry_comment": "directory",
    "with_extra_field": "extra_field",
    "with_date": "date",
    "with_data_descriptor": "flags",
    "as_zip64": "version_needed",
    "prepended": "not_an_archive",
    "appended": "trailing_data",
    "second_archive": "trailing_data",
    "gap_before_directory": "directory",
    "directory_says_otherwise": "directory",
    "with_unlisted_file": "directory",
    "with_encrypted_flag": "flags",
    "overlapping": "directory",
}


@pytest.mark.parametrize(("trick", "defence"), STRUCTURE.items())
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_trick_of_the_container_is_refused(trick, defence):
    raw = getattr(tricks, trick)()
    with refused(defence):
        open_artifact(raw, TRUST)


def lenient(raw: bytes) -> dict[str, Span]:
    """What a reader does that trusts the format: the directory's word, wherever it points."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        spans = {}
        for info in archive.infolist():
            sizes = struct.unpack_from("<HH", raw, info.header_offset + 26)
            spans[info.filename] = Span(info.header_offset + 30 + sum(sizes), info.file_size)
        return spans


HARMLESS_TO_THE_SIGNATURE = [
    "unsorted",
    "with_comment",
    "with_entry_comment",
    "with_extra_field",
    "with_date",
    "with_data_descriptor",
    "as_zip64",
    "prepended",
    "appended",
    "gap_before_directory",
    "directory_says_otherwise",
    "with_unlisted_file",
    "with_encrypted_flag",
]


@pytest.mark.parametrize("trick", HARMLESS_TO_THE_SIGNATURE)
def test_without_the_strict_reader_the_trick_gets_past_the_signature(trick, monkeypatch):
    """These keep the signed files intact: only the strict reader tells that bytes were added."""
    monkeypatch.setattr(opening, "read_archive", lenient)
    assert open_artifact(getattr(tricks, trick)(), TRUST).publisher == "acme"


def test_without_the_strict_reader_a_duplicate_name_hands_out_other_bytes(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = tricks.with_duplicate()
    monkeypatch.setattr(opening, "read_archive", lenient)
    contents = opening.read_contents(raw)
    assert contents.data("tool.wasm") == b"evil"
    with refused("file_digest"):  # and then the signed digests are what is left
        open_artifact(raw, TRUST)


@pytest.mark.parametrize(
    ("name", "defence"),
    [
        ("../evil", "unsafe_name"),
        ("a/../../evil", "unsafe_name"),
        ("/etc/cron.d/evil", "unsafe_name"),
        ("a\\..\\evil", "unsafe_name"),
        ("C:evil", "unsafe_name"),
        ("evil/", "unsafe_name"),
        ("a//evil", "unsafe_name"),
        ("./evil", "unsafe_name"),
        ("evil\x1b[2J", "unsafe_name"),
        ("\u202egpj.exe", "unsafe_name"),
        ("TOOL.wasm", "case_clash"),
        ("tool.wasm/evil", "file_and_folder"),
        ("x" * 201, "name_length"),
        ("zz-not-in-the-manifest", "extra_file"),
    ],
)
def test_a_file_with_a_hostile_name_is_refused(name, defence):
    raw = tricks.with_extra_entry(name)
    if not name.isascii():  # zipfile says in the flags that the name is UTF-8
        defence = "flags"
    with refused(defence) as caught:
        open_artifact(raw, TRUST)
    assert caught.value.message.isprintable()


def test_a_bomb_is_refused_before_anything_is_unpacked():
    bomb = tricks.compressed(data=bytes(64 * 1024 * 1024))
    assert len(bomb) < 128 * 1024
    tracemalloc.start()
    with refused("method"):
        open_artifact(bomb, TRUST)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1024 * 1024


@pytest.mark.parametrize("size", [1, MAX_FILE_BYTES, MAX_FILE_BYTES + 1, 0xFFFFFFFF])
def test_a_size_that_is_promised_takes_no_memory(size):
    tracemalloc.start()
    with refused("too_large" if size > MAX_FILE_BYTES else "truncated"):
        open_artifact(tricks.claims(size), TRUST)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1024 * 1024


def test_more_files_than_the_limit_are_refused():
    raw = b"".join(tricks.local_file(b"f%05d" % n, b"") for n in range(MAX_FILES + 1))
    with refused("too_large") as caught:
        open_artifact(raw, TRUST)
    assert caught.value.details["limit"] == MAX_FILES


@pytest.mark.slow
def test_an_archive_over_the_limit_is_refused_by_its_length():
    with refused("too_large") as caught:
        open_artifact(bytes(MAX_ARCHIVE_BYTES + 1), TRUST)
    assert caught.value.details["limit"] == MAX_ARCHIVE_BYTES


def test_a_manifest_over_the_limit_is_refused_before_it_is_decoded():
    huge = b'{"schema":"' + b"x" * (1024 * 1024) + b'"}'
    raw = tricks.rewritten(
        lambda archive, files: tricks.put_all(archive, {**files, "manifest.json": huge})
    )
    with refused("too_large") as caught:
        open_artifact(raw, TRUST)
    assert caught.value.status == 413


@pytest.mark.parametrize("missing", ["manifest.json", "tool.wasm", "signature.dsse.json"])
def test_a_file_that_is_taken_out_is_missed(missing):
    def change(archive, files):
        tricks.put_all(archive, {name: files[name] for name in files if name != missing})

    defence = {"manifest.json": "manifest", "tool.wasm": "missing_file"}.get(missing, "unsigned")
    with refused(defence):
        open_artifact(tricks.rewritten(change), TRUST)


def test_a_file_that_is_exchanged_is_caught_by_its_digest():
    def change(archive, files):
        tricks.put_all(archive, {**files, "tool.wasm": b"evil"})

    with refused("file_digest"):
        open_artifact(tricks.rewritten(change), TRUST)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema":' * 1000,
        b'{"\x1b":1}',
        b'{"name":"echo","name":"echo"}',
    ],
)
def test_a_manifest_that_is_nonsense_is_refused(text):
    raw = tricks.rewritten(
        lambda archive, files: tricks.put_all(archive, {**files, "manifest.json": text})
    )
    with refused("manifest") as caught:
        open_artifact(raw, TRUST)
    assert caught.value.message.isprintable()


def test_a_manifest_in_another_spelling_is_refused():
    def change(archive, files):
        spaced = files["manifest.json"].replace(b'":', b'": ')
        tricks.put_all(archive, {**files, "manifest.json": spaced})

    with refused("manifest") as caught:
        open_artifact(tricks.rewritten(change), TRUST)
    assert "canonical" in caught.value.message


def test_the_artifact_that_the_tricks_are_played_on_is_fine():
    assert open_artifact(signed(), TRUST).read("tool.wasm") == FILES["tool.wasm"]
    same = tricks.rewritten(tricks.put_all)
    assert same == signed()  # so each test above fails for its trick and nothing else
