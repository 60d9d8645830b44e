"""Pictures that attack the decoder, and what is left to a decoder that was taken over."""

import os
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_runs import Run, close_runs, envelope, rule_of
from pictures import claiming, picture, png_bomb, png_chunk

from toolcell.broker import BrokerServices
from toolcell.broker.images import capability, header, process, worker
from toolcell.errors import CallCancelled, CapabilityFault
from toolcell.policy.envelope import CapabilityPolicy

pytestmark = pytest.mark.slow

BOX = {"width": 8, "height": 8, "format": "png"}


@pytest.fixture
def services() -> Iterator[BrokerServices]:
    made = BrokerServices(image_workers=1)
    yield made
    close_runs()
    made.close()


def resize(services: BrokerServices, data: bytes, timeout_ms: int = 5000) -> Run:
    run = Run(envelope(images=CapabilityPolicy(timeout_ms=timeout_ms, max_bytes=2**30)), services)
    run.call("images.resize", data=data, **BOX)
    return run


def refused(services: BrokerServices, data: bytes, timeout_ms: int = 5000) -> tuple[int, str]:
    run = Run(envelope(images=CapabilityPolicy(timeout_ms=timeout_ms, max_bytes=2**30)), services)
    fault = run.refused("images.resize", data=data, **BOX)
    return fault.status, rule_of(fault)


def outcome(run: Run, data: bytes) -> int:
    """The status of a resize, served or refused."""
    try:
        run.call("images.resize", data=data, **BOX)
    except CapabilityFault as fault:
        return fault.status
    return 200


# --- hostile pictures ---


def test_bomb_is_refused_by_its_header_before_a_decoder_starts(
    services: BrokerServices, fake_interpreter: "FakeInterpreter"
) -> None:
    fake_interpreter.runs("exit 0")

    assert refused(services, claiming("png", 60_000, 60_000)) == (413, "pixels")
    assert not fake_interpreter.was_started()


def test_bomb_is_stopped_by_the_memory_limit_where_the_header_is_not_checked(
    services: BrokerServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = png_bomb(6000, 6000)
    assert len(data) < 200_000, "144 MB of pixels in a small file"
    resize(services, data)

    monkeypatch.setattr(process, "MEMORY_BYTES", 250 * 2**20)

    assert refused(services, data) == (413, "memory")


def test_second_header_with_another_size_is_not_believed(services: BrokerServices) -> None:
    small, large = [
        png_chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
        for side in (10, 60_000)
    ]
    pixels = png_chunk(b"IDAT", zlib.compress(bytes(31 * 10)))
    data = b"\x89PNG\r\n\x1a\n" + small + large + pixels + png_chunk(b"IEND", b"")

    assert refused(services, data) == (400, "picture")


@pytest.mark.parametrize("kind", [b"zTXt", b"iTXt", b"iCCP"])
def test_compressed_metadata_is_no_bomb_either(services: BrokerServices, kind: bytes) -> None:
    packed = zlib.compress(bytes(200 * 2**20), 9)
    text = b"k\0\0" + packed if kind != b"iTXt" else b"k\0\1\0\0\0" + packed
    whole = picture((10, 10))
    data = whole[:33] + png_chunk(kind, text) + whole[33:]
    assert len(data) < 300_000

    assert outcome(Run(envelope(), services), data) in {200, 400, 413}


def test_pictures_with_flipped_bytes_are_served_or_refused(services: BrokerServices) -> None:
    import random

    rng = random.Random(7)
    run = Run(envelope(images=CapabilityPolicy(max_requests=100)), services)
    statuses = set()
    for form in ("png", "jpeg", "webp", "gif"):
        whole = picture((40, 40), form)
        for _ in range(6):
            data = bytearray(whole)
            for _ in range(5):
                data[rng.randrange(20, len(data))] = rng.randrange(256)
            statuses.add(outcome(run, bytes(data)))

    assert statuses <= {200, 400, 413}


# --- a decoder in the attacker's hands ---

HARNESS = """
import ctypes, importlib.util, mmap, os, resource, signal, socket, sys
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
parent = os.getppid()
if sys.argv[2] == "confined":
    worker.confine(parent, 1, 512 * 2**20)
exec(sys.argv[3])
os.write(1, b"done")
os._exit(0)
"""

KILLED = "ended by seccomp"
DENIED = "denied by seccomp"
LIMITED = "stopped by a limit"

ATTACKS = {
    "open a file": ('os.open("/etc/passwd", os.O_RDONLY)', DENIED),
    "look for a file": ('os.stat("/etc/passwd")', DENIED),
    "make a file": ('os.open("/tmp/toolcell-probe", os.O_WRONLY | os.O_CREAT)', DENIED),
    "list a folder": ('os.listdir("/")', DENIED),
    "remove a file": ('os.rmdir("/nonexistent")', KILLED),
    "open a socket": ("socket.socket()", KILLED),
    "start a process": ("os.fork() or os._exit(0)", KILLED),
    "become another program": ('os.execv("/bin/echo", ["echo", "-n", "done"])', KILLED),
    "signal the host": ("os.kill(parent, 0)", KILLED),
    "read the host's memory": (
        "ctypes.CDLL(None).process_vm_readv(parent, None, 0, None, 0, 0)",
        KILLED,
    ),
    "trace the host": ("ctypes.CDLL(None).ptrace(16, parent, 0, 0)", KILLED),
    "make memory executable": (
        "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
        KILLED,
    ),
    "raise a limit": ("resource.getrlimit(resource.RLIMIT_AS)", KILLED),
    "take the filter off": ("ctypes.CDLL(None).prctl(22, 0, 0, 0, 0)", KILLED),
    "take all memory": ("bytearray(600 * 2**20)", LIMITED),
    "take all time": ("while confined: pass", LIMITED),
}


def attack(code: str, *, confined: bool) -> "subprocess.CompletedProcess[bytes]":
    code = f"confined = {confined}\n{code}"
    mode = "confined" if confined else "free"
    command = [sys.executable, "-I", "-c", HARNESS, worker.__file__, mode, code]
    return subprocess.run(command, capture_output=True, timeout=20, check=False)


@pytest.mark.parametrize("name", ATTACKS)
def test_decoder_that_was_taken_over_can_not(name: str) -> None:
    code, defence = ATTACKS[name]

    end = attack(code, confined=True)

    assert b"done" not in end.stdout
    if defence == KILLED:
        assert end.returncode == -signal.SIGSYS
    elif defence == DENIED:
        assert b"PermissionError" in end.stderr
    else:
        assert end.returncode in {-signal.SIGKILL, -signal.SIGXCPU} or b"MemoryError" in end.stderr


@pytest.mark.parametrize(
    "name", sorted(set(ATTACKS) - {"remove a file", "make a file", "trace the host"})
)
def test_same_attack_works_without_the_confinement(name: str) -> None:
    assert attack(ATTACKS[name][0], confined=False).stdout == b"done"


def test_worker_refuses_to_work_where_it_can_not_be_confined() -> None:
    code = """
os.uname = lambda: type("U", (), {"machine": "pdp11"})
sys.stdin = None
status = worker.main([SITE, str(parent), "5", str(2**30), "100", "8", "8", "png"])
assert status == worker.EXIT_UNCONFINED
""".replace("SITE", repr(process._site()))

    assert attack(code, confined=False).stdout == b"done"


def test_worker_whose_host_has_gone_refuses_to_work() -> None:
    code = "worker.confine(parent + 1, 1, 2**30)"

    assert b"_Unconfined: parent" in attack(code, confined=False).stderr


# --- what the host does with a worker that misbehaves ---


class FakeInterpreter:
    """Stands in for Python: a worker in the attacker's hands from the start."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script = folder / "python"
        self.notes = folder / "notes"
        monkeypatch.setattr(sys, "executable", str(self.script))

    def runs(self, code: str) -> None:
        self.script.write_text(f"#!/bin/sh\necho $$ > {self.notes}\n{code}\n")
        self.script.chmod(0o700)

    def was_started(self) -> bool:
        return self.notes.exists()

    def is_gone(self) -> bool:
        try:
            os.kill(int(self.notes.read_text().split()[0]), 0)
        except ProcessLookupError:
            return True
        return False


@pytest.fixture
def fake_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeInterpreter:
    return FakeInterpreter(tmp_path, monkeypatch)


def test_worker_gets_no_environment_and_no_descriptor_of_the_host(
    services: BrokerServices, fake_interpreter: FakeInterpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "hush")
    held = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(held, True)
    notes = fake_interpreter.notes
    fake_interpreter.runs(f"cat /proc/self/environ >> {notes}; ls -l /proc/self/fd >> {notes}")

    try:
        assert refused(services, picture()) == (400, "decoder")
    finally:
        os.close(held)

    text = notes.read_text()
    assert "hush" not in text
    assert "PATH=" not in text
    assert "/etc/hostname" not in text


@pytest.mark.parametrize(
    "code", ["exec sleep 60", "cat > /dev/null; exec sleep 60", "echo {; exec sleep 60"]
)
def test_worker_that_hangs_is_killed_at_the_deadline(
    services: BrokerServices, fake_interpreter: FakeInterpreter, code: str
) -> None:
    fake_interpreter.runs(code)
    started = time.monotonic()

    assert refused(services, picture((600, 600), "png"), timeout_ms=200) == (408, "timeout_ms")
    assert time.monotonic() - started < 2
    assert fake_interpreter.is_gone()


def test_worker_is_killed_when_the_run_is_cancelled(
    services: BrokerServices, fake_interpreter: FakeInterpreter
) -> None:
    fake_interpreter.runs("exec sleep 60")
    run = Run(envelope(images=CapabilityPolicy(timeout_ms=60_000), wall_time_ms=60_000), services)
    ended: list[type] = []

    def call() -> None:
        try:
            run.call("images.resize", data=picture(), **BOX)
        except CallCancelled:
            ended.append(CallCancelled)

    thread = threading.Thread(target=call)
    thread.start()
    while not fake_interpreter.was_started():
        run.session.cancel.wait(0.005)
    run.session.cancel.cancel()
    thread.join(5)

    assert ended == [CallCancelled]
    assert fake_interpreter.is_gone()


def test_worker_that_answers_for_ever_is_cut(
    services: BrokerServices, fake_interpreter: FakeInterpreter
) -> None:
    fake_interpreter.runs("exec cat /dev/zero")

    assert refused(services, picture()) == (413, "max_message_bytes")
    assert fake_interpreter.is_gone()


@pytest.mark.parametrize(
    "code",
    [
        "kill -SEGV $$",
        "exit 0",
        "exit 1",
        "echo hello",
        'echo "{}"',
        """echo '{"kind": "made", "width": "x", "height": 1}'""",
        """echo '{"kind": "made", "width": -1, "height": 1}'""",
        """echo '{"kind": "made", "width": 99999, "height": 1}'""",
        """echo '{"kind": "failed", "error": "own", "reason": ""}'""",
        "head -c 100000 /dev/zero | tr '\\0' '['",
    ],
)
def test_worker_that_talks_nonsense_is_a_refusal_and_no_bug(
    services: BrokerServices, fake_interpreter: FakeInterpreter, code: str
) -> None:
    fake_interpreter.runs(code)

    assert refused(services, picture()) == (400, "decoder")


def test_text_of_a_worker_is_made_harmless(
    services: BrokerServices, fake_interpreter: FakeInterpreter
) -> None:
    reason = r"\\u001b[31m" + "x" * 500
    fake_interpreter.runs(
        f"""printf '{{"kind": "failed", "error": "picture", "reason": "{reason}"}}'"""
    )
    run = Run(envelope(), services)

    fault = run.refused("images.resize", data=picture(), **BOX)

    assert "\x1b" not in fault.message
    assert len(fault.message) < 200


def test_machine_that_can_not_confine_a_decoder_refuses_the_call(
    services: BrokerServices, fake_interpreter: FakeInterpreter
) -> None:
    fake_interpreter.runs(f"exit {worker.EXIT_UNCONFINED}")

    assert refused(services, picture()) == (503, "feature")


def test_machine_without_an_interpreter_refuses_the_call(
    services: BrokerServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")

    assert refused(services, picture()) == (503, "feature")


def test_number_of_workers_at_once_is_bounded(
    services: BrokerServices, fake_interpreter: FakeInterpreter
) -> None:
    fake_interpreter.runs("exec sleep 60")
    first = Run(envelope(images=CapabilityPolicy(timeout_ms=1500)), services)
    thread = threading.Thread(target=lambda: first.refused("images.resize", data=picture(), **BOX))
    thread.start()
    while not fake_interpreter.was_started():
        first.session.cancel.wait(0.005)
    fake_interpreter.notes.unlink()

    assert refused(services, picture(), timeout_ms=100) == (408, "timeout_ms")
    assert not fake_interpreter.was_started()
    thread.join(5)


def test_limits_are_those_that_the_header_check_knows() -> None:
    assert capability.MAX_PIXELS == header.MAX_PIXELS == process.MAX_PIXELS
