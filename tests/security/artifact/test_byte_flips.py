"""Done when 4: flipping any single byte of an artifact, or cutting it anywhere, is caught."""

import random

import pytest
from artifact_maker import KEY, TRUST, signed
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell.artifact.archive import read_archive, write_archive
from toolcell.artifact.names import SIGNATURE_NAME
from toolcell.artifact.open import open_artifact
from toolcell.errors import ArtifactRejected

SMALL = signed({"tool.wasm": b"\0asm"}, methods={"m": {"input": {}, "output": {}}})


def is_refused(raw: bytes) -> bool:
    try:
        open_artifact(raw, TRUST)
    except ArtifactRejected as error:
        return bool(error.details["reason"]) and error.message.isprintable()
    return False


def test_the_artifact_itself_is_accepted():
    assert not is_refused(SMALL)


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_every_single_flipped_byte_is_caught(mask):
    survived = []
    for index in range(len(SMALL)):
        flipped = bytearray(SMALL)
        flipped[index] ^= mask
        if not is_refused(bytes(flipped)):
            survived.append(index)
    assert survived == []


@pytest.mark.slow
def test_every_value_of_every_byte_of_the_signature_is_caught():
    """Some bytes of the envelope with all 255 others, packed so that no CRC gives it away."""
    spans = read_archive(SMALL)
    files = {n: SMALL[s.offset : s.offset + s.size] for n, s in spans.items()}
    envelope = files[SIGNATURE_NAME]
    chosen = random.Random(4).sample(range(len(envelope)), 12)
    for index in chosen:
        for value in range(256):
            if value == envelope[index]:
                continue
            changed = envelope[:index] + bytes([value]) + envelope[index + 1 :]
            assert is_refused(write_archive({**files, SIGNATURE_NAME: changed})), (index, value)


@pytest.mark.slow
def test_every_flipped_bit_of_the_signature_is_caught_without_the_crc():
    spans = read_archive(SMALL)
    files = {n: SMALL[s.offset : s.offset + s.size] for n, s in spans.items()}
    envelope = files[SIGNATURE_NAME]
    for index in range(len(envelope)):
        for bit in (0, 5, 7):
            changed = bytearray(envelope)
            changed[index] ^= 1 << bit
            raw = write_archive({**files, SIGNATURE_NAME: bytes(changed)})
            assert is_refused(raw), (index, bit)


@pytest.mark.slow
def test_every_flipped_byte_of_the_manifest_is_caught_without_the_crc():
    spans = read_archive(SMALL)
    files = {n: SMALL[s.offset : s.offset + s.size] for n, s in spans.items()}
    for index in range(len(files["manifest.json"])):
        changed = bytearray(files["manifest.json"])
        changed[index] ^= 1
        assert is_refused(write_archive({**files, "manifest.json": bytes(changed)})), index


def test_truncation_at_every_length_is_caught():
    assert [n for n in range(len(SMALL)) if not is_refused(SMALL[:n])] == []


def test_removing_or_doubling_any_byte_is_caught():
    for index in range(len(SMALL)):
        assert is_refused(SMALL[:index] + SMALL[index + 1 :])
        assert is_refused(SMALL[:index] + SMALL[index : index + 1] + SMALL[index:]) or (
            SMALL[:index] + SMALL[index : index + 1] + SMALL[index:] == SMALL
        )


@given(st.binary(max_size=2000))
def test_random_bytes_are_refused_and_nothing_else_happens(raw):
    assert is_refused(raw)


@given(st.binary(max_size=300))
def test_random_bytes_that_begin_like_an_archive_are_refused(raw):
    assert is_refused(b"PK\x03\x04\x14\0\0\0\0\0\0\0\x21\0" + raw)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_several_changes_at_once_are_refused(data):
    """Slices moved, repeated and overwritten within a real artifact."""
    raw = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw)))
        length = data.draw(st.integers(0, 40))
        target = data.draw(st.integers(0, len(raw)))
        piece = raw[start : start + length]
        if data.draw(st.booleans()):
            raw[target:target] = piece
        else:
            raw[target : target + len(piece)] = piece
    assert bytes(raw) == SMALL or is_refused(bytes(raw))


@given(st.binary(max_size=500))
def test_random_bytes_as_a_signature_are_refused(envelope):
    spans = read_archive(SMALL)
    files = {n: SMALL[s.offset : s.offset + s.size] for n, s in spans.items()}
    assert is_refused(write_archive({**files, SIGNATURE_NAME: envelope}))


def test_the_key_that_these_tests_trust_is_the_one_that_signed():
    assert open_artifact(SMALL, TRUST).key.public == KEY.public
