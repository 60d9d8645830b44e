"""The audit log and its writers: killed at any moment, many at once, on a full disk."""

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from audit_logs import (
    KEY,
    append,
    capability,
    check,
    head_of,
    invocation,
    kinds,
    lines_of,
    spawn,
    write_log,
)

from toolcell.errors import ConfigError, InternalError
from toolcell.telemetry import Telemetry
from toolcell.telemetry.jsonl import JsonlSink


class Killed(BaseException):
    """Stands for the end of the process: nothing in the sink may catch it and go on."""


class KillSwitch:
    """Ends the writer at the n-th system call that changes a file: before it, or halfway."""

    CALLS = ("write", "pwrite", "rename")

    def __init__(self, monkeypatch, at, *, halfway):
        self.left = at
        self.halfway = halfway
        self.real = {name: getattr(os, name) for name in self.CALLS}
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self.wrapped(name))

    def wrapped(self, name):
        def call(*arguments):
            self.left -= 1
            if self.left == 0:
                if self.halfway and name == "write":
                    descriptor, data = arguments
                    self.real["write"](descriptor, data[: len(data) // 2])
                elif self.halfway:
                    self.real[name](*arguments)
                raise Killed
            return self.real[name](*arguments)

        return call


def all_files(log):
    return [*sorted(log.parent.glob(f"{log.name}.0*")), log]


@pytest.mark.slow
@pytest.mark.parametrize("halfway", [False, True])
def test_a_writer_killed_at_any_step_loses_nothing_that_it_had_acknowledged(
    tmp_path, monkeypatch, halfway
):
    """Through opening, appending and rotation, until a run gets through without being killed."""
    for at in range(1, 200):
        log = tmp_path / str(at) / "audit.jsonl"
        log.parent.mkdir()
        acknowledged = []
        with monkeypatch.context() as patch:
            switch = KillSwitch(patch, at, halfway=halfway)
            with contextlib.suppress(Killed):
                sink = JsonlSink(log, KEY, fsync="none", max_bytes=4096)
                for number in range(12):
                    sink.write(capability(f"notes/{number}"))
                    acknowledged.append(f"notes/{number}")
        append(log, capability("after"), max_bytes=4096)
        report = check(*all_files(log))
        assert report.whole, (at, report)
        text = b"".join(path.read_bytes() for path in all_files(log)).decode()
        assert all(text.count(f'"target":"{target}"') == 1 for target in acknowledged), at
        assert '"target":"after"' in text
        if switch.left > 0:
            assert at > 30, "the run has to get as far as a rotation"
            return
    pytest.fail("the writer never got through")


def test_a_line_torn_at_any_byte_is_sealed_and_noted_by_the_next_writer(tmp_path):
    log = write_log(tmp_path / "audit.jsonl", events=2)
    head = head_of(log).read_bytes()
    before = log.read_bytes()
    append(log, capability("the last"))
    line = log.read_bytes()[len(before) :]
    for cut in range(1, len(line) - 1, 7):
        log.write_bytes(before + line[:cut])
        head_of(log).write_bytes(head)
        unsealed = check(log)
        assert unsealed.whole, cut
        assert "unfinished line" in unsealed.notes[0]
        append(log, capability("after"))
        report = check(log)
        assert report.whole, cut
        assert f"before this line stand {cut + 1} bytes" in report.notes[0]
        assert line[:cut] in log.read_bytes(), "what was torn stays where it was"


def test_a_line_whose_writer_was_killed_before_the_newline_is_kept(tmp_path):
    log = write_log(tmp_path / "audit.jsonl", events=2)
    head = head_of(log).read_bytes()
    append(log, capability("the last"))
    log.write_bytes(log.read_bytes()[:-1])
    head_of(log).write_bytes(head)
    append(log, capability("after"))
    report = check(log)
    assert (report.whole, report.lines, report.notes) == (True, 5, [])


def test_lines_whose_writer_was_killed_before_the_head_record_are_taken_over(tmp_path):
    log = write_log(tmp_path / "audit.jsonl", events=2)
    head = head_of(log).read_bytes()
    append(log, capability("one"), capability("two"))
    head_of(log).write_bytes(head)
    assert "came after the last head record" in check(log).notes[0]
    append(log, capability("after"))
    report = check(log)
    assert (report.whole, report.lines, report.notes) == (True, 6, [])


@pytest.mark.slow
def test_a_writer_that_gets_sigkill_in_the_middle_leaves_a_log_that_goes_on(tmp_path):
    log = tmp_path / "audit.jsonl"
    code = (
        "from pathlib import Path\n"
        "from audit_logs import KEY, capability\n"
        "from toolcell.telemetry.jsonl import JsonlSink\n"
        "sink = JsonlSink(Path(sys.argv[1]), KEY, fsync='none', max_bytes=65536)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    sink.write(capability('x' * 1500))\n"
    )
    seen = 0
    for _ in range(6):
        with spawn(code, str(log)) as writer:
            assert writer.stdout.readline() == "ready\n"
            wait_for_growth(log)
            writer.send_signal(signal.SIGKILL)
        append(log, invocation(), max_bytes=65536)
        report = check(*all_files(log))
        assert report.whole, report
        assert report.last_seq > seen + 1
        seen = report.last_seq


def wait_for_growth(log):
    """Until the log has got some lines more, by the numbers of its head record."""
    first = head_of(log).read_bytes()[30:52]
    for _ in range(2_000_000):
        if int(head_of(log).read_bytes()[30:52].split()[0]) > int(first.split()[0]) + 50:
            return
    pytest.fail("the writer does not write")


@pytest.mark.slow
def test_four_threads_in_each_of_two_processes_make_one_whole_chain(tmp_path):
    log = tmp_path / "audit.jsonl"
    code = (
        "import threading\n"
        "from pathlib import Path\n"
        "from audit_logs import KEY, capability\n"
        "from toolcell.telemetry.jsonl import JsonlSink\n"
        "sink = JsonlSink(Path(sys.argv[1]), KEY, fsync='none', max_bytes=65536)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "def work(name):\n"
        "    for number in range(100):\n"
        "        sink.write(capability(f'{sys.argv[2]}-{name}-{number}'))\n"
        "threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "sink.close()\n"
    )
    writers = [spawn(code, str(log), name) for name in ("a", "b")]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert (writer.returncode, errors) == (0, "")
    files = all_files(log)
    assert len(files) > 3, "the log was to rotate under them"
    report = check(*files)
    assert (report.whole, report.notes) == (True, []), report
    text = b"".join(path.read_bytes() for path in files).decode()
    assert text.count('"event":"tool.capability"') == 800
    for writer in ("a", "b"):
        for thread in range(4):
            places = [text.index(f'"{writer}-{thread}-{number}"') for number in range(100)]
            assert places == sorted(places), "each thread's events are in its own order"


def test_a_forked_child_does_not_write_under_its_parents_lock(tmp_path):
    log = tmp_path / "audit.jsonl"
    sink = JsonlSink(log, KEY, fsync="interval")
    sink.write(capability("parent"))
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            for _ in range(50):
                sink.write(capability("child"))
            sink.close()
            code = 0
        os._exit(code)
    for _ in range(50):
        sink.write(capability("parent"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sink.close()
    report = check(log)
    assert (report.whole, report.lines, report.notes) == (True, 102, [])


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"mounting a tmpfs is not possible here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def emit_many(telemetry, count):
    for _ in range(count):
        telemetry.emit(invocation())


def test_a_full_disk_fails_the_call_and_leaves_the_log_whole(small_disk):
    log = small_disk / "audit.jsonl"
    with Telemetry([JsonlSink(log, KEY, fsync="none")]) as telemetry:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * 40_960)
        with pytest.raises(InternalError, match=r"must persist.*No space left") as info:
            emit_many(telemetry, 1_000)
        assert info.value.details["errno"] == errno.ENOSPC
        assert check(log).whole, "what did not fit was taken back"
        telemetry.emit(capability())
        assert telemetry.dropped == {"jsonl": 2}
        ballast.unlink()
        telemetry.emit(invocation())
    report = check(log)
    assert (report.whole, report.notes) == (True, [])


@pytest.mark.slow
def test_a_file_size_limit_fails_the_call_and_leaves_the_log_whole(tmp_path):
    log = tmp_path / "audit.jsonl"
    code = (
        "import resource\n"
        "from pathlib import Path\n"
        "from audit_logs import KEY, invocation\n"
        "from toolcell.errors import InternalError\n"
        "from toolcell.telemetry import Telemetry\n"
        "from toolcell.telemetry.jsonl import JsonlSink\n"
        "telemetry = Telemetry([JsonlSink(Path(sys.argv[1]), KEY, fsync='none')])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "try:\n"
        "    for _ in range(100): telemetry.emit(invocation())\n"
        "except InternalError as error:\n"
        "    print(error.details['errno'])\n"
    )
    with spawn(code, str(log)) as child:
        output, _ = child.communicate(timeout=30)
    assert output == f"{errno.EFBIG}\n"
    assert 8_000 < log.stat().st_size <= 10_000
    assert check(log).whole
    append(log, invocation())
    assert check(log).whole


def test_a_process_that_holds_the_lock_for_ever_fails_the_call_in_time(tmp_path):
    log = tmp_path / "audit.jsonl"
    telemetry = Telemetry([JsonlSink(log, KEY, fsync="none", lock_timeout_ms=20)])
    with head_of(log).open("rb") as head:
        fcntl.flock(head, fcntl.LOCK_EX)
        with pytest.raises(InternalError, match=r"another process held .* for 0\.02 s"):
            telemetry.emit(invocation())
    telemetry.emit(invocation())
    telemetry.close()
    assert check(log).whole


def test_an_interrupt_between_two_steps_does_not_break_the_chain(tmp_path, monkeypatch):
    log = tmp_path / "audit.jsonl"
    for at in range(1, 6):
        sink = JsonlSink(log, KEY, fsync="none")
        with monkeypatch.context() as patch:
            KillSwitch(patch, at, halfway=True)
            with contextlib.suppress(Killed):
                for _ in range(4):
                    sink.write(capability())
        sink.write(capability("the same sink goes on"))
        sink.close()
        assert check(log).whole, at


def test_threads_of_one_process_make_one_whole_chain(tmp_path):
    log = tmp_path / "audit.jsonl"
    sink = JsonlSink(log, KEY)
    start = threading.Barrier(4)

    def work():
        start.wait()
        for _ in range(100):
            sink.write(capability())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close()
    report = check(log)
    assert (report.whole, report.lines) == (True, 401)


def test_a_log_with_another_key_is_not_gone_on_with(tmp_path):
    log = write_log(tmp_path / "audit.jsonl")
    with pytest.raises(ConfigError, match=r"made with key .*, this one is") as info:
        JsonlSink(log, b"another key, of 32 bytes, really")
    assert "put the old key back" in info.value.remedy
    assert kinds(check(log)) == []
    assert len(lines_of(log)) == 6


def test_no_descriptor_or_thread_is_left_behind(tmp_path):
    def open_things():
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    before = open_things()
    for _ in range(20):
        write_log(tmp_path / "audit.jsonl", fsync="interval")
        with pytest.raises(ConfigError):
            JsonlSink(Path("/nowhere/audit.jsonl"), KEY)
    assert open_things() == before
