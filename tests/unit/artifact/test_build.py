"""Building, signing and opening artifacts."""

import stat
from datetime import UTC, datetime

import pytest
from artifact_maker import (
    FILES,
    KEY,
    OTHER_KEY,
    TRUST,
    manifest_fields,
    refused,
    signed,
    unsigned,
)

from toolcell.artifact.build import artifact_file_name, build_artifact, sign_artifact
from toolcell.artifact.open import open_artifact, read_contents
from toolcell.lane import Artifact
from toolcell.trust.store import TrustedKey, TrustStore


def test_two_builds_give_the_same_bytes():
    assert unsigned() == unsigned()
    assert signed() == signed()


def test_an_opened_artifact_meets_the_lane_contract():
    opened: Artifact = open_artifact(signed(), TRUST)
    assert opened.manifest.name == "echo"
    assert opened.publisher == "acme"
    assert opened.digest.startswith("sha256:")
    assert len(opened.digest) == len("sha256:") + 64
    assert opened.read("tool.wasm") == FILES["tool.wasm"]
    assert artifact_file_name(opened.manifest) == "echo-1.0.0.tool"


def test_the_digest_does_not_depend_on_who_signed():
    assert read_contents(signed()).digest == read_contents(signed(key=OTHER_KEY)).digest


def test_signing_again_replaces_the_signature():
    once = signed(key=OTHER_KEY)
    with refused("unknown_key"):
        open_artifact(once, TRUST)
    again = sign_artifact(once, KEY)
    assert again == signed()
    assert open_artifact(again, TRUST).publisher == "acme"


def test_an_artifact_is_read_from_a_path_too(tmp_path):
    path = tmp_path / "echo-1.0.0.tool"
    path.write_bytes(signed())
    assert open_artifact(path, TRUST).read("tool.wasm") == FILES["tool.wasm"]


def test_a_copy_kept_on_disk_is_checked_each_time_it_is_read(tmp_path):
    path = tmp_path / "blob"
    raw = signed()
    path.write_bytes(raw)
    kept = open_artifact(path, TRUST).kept_at(path)
    assert kept.read("tool.wasm") == FILES["tool.wasm"]
    path.write_bytes(raw.replace(b"but a file", b"bUt a file"))
    with refused("file_digest"):
        kept.read("tool.wasm")
    path.unlink()
    with refused("file_gone"):
        kept.read("tool.wasm")


def test_only_files_of_the_manifest_are_read_again(tmp_path):
    path = tmp_path / "blob"
    path.write_bytes(signed())
    kept = open_artifact(path, TRUST).kept_at(path)
    for name in ("manifest.json", "signature.dsse.json", "nothing"):
        with refused("no_such_file"):
            kept.read(name)


def test_a_key_that_was_renamed_in_the_trust_store_counts_under_its_new_name():
    opened = open_artifact(signed(), TRUST)
    assert opened.under(TRUST) is opened
    moved = TrustStore([TrustedKey(publisher="acme-inc", public=KEY.public)])
    assert opened.under(moved).publisher == "acme-inc"
    with refused("unknown_key"):
        opened.under(TrustStore())


@pytest.mark.parametrize("name", ["manifest.json", "signature.dsse.json"])
def test_reserved_names_can_not_be_built_in(name):
    with refused("reserved_name"):
        build_artifact(manifest_fields(), {**FILES, name: b"{}"})


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1.0"},
        {"version": "01.0.0"},
        {"version": "1.0.0-rc.1"},
        {"version": "1.0.0-rc01"},
        {"version": "1.0.0\n"},
        {"name": "Echo"},
        {"id": "me"},
        {"entry_point": "missing.wasm"},
        {"capabilities": ["kv.steal"]},
        {"capabilities": ["kv.get", "kv.get"]},
        {"methods": {}},
        {"unknown_field": 1},
        {"limits": {"memory_mb": 0}},
        {"lane": "trusted-local"},
    ],
)
def test_a_manifest_that_would_be_refused_is_not_built(changes):
    with refused("manifest"):
        unsigned(**changes)


def test_a_message_about_a_manifest_is_short_and_printable():
    evil = "\x1b[2J" + "x" * 100_000
    with refused("manifest") as caught:
        unsigned(**{evil: 1})
    assert len(caught.value.message) < 300
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("make", ["missing", "link", "folder", "pipe"])
def test_only_a_plain_file_is_opened(tmp_path, make):
    path = tmp_path / "x.tool"
    real = tmp_path / "real.tool"
    real.write_bytes(signed())
    {
        "missing": lambda: None,
        "link": lambda: path.symlink_to(real),
        "folder": path.mkdir,
        "pipe": lambda: __import__("os").mkfifo(path, 0o600 | stat.S_IFIFO),
    }[make]()
    with refused("not_a_file") as caught:
        open_artifact(path, TRUST)
    assert caught.value.status == (404 if make == "missing" else 400)
    assert str(tmp_path) not in caught.value.message


def test_a_file_over_the_limit_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.tool"
    with path.open("wb") as file:
        file.truncate(257 * 1024 * 1024)  # sparse: takes no disk, and must take no memory
    with refused("too_large"):
        open_artifact(path, TRUST)


def test_the_time_of_the_check_can_be_given():
    limited = TrustStore(
        [
            TrustedKey(
                publisher="acme",
                public=KEY.public,
                not_before=datetime(2026, 1, 1, tzinfo=UTC),
                not_after=datetime(2027, 1, 1, tzinfo=UTC),
            )
        ]
    )
    assert open_artifact(signed(), limited, datetime(2026, 1, 1, tzinfo=UTC))
    with refused("not_yet_valid"):
        open_artifact(signed(), limited, datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC))
    with refused("expired"):
        open_artifact(signed(), limited, datetime(2027, 1, 1, tzinfo=UTC))
