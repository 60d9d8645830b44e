"""The JSONL sink: files, rotation, sync policy and limits."""

import os
import stat
import threading

import msgspec
import pytest
from audit_logs import (
    KEY,
    append,
    capability,
    check,
    check_all,
    head_of,
    invocation,
    lines_of,
    write_log,
)

from toolcell.errors import ConfigError
from toolcell.telemetry.chain import MAX_LINE_BYTES
from toolcell.telemetry.jsonl import JsonlSink
from toolcell.telemetry.verify import verify


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.jsonl"


def full_files(path):
    return sorted(path.parent.glob(f"{path.name}.0*"))


def test_each_line_is_the_event_in_json(path):
    event = invocation()
    append(path, event)
    line = msgspec.json.decode(lines_of(path)[1])
    sealed = {key: line.pop(key) for key in ("seq", "prev", "hash", "mac")}
    assert line == msgspec.json.decode(msgspec.json.encode(event))
    assert sealed["seq"] == 2
    assert sealed["prev"] == msgspec.json.decode(lines_of(path)[0])["hash"]


def test_only_the_owner_may_read_and_write_the_files(path):
    umask = os.umask(0)
    try:
        write_log(path)
    finally:
        os.umask(umask)
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


def test_an_event_is_in_the_file_when_write_returns(path):
    sink = JsonlSink(path, KEY, fsync="none")
    sink.write(capability("now"))
    assert b'"target":"now"' in path.read_bytes()
    sink.close()


def test_full_files_are_closed_and_the_chain_goes_on_in_the_next(path):
    write_log(path, events=40, max_bytes=8192)
    files = [*full_files(path), path]
    assert [file.name for file in files][:2] == ["audit.jsonl.000001", "audit.jsonl.000002"]
    assert all(file.stat().st_size <= 8192 + 1024 for file in files), "and its closing line"
    report = check(*files)
    assert (report.whole, report.notes, report.files) == (True, [], len(files))
    for number, file in enumerate(files, 1):
        opening = msgspec.json.decode(lines_of(file)[0])
        assert opening["event"] == "audit.log.opened"
        assert opening["previous"] == (f"audit.jsonl.{number - 1:06d}" if number > 1 else "")
    assert all(b'"event":"audit.log.closed"' in lines_of(file)[-1] for file in files[:-1])


def test_files_given_in_any_order_are_checked_in_theirs(path):
    write_log(path, events=40, max_bytes=8192)
    assert check(path, *reversed(full_files(path))).whole


def test_a_full_file_is_whole_by_itself_and_says_where_it_begins(path):
    write_log(path, events=40, max_bytes=8192)
    report = check(full_files(path)[1])
    assert report.whole
    assert "what came before is in audit.jsonl.000001" in report.notes[0]


def test_a_full_file_that_is_missing_between_two_is_noticed(path):
    write_log(path, events=60, max_bytes=8192)
    files = full_files(path)
    report = check(files[0], files[2], path)
    assert report.problems[0].kind == "missing"


def test_a_full_file_that_lost_its_end_is_noticed_by_itself(path):
    write_log(path, events=40, max_bytes=8192)
    file = full_files(path)[0]
    file.write_bytes(b"".join(lines_of(file)[:-1]))
    assert [problem.kind for problem in check(file).problems] == ["no-head"]


def test_a_file_that_is_in_the_way_of_rotation_is_not_overwritten(path):
    write_log(path, events=1)
    (path.parent / "audit.jsonl.000001").write_text("precious")
    append(path, *[capability()] * 40, max_bytes=8192)
    assert (path.parent / "audit.jsonl.000001").read_text() == "precious"
    assert check(path).lines == 42


def test_max_bytes_0_means_one_file(path):
    write_log(path, events=100, max_bytes=0)
    assert full_files(path) == []


def test_a_tiny_max_bytes_is_refused(path):
    with pytest.raises(ConfigError, match="max_bytes of the audit log is 100, the least is 4096"):
        JsonlSink(path, KEY, max_bytes=100)


def test_an_event_that_is_too_large_for_a_line_is_refused(path):
    sink = JsonlSink(path, KEY, fsync="none")
    with pytest.raises(ValueError, match=r"the event has 7\d{4} bytes, the limit is 6\d{4}"):
        sink.write(capability("x" * 70_000))
    sink.write(capability("x" * (MAX_LINE_BYTES - 800)))
    sink.close()
    assert check(path).whole


@pytest.mark.parametrize("moved", [True, False])
def test_a_log_that_is_moved_or_removed_while_it_is_written_is_begun_anew(path, moved):
    sink = JsonlSink(path, KEY, fsync="none")
    sink.write(capability("before"))
    elsewhere = path.with_name("rotated-by-logrotate.jsonl")
    path.rename(elsewhere)
    if not moved:
        elsewhere.unlink()
    sink._look_at = 0.0  # the names are looked at once a second
    sink.write(capability("after"))
    sink.close()
    assert b'"target":"after"' in path.read_bytes()
    assert [problem.kind for problem in check(path).problems] == ["lost"]
    if moved:
        report = check(elsewhere, path)
        assert report.whole
        assert "moved away" in report.notes[0]


def test_the_head_record_is_made_again_and_its_loss_told(path):
    sink = JsonlSink(path, KEY, fsync="none")
    sink.write(capability("before"))
    head_of(path).unlink()
    sink._look_at = 0.0
    sink.write(capability("after"))
    sink.close()
    assert [problem.kind for problem in check(path).problems] == ["unproved"]


def test_a_head_record_lost_between_two_files_is_rebuilt_from_the_full_one(path):
    write_log(path, events=40, max_bytes=8192)
    path.unlink()
    head_of(path).unlink()
    append(path, capability("after"), max_bytes=8192)
    report = check(*full_files(path), path)
    assert [problem.kind for problem in report.problems] == ["unproved"]


def test_a_head_record_that_somebody_made_longer_is_told_of_once(path):
    write_log(path, events=1)
    with head_of(path).open("ab") as head:
        head.write(b"more")
    append(path, capability(), capability())
    append(path, capability())
    assert [problem.kind for problem in check(path).problems] == ["unproved"]


def test_a_writer_follows_when_another_one_begins_anew_after_a_move(path):
    one, two = (JsonlSink(path, KEY, fsync="none") for _ in range(2))
    one.write(capability())
    two.write(capability())
    elsewhere = path.with_name("moved.jsonl")
    path.rename(elsewhere)
    moved = elsewhere.read_bytes()
    one._look_at = 0.0
    one.write(capability("one"))
    two.write(capability("two"))
    one.close()
    two.close()
    assert elsewhere.read_bytes() == moved
    report = check(elsewhere, path)
    assert (report.whole, report.lines) == (True, 7)


def test_a_crash_while_a_loss_is_told_of_does_not_hide_the_loss(path, monkeypatch):
    write_log(path, events=3)
    path.unlink()
    real = os.write

    def halfway(descriptor, data):
        real(descriptor, data[: data.index(b"\n") + 1])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", halfway)
        with pytest.raises(KeyboardInterrupt):
            JsonlSink(path, KEY, fsync="none")
    append(path, capability())
    assert not check(path).whole


def test_two_sinks_in_one_process_take_turns(path):
    one, two = (JsonlSink(path, KEY, fsync="none", max_bytes=8192) for _ in range(2))
    for _ in range(20):
        one.write(capability())
        two.write(capability())
    one.close()
    two.close()
    report = check(*full_files(path), path)
    assert (report.whole, report.notes) == (True, [])


def counted_syncs(monkeypatch):
    synced = threading.Semaphore(0)
    real = os.fdatasync

    def fdatasync(descriptor):
        real(descriptor)
        synced.release()

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return synced


def test_always_syncs_before_write_returns(path, monkeypatch):
    sink = JsonlSink(path, KEY, fsync="always")
    synced = counted_syncs(monkeypatch)
    sink.write(capability())
    assert synced.acquire(blocking=False)
    sink.close()


def test_interval_syncs_log_and_head_in_the_background(path, monkeypatch):
    sink = JsonlSink(path, KEY, fsync="interval", fsync_interval_ms=1)
    synced = counted_syncs(monkeypatch)
    sink.write(capability())
    assert synced.acquire(timeout=5)
    assert synced.acquire(timeout=5)
    sink.close()


def test_none_never_syncs(path, monkeypatch):
    synced = counted_syncs(monkeypatch)
    sink = JsonlSink(path, KEY, fsync="none")
    sink.write(capability())
    sink.flush()
    sink.close()
    assert not synced.acquire(blocking=False)


def test_flush_syncs_now(path, monkeypatch):
    sink = JsonlSink(path, KEY, fsync="interval", fsync_interval_ms=3_600_000)
    sink.write(capability())
    synced = counted_syncs(monkeypatch)
    sink.flush()
    assert synced.acquire(blocking=False)
    sink.close()


def write_until_refused(sink):
    for _ in range(100_000):
        sink.write(capability())


def test_a_failed_background_sync_fails_a_later_write(path, monkeypatch):
    sink = JsonlSink(path, KEY, fsync="interval", fsync_interval_ms=1)

    def broken(descriptor):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(OSError, match="Input/output error"):
            write_until_refused(sink)
    sink.write(capability())
    sink.close()


def test_a_closed_sink_takes_nothing(path):
    sink = JsonlSink(path, KEY)
    sink.close()
    sink.close()
    with pytest.raises(ValueError, match="closed"):
        sink.write(capability())


def test_a_folder_that_is_not_there_is_a_configuration_error(path):
    with pytest.raises(ConfigError, match="can't be opened: No such file") as info:
        JsonlSink(path.parent / "missing" / "audit.jsonl", KEY)
    assert "name a folder" in info.value.remedy


def test_a_log_that_can_not_be_read_is_a_configuration_error(path):
    with pytest.raises(ConfigError, match=r"audit\.jsonl can't be read"):
        verify([path], KEY)


def test_checking_while_a_writer_is_at_work_sees_a_whole_log(path):
    sink = JsonlSink(path, KEY, fsync="none", max_bytes=8192)
    done = threading.Event()

    def work():
        for _ in range(300):
            sink.write(capability())
        done.set()

    writer = threading.Thread(target=work)
    writer.start()
    reports = [check_all(path)]
    while not done.is_set():
        reports.append(check_all(path))
    writer.join()
    sink.close()
    assert [report.problems for report in reports if not report.whole] == []
