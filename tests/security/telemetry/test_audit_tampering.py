"""Attacks on the audit log by somebody who may write to it and has no key.

Each test says which defence stopped the attack. Where the chain's hash alone stops it, checking
without the key finds it too; where only the key does, the test shows the attack succeed without.
"""

import hashlib
import shutil

import pytest
from audit_logs import (
    KEY,
    OTHER_KEY,
    append,
    capability,
    check,
    check_all,
    head_of,
    kinds,
    lines_of,
    write_log,
)

from toolcell.errors import ConfigError
from toolcell.telemetry.chain import ChainKey, Head, parse_line, seal_line
from toolcell.telemetry.jsonl import JsonlSink
from toolcell.telemetry.verify import Anchor, verify


@pytest.fixture
def log(tmp_path):
    return write_log(tmp_path / "audit.jsonl", events=5)


@pytest.fixture
def short_log(tmp_path):
    """Three lines, for what is done to every byte."""
    return write_log(tmp_path / "audit.jsonl", events=2)


def put(path, data):
    """Writes over the file in place: truncating it to nothing each time would wait for the disk."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def rewrite(log, lines):
    put(log, b"".join(lines))


def test_the_log_is_whole_before_anybody_touches_it(log):
    report = check(log)
    assert (report.whole, report.authenticated, report.lines) == (True, True, 6)
    assert (report.first_seq, report.last_seq, report.notes) == (1, 6, [])


@pytest.mark.slow
def test_every_flipped_bit_of_every_byte_is_caught_with_and_without_the_key(short_log):
    log = short_log
    whole = log.read_bytes()
    starts = [0]
    for line in lines_of(log):
        starts.append(starts[-1] + len(line))
    mac_at = len(b"0" * 32 + b'"}\n')
    for offset in range(len(whole)):
        number = next(n for n, start in enumerate(starts[1:], 1) if offset < start)
        for bit in (0, offset % 7 + 1):
            changed = bytearray(whole)
            changed[offset] ^= 1 << bit
            put(log, changed)
            report = check(log)
            assert not report.whole, (offset, bit)
            assert report.problems[0].line == number, (offset, bit, report.problems)
            in_mac = starts[number] - mac_at <= offset < starts[number] - len(b'"}\n')
            still_hex = changed[offset] in b"0123456789abcdef"
            assert check(log, key=None).whole == (in_mac and still_hex), (offset, bit)


@pytest.mark.slow
def test_every_byte_changed_to_white_space_or_a_newline_is_caught(short_log):
    log = short_log
    whole = log.read_bytes()
    for offset in range(len(whole)):
        for byte in b" \n\t\0":
            if whole[offset] == byte:
                continue
            put(log, whole[:offset] + bytes([byte]) + whole[offset + 1 :])
            assert not check(log, key=None).whole, (offset, byte)


@pytest.mark.slow
def test_a_byte_put_in_or_taken_out_anywhere_is_caught(short_log):
    log = short_log
    whole = log.read_bytes()
    for offset in range(len(whole) + 1):
        for byte in b" \n":
            put(log, whole[:offset] + bytes([byte]) + whole[offset:])
            assert not check(log, key=None).whole, (offset, byte)
    for offset in range(len(whole)):
        put(log, whole[:offset] + whole[offset + 1 :])
        assert not check(log, key=None).whole, offset


def test_each_dropped_line_is_missed_by_the_numbers(log):
    lines = lines_of(log)
    for index in range(1, len(lines) - 1):
        rewrite(log, lines[:index] + lines[index + 1 :])
        report = check(log, key=None)
        assert kinds(report) == ["missing"], index
        assert report.problems[0].line == index + 1
        assert f"line {index + 1} should come before it" in report.problems[0].message


def test_a_dropped_first_line_is_missed_by_the_opening_line(log):
    rewrite(log, lines_of(log)[1:])
    assert kinds(check(log, key=None)) == ["no-start"]


def test_each_doubled_line_is_caught_by_the_numbers(log):
    lines = lines_of(log)
    for index in range(len(lines)):
        rewrite(log, [*lines[: index + 1], *lines[index:]])
        report = check(log, key=None)
        assert kinds(report)[0] == "repeated", index
        assert report.problems[0].line == index + 2


def test_each_pair_of_swapped_lines_is_caught_and_called_reordered(log):
    lines = lines_of(log)
    for first in range(1, len(lines)):
        for second in range(first + 1, len(lines)):
            swapped = list(lines)
            swapped[first], swapped[second] = swapped[second], swapped[first]
            rewrite(log, swapped)
            report = check(log, key=None)
            assert kinds(report)[0] == "reordered", (first, second)
            assert report.problems[0].line == first + 1


def test_each_line_replayed_further_down_is_caught(log):
    lines = lines_of(log)
    for index in range(len(lines)):
        rewrite(log, [*lines, lines[index]])
        assert not check(log, key=None).whole, index


@pytest.mark.slow
def test_a_cut_at_any_byte_of_the_end_is_missed_by_the_head_record(short_log):
    log = short_log
    whole = log.read_bytes()
    head = head_of(log).read_bytes()
    for size in range(len(whole)):
        put(log, whole[:size])
        report = check(log, key=None)
        assert kinds(report)[-1] == "cut", size
        assert "written and" in report.problems[-1].message
    # With the defence off, a cut between two lines goes unnoticed.
    put(log, whole)
    lines = lines_of(log)
    shorter = len(whole) - len(lines[-1])
    put(log, whole[:shorter])
    last = parse_line(lines[-2][:-1])
    head_of(log).write_bytes(Head(1, last.seq, shorter, False, last.hash).seal(ChainKey(KEY)))
    assert check(log).whole
    head_of(log).write_bytes(head)
    assert kinds(check(log)) == ["cut"]


def test_a_cut_with_a_head_record_made_to_fit_is_stopped_by_the_key(log):
    lines = lines_of(log)
    rewrite(log, lines[:-1])
    last = parse_line(lines[-2][:-1])
    size = log.stat().st_size
    forged = Head(1, last.seq, size, False, last.hash).seal(ChainKey(OTHER_KEY))
    head_of(log).write_bytes(forged)
    assert kinds(check(log)) == ["no-head"]
    assert check(log, key=None).whole, "without the key there is nothing to tell it by"


def test_the_mac_of_a_line_does_not_pass_for_that_of_a_head_record(log):
    lines = lines_of(log)
    rewrite(log, lines[:-1])
    last = parse_line(lines[-2][:-1])
    record = Head(1, last.seq, log.stat().st_size, False, last.hash).seal(ChainKey(OTHER_KEY))
    head_of(log).write_bytes(record[:-33] + last.mac + b"\n")
    assert kinds(check(log)) == ["no-head"]


def test_every_flipped_byte_of_the_head_record_is_caught(log):
    whole = head_of(log).read_bytes()
    for offset in range(len(whole)):
        changed = bytearray(whole)
        changed[offset] ^= 1
        head_of(log).write_bytes(changed)
        assert not check(log).whole, offset


def test_a_cut_with_the_head_record_removed_is_reported(log):
    rewrite(log, lines_of(log)[:-1])
    head_of(log).unlink()
    report = check(log)
    assert kinds(report) == ["no-head"]
    assert "not missed" in report.problems[0].meaning


def test_a_line_made_without_the_key_is_stopped_by_the_mac(log):
    lines = lines_of(log)
    last = parse_line(lines[-1][:-1])
    event = b'{"event":"tool.capability","name":"kv.get"}'
    forged, _ = seal_line(last.seq + 1, last.hash, event, ChainKey(OTHER_KEY))
    rewrite(log, [*lines, forged])
    report = check(log)
    assert (kinds(report), report.problems[0].line) == (["forged"], len(lines) + 1)
    assert check(log, key=None).whole, "the hashes are right: only the MAC stops it"
    loose, _ = seal_line(last.seq + 1, last.hash, b'{"event": "x"}', ChainKey(OTHER_KEY))
    rewrite(log, [*lines, loose])
    assert kinds(check(log)) == ["malformed"], "JSON, but not as toolcell spells it"


def test_a_log_rewritten_from_a_line_on_with_all_hashes_made_anew_is_stopped_by_the_mac(log):
    key = ChainKey(OTHER_KEY)
    lines = lines_of(log)[:2]
    prev = parse_line(lines[-1][:-1]).hash
    for seq in range(3, 7):
        line, prev = seal_line(seq, prev, b'{"event":"tool.capability","name":"ok"}', key)
        lines.append(line)
    rewrite(log, lines)
    head_of(log).write_bytes(Head(1, 6, log.stat().st_size, False, prev).seal(key))
    assert kinds(check(log))[0] == "forged"
    assert check(log).problems[0].line == 3
    assert check(log, key=None).whole, "without the key there is nothing to tell it by"


def test_a_changed_line_with_its_own_hash_made_anew_breaks_the_chain(log):
    lines = lines_of(log)
    start = lines[2].replace(b"notes/1", b"notes/9").split(b',"hash":')[0]
    digest = hashlib.sha256(start).hexdigest().encode()
    lines[2] = start + b',"hash":"' + digest + lines[2][-(len(b'","mac":""}\n') + 32) :]
    rewrite(log, lines)
    assert kinds(check(log))[0] == "forged"
    without = check(log, key=None)
    assert (kinds(without), without.problems[0].line) == (["replaced"], 4)


def test_lines_of_another_log_with_the_same_key_do_not_fit_in(log, tmp_path):
    ours = lines_of(log)
    others = lines_of(write_log(tmp_path / "other.jsonl", events=5))
    for index in range(len(ours)):
        rewrite(log, [*ours[:index], others[index], *ours[index + 1 :]])
        report = check(log)
        assert kinds(report)[0] == "replaced", index
        assert report.problems[0].line in (index + 1, index + 2)


def test_a_log_and_head_record_put_back_together_are_found_by_an_anchor_only(log, tmp_path):
    for path in (log, head_of(log)):
        shutil.copy(path, tmp_path / f"saved-{path.name}")
    append(log, capability("later"))
    kept = check(log)
    anchor = Anchor(kept.last_seq, kept.last_hash)
    assert verify([log], KEY, anchor=anchor).whole
    for path in (log, head_of(log)):
        shutil.copy(tmp_path / f"saved-{path.name}", path)
    assert check(log).whole, "the known limit: a rollback needs a witness outside"
    assert kinds(verify([log], KEY, anchor=anchor)) == ["anchor"]


@pytest.fixture
def long_log(tmp_path):
    """A log of three full files and an active one."""
    log = write_log(tmp_path / "audit.jsonl", events=40, max_bytes=8192)
    assert len(list(tmp_path.glob("audit.jsonl.0*"))) == 3
    assert check_all(log).whole
    return log


def test_an_active_file_that_is_removed_is_missed_by_the_head_record(long_log):
    long_log.unlink()
    report = check_all(long_log)
    assert kinds(report) == ["cut"]
    assert "written and" in report.problems[0].message


def test_an_active_file_that_is_removed_with_its_head_record_is_missed(long_log):
    long_log.unlink()
    head_of(long_log).unlink()
    assert kinds(check_all(long_log)) == ["no-head"]
    append(long_log, capability(), max_bytes=8192)
    assert kinds(check_all(long_log)) == ["unproved"]


def test_a_full_file_does_not_pass_for_the_active_one(long_log):
    shutil.copy(long_log.with_name("audit.jsonl.000001"), long_log)
    assert kinds(check(long_log)) == ["cut"]
    assert not check_all(long_log).whole


def test_full_files_that_change_places_are_caught(long_log):
    one, two = (long_log.with_name(f"audit.jsonl.00000{number}") for number in (1, 2))
    contents = one.read_bytes(), two.read_bytes()
    two.write_bytes(contents[0])
    one.write_bytes(contents[1])
    assert not check_all(long_log).whole


def test_each_file_of_a_long_log_that_is_emptied_is_caught(long_log):
    for number in (2, 3):
        file = long_log.with_name(f"audit.jsonl.{number:06d}")
        contents = file.read_bytes()
        file.write_bytes(b"")
        assert kinds(check_all(long_log)) == ["missing"], number
        file.write_bytes(contents)
    long_log.write_bytes(b"")
    assert kinds(check_all(long_log)) == ["cut"]


# --- the same attacks, with a writer that comes afterwards --------------------------------------


def test_a_writer_does_not_go_on_in_silence_after_a_cut(log):
    rewrite(log, lines_of(log)[:-2])
    append(log, capability("after"))
    report = check(log)
    assert kinds(report) == ["missing", "lost"]
    assert "lines 5 to 6 should come before it" in report.problems[0].message


def test_a_writer_does_not_go_on_in_silence_after_a_cut_in_the_middle_of_a_line(log):
    put(log, log.read_bytes()[:-40])
    append(log, capability("after"))
    report = check(log)
    assert not report.whole
    assert report.problems[0].line == 6
    assert "lost" in kinds(report)


def test_a_writer_does_not_go_on_in_silence_without_the_head_record(log):
    rewrite(log, lines_of(log)[:-1])
    head_of(log).unlink()
    append(log, capability("after"))
    assert kinds(check(log)) == ["unproved"]


def test_a_writer_does_not_go_on_in_silence_with_a_forged_head_record(log):
    lines = lines_of(log)
    rewrite(log, lines[:-1])
    last = parse_line(lines[-2][:-1])
    size = log.stat().st_size
    head_of(log).write_bytes(Head(1, last.seq, size, False, last.hash).seal(ChainKey(OTHER_KEY)))
    append(log, capability("after"))
    assert kinds(check(log)) == ["unproved"]


def test_a_writer_does_not_take_over_a_line_that_was_made_without_the_key(log):
    lines = lines_of(log)
    last = parse_line(lines[-1][:-1])
    forged, _ = seal_line(last.seq + 1, last.hash, b'{"event":"tool.x","a":1}', ChainKey(OTHER_KEY))
    rewrite(log, [*lines, forged])
    append(log, capability("after"))
    report = check(log)
    assert kinds(report) == ["forged"]
    assert report.problems[0].line == 7
    assert report.last_seq == 8, "the chain goes on from the last line that is genuine"


def test_a_writer_does_not_take_foreign_text_for_a_torn_line(log):
    for text in (b"hello\n", b"\n", b"x", b'{"seq":9,"prev":"', b"\0" * 300_000):
        path = log.with_name("copy.jsonl")
        shutil.copy(log, path)
        shutil.copy(head_of(log), head_of(path))
        path.write_bytes(path.read_bytes() + text)
        assert not check(path).whole, text[:20]
        append(path, capability("after"))
        assert not check(path).whole, text[:20]


def test_what_a_recovery_line_seals_can_not_be_changed_or_removed_either(log):
    whole = log.read_bytes()
    last = parse_line(lines_of(log)[-1][:-1])
    torn = b'{"seq":7,"prev":"' + last.hash.encode()[:20]
    put(log, whole + torn)
    append(log, capability("after"))
    assert check(log).whole
    sealed = log.read_bytes()
    for offset in range(len(whole), len(whole) + len(torn) + 1):
        changed = bytearray(sealed)
        changed[offset] ^= 1
        put(log, changed)
        assert not check(log, key=None).whole, offset
    put(log, whole + sealed[len(whole) + len(torn) + 1 :])
    assert kinds(check(log, key=None)) == ["altered"]


def test_a_running_writer_notices_that_the_log_was_put_back(log, tmp_path):
    for path in (log, head_of(log)):
        shutil.copy(path, tmp_path / f"saved-{path.name}")
    sink = JsonlSink(log, KEY, fsync="none")
    sink.write(capability("secretly removed"))
    for path in (log, head_of(log)):
        path.write_bytes((tmp_path / f"saved-{path.name}").read_bytes())
    sink.write(capability("after"))
    sink.close()
    report = check(log)
    assert kinds(report) == ["missing", "lost"]


def test_a_link_in_place_of_the_log_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "audit.jsonl").symlink_to(victim)
    with pytest.raises(ConfigError, match="can't be opened"):
        append(tmp_path / "audit.jsonl", capability())
    assert victim.read_text() == "precious"


def test_a_log_that_others_may_write_to_is_refused(log):
    log.chmod(0o622)
    with pytest.raises(ConfigError, match="others may write to it"):
        append(log, capability())
