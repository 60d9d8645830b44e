"""The format of a line and of the head record."""

import json

import pytest
from audit_logs import CONTEXT, KEY, OTHER_KEY
from event_reference import all_events

from toolcell.events import AuditClosed
from toolcell.telemetry.chain import (
    GENESIS,
    HEAD_BYTES,
    LINE_OVERHEAD_BYTES,
    ChainKey,
    Head,
    parse_line,
    seal_line,
)

EVENT = b'{"event":"tool.x","a":1}'


def test_a_sealed_line_is_json_and_parses_back():
    line, digest = seal_line(7, GENESIS, EVENT, ChainKey(KEY))
    shown = json.loads(line)
    assert list(shown) == ["seq", "prev", "event", "a", "hash", "mac"]
    parsed = parse_line(line[:-1])
    assert (parsed.seq, parsed.prev, parsed.event, parsed.hash) == (7, GENESIS, EVENT, digest)
    assert parsed.fault(ChainKey(KEY)) == ""


def test_another_key_does_not_verify():
    line, _ = seal_line(7, GENESIS, EVENT, ChainKey(KEY))
    assert parse_line(line[:-1]).fault(ChainKey(OTHER_KEY)) == "forged"
    assert parse_line(line[:-1]).fault(None) == ""


def test_the_overhead_is_not_more_than_it_says():
    line, _ = seal_line(10**18, GENESIS, EVENT, ChainKey(KEY))
    assert len(line) <= len(EVENT) + LINE_OVERHEAD_BYTES


def test_the_head_record_has_a_fixed_size_and_parses_back():
    key = ChainKey(KEY)
    for head in (Head(), Head(99_999_999, 10**19, 10**19, True, "ab" * 32)):
        record = head.seal(key)
        assert len(record) == HEAD_BYTES
        assert Head.parse(record, key) == head
        assert Head.parse(record, ChainKey(OTHER_KEY)) is None


def test_a_line_mac_is_no_head_mac():
    key = ChainKey(KEY)
    assert key.line_mac(b"x") != key.head_mac(b"x")


def test_the_key_id_tells_keys_apart():
    assert ChainKey(KEY).id != ChainKey(OTHER_KEY).id
    assert len(ChainKey(KEY).id) == 16


def test_a_short_key_is_refused():
    with pytest.raises(ValueError, match="at least 16 bytes, this one 3"):
        ChainKey(b"abc")


def test_no_event_has_a_field_of_the_chain():
    for kind in all_events():
        fields = set(kind.__struct_fields__)
        assert not fields & {"seq", "prev", "hash", "mac", "event"}, kind


def test_the_logs_own_events_carry_the_mark_that_the_verifier_looks_for():
    assert AuditClosed.of(CONTEXT, next="x").__struct_config__.tag.startswith("audit.log.")
    for kind in all_events():
        tag = kind.__struct_config__.tag
        assert tag.startswith("audit.log.") == kind.__name__.startswith("Audit"), kind
