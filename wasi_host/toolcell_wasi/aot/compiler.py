"""Runs the compiling child and reads what came of it.

Owns the child's limits, its deadline and the meaning of its end. No pipe is used: input and
outputs are files in memory, bounded by RLIMIT_FSIZE, so neither side can block the other.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from typing import IO

from msgspec import Struct

from toolcell.errors import ArtifactRejected, LaneUnavailable, SandboxSetupError
from toolcell.guest_output import clean_text
from toolcell_wasi.aot.child import REJECTED
from toolcell_wasi.aot.sealed import SealedFile

MIB = 1024 * 1024
MAX_COMPONENT_BYTES = 64 * MIB
"""A Python tool has 18 MiB, and its compiled form twice that."""
MAX_COMPILED_BYTES = 512 * MIB
MAX_MESSAGE_CHARS = 2000
AT_ONCE = 2
"""Children at the same time; each takes up to 500 MiB for a Python tool."""


class CompileLimits(Struct, frozen=True, kw_only=True):
    """Ceilings of one compilation. A Python tool takes 4 s of wall time, 7 s of CPU time on two
    cores and 1.5 GiB of address space.
    """

    timeout_s: int = 120
    cpu_s: int = 240
    address_space_bytes: int = 6 * 1024 * MIB
    threads: int = 4


class Compiler:
    """Compiles components, each in a child of its own. Thread-safe."""

    def __init__(self, limits: CompileLimits) -> None:
        self._limits = limits
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def compile(self, wasm: bytes) -> SealedFile:
        """Native code of the component `wasm`, sealed. Raises :class:`ArtifactRejected`."""
        if len(wasm) > MAX_COMPONENT_BYTES:
            raise ArtifactRejected(
                f"the component has {len(wasm)} bytes; the limit is {MAX_COMPONENT_BYTES}",
                status=413,
            )
        compiled = SealedFile("toolcell-compiled")
        try:
            with (
                self._places,
                SealedFile.of("toolcell-component", wasm) as source,
                SealedFile("toolcell-compiler-says") as says,
            ):
                code = self._run(source, compiled, says)
                self._check(code, says)
            compiled.seal()
        except BaseException:
            compiled.close()
            raise
        return compiled

    def _run(self, source: SealedFile, compiled: SealedFile, says: SealedFile) -> int:
        limits = {
            "input_bytes": MAX_COMPONENT_BYTES,
            "output_bytes": MAX_COMPILED_BYTES,
            "open_files": 64,
            "cpu_s": self._limits.cpu_s,
            "address_space_bytes": self._limits.address_space_bytes,
            "parent": os.getpid(),
        }
        # A compiler thread per core takes address space by the core; memory arenas likewise.
        environment = {"RAYON_NUM_THREADS": str(self._limits.threads), "MALLOC_ARENA_MAX": "2"}
        # Opened anew: the child reads from the start, whatever was written through our descriptor.
        with open(source.path, "rb") as stdin:  # noqa: PTH123 - a descriptor's name, not a path
            with self._lock:
                self._require_open()
                child = _start(_command(limits), environment, stdin, compiled.fd, says.fd)
                self._children.add(child)
            try:
                return child.wait(self._limits.timeout_s)
            except subprocess.TimeoutExpired:
                raise ArtifactRejected(
                    f"compiling the component took longer than {self._limits.timeout_s} s",
                    status=408,
                    remedy="make the tool smaller, or raise compile_timeout_s of the wasi lane",
                ) from None
            finally:
                child.kill()
                child.wait()
                with self._lock:
                    self._children.discard(child)
                    self._require_open()

    def _require_open(self) -> None:
        if self._closed:
            raise LaneUnavailable(
                "the lane was closed while the component was compiled",
                remedy="make a new Runtime",
                details={"feature": "open-lane"},
            )

    def close(self) -> None:
        """Ends every compilation under way; none starts after it. Idempotent."""
        with self._lock:
            self._closed = True
            for child in self._children:
                child.kill()

    def _check(self, code: int, says: SealedFile) -> None:
        if code == 0:
            return
        message = clean_text(says.read(MAX_MESSAGE_CHARS).decode("utf-8", "replace"), 2000).strip()
        if code == REJECTED:
            raise ArtifactRejected(f"the component is not valid: {message}", status=400)
        if code < 0:
            name = signal.Signals(-code).name
            raise ArtifactRejected(
                f"the compiler went over its limits and was ended by {name} "
                f"(cpu {self._limits.cpu_s} s, address space "
                f"{self._limits.address_space_bytes // MIB} MiB)",
                status=413,
                remedy="make the tool smaller",
            )
        raise SandboxSetupError(
            f"the compiling child failed with status {code}: {message[-500:]}",
            remedy="check that toolcell is installed for this interpreter",
            details={"stage": "compile", "errno": 0},
        )


def _start(
    command: list[str], environment: dict[str, str], stdin: IO[bytes], out: int, says: int
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, env=environment, cwd="/", stdin=stdin, stdout=out, stderr=says
        )
    except OSError as error:
        raise SandboxSetupError(
            f"the compiling child can't be started: {error.strerror}",
            details={"stage": "compile", "errno": error.errno},
        ) from None


def _command(limits: dict[str, int]) -> list[str]:
    return [sys.executable, "-I", "-m", "toolcell_wasi.aot.child", json.dumps(limits)]
