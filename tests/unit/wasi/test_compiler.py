"""The compiling child: its limits, its environment, and what its end means."""

import os
import subprocess
import sys

import pytest
from wasi_guests import ECHO, wat_guest

from toolcell.errors import ArtifactRejected, SandboxSetupError
from toolcell_wasi.aot import compiler
from toolcell_wasi.aot.compiler import CompileLimits, Compiler
from toolcell_wasi.engine.component import COMPONENT_PREAMBLE

pytestmark = pytest.mark.slow  # each starts a Python


def test_a_component_is_compiled_and_sealed():
    with Compiler(CompileLimits()).compile(wat_guest(ECHO)) as code:
        assert code.read(4) == b"\x7fELF"
        with pytest.raises(PermissionError):
            code.seal()


@pytest.mark.parametrize(
    "wasm", [b"", b"(component)", b"\0asm\x01\0\0\0", COMPONENT_PREAMBLE + b"\xff" * 100]
)
def test_what_is_no_component_is_rejected_with_a_reason(wasm):
    with pytest.raises(ArtifactRejected, match="not valid") as rejected:
        Compiler(CompileLimits()).compile(wasm)
    assert rejected.value.status == 400


def test_a_component_that_is_too_large_never_reaches_the_child(monkeypatch):
    monkeypatch.setattr(compiler, "MAX_COMPONENT_BYTES", 10)
    monkeypatch.setattr(subprocess, "run", None)
    with pytest.raises(ArtifactRejected, match="the limit is 10") as rejected:
        Compiler(CompileLimits()).compile(wat_guest(ECHO))
    assert rejected.value.status == 413


def test_a_child_without_address_space_fails_and_takes_nothing_along():
    limits = CompileLimits(address_space_bytes=64 * 1024 * 1024)
    with pytest.raises((ArtifactRejected, SandboxSetupError)):
        Compiler(limits).compile(wat_guest(ECHO))


def test_a_child_that_is_too_slow_is_killed(monkeypatch):
    monkeypatch.setattr(compiler, "_command", lambda _limits: ["/bin/sleep", "60"])
    with pytest.raises(ArtifactRejected, match="longer than 1 s") as rejected:
        Compiler(CompileLimits(timeout_s=1)).compile(wat_guest(ECHO))
    assert rejected.value.status == 408


def test_a_child_that_dies_of_a_signal_names_it(monkeypatch):
    command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 24)"]
    monkeypatch.setattr(compiler, "_command", lambda _limits: command)
    with pytest.raises(ArtifactRejected, match="SIGXCPU"):
        Compiler(CompileLimits()).compile(wat_guest(ECHO))


def test_the_child_sees_nothing_of_the_host_environment(monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    command = [sys.executable, "-I", "-c", "import os; print(sorted(os.environ))"]
    monkeypatch.setattr(compiler, "_command", lambda _limits: command)
    with Compiler(CompileLimits()).compile(b"any") as says:
        assert says.read(1000) == b"['LC_CTYPE', 'MALLOC_ARENA_MAX', 'RAYON_NUM_THREADS']\n"


def test_a_child_that_can_not_start_is_this_machines_fault(monkeypatch):
    monkeypatch.setattr(compiler, "_command", lambda _limits: ["/nonexistent"])
    with pytest.raises(SandboxSetupError) as failed:
        Compiler(CompileLimits()).compile(b"any")
    assert failed.value.details["stage"] == "compile"


def test_the_child_bounds_itself_before_it_reads():
    script = (
        "import resource; from toolcell_wasi.aot.child import bound; "
        "bound(dict(cpu_s=7, address_space_bytes=2**32, output_bytes=2**20, open_files=32)); "
        "print([resource.getrlimit(r) for r in (resource.RLIMIT_CPU, resource.RLIMIT_AS, "
        "resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)])"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=30
    ).stdout
    assert eval(said) == [(7, 7), (2**32, 2**32), (2**20, 2**20), (32, 32), (0, 0)]


def test_the_child_goes_before_its_host_where_memory_is_short_and_computes_after_its_guests():
    script = (
        "import os; from pathlib import Path; from toolcell_wasi.aot.child import bound; "
        "bound(dict(cpu_s=7, address_space_bytes=2**32, output_bytes=2**20, open_files=32)); "
        "print([int(Path('/proc/self/oom_score_adj').read_text()), os.nice(0)])"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=30
    ).stdout
    score, niceness = eval(said)
    assert score == 1000
    assert niceness > os.nice(0)
