"""From a program and an envelope to the finished plan that the launcher gets.

Owns what a cell consists of: which trees, what environment, which ceilings. Everything is decided
here and nothing in the launcher. The plan's form is that of `native/PLAN.md`. Starts nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolcell.artifact.manifest import Manifest
from toolcell.policy.envelope import PolicyEnvelope
from toolcell_oops.base import Base
from toolcell_oops.base.recipes import PYTHON
from toolcell_oops.program import Program, WorkerProgram

__all__ = ["Filter", "Layout", "has_scratch"]

MIB = 1024 * 1024
BYTES_PER_INODE = 4096
STACK_BYTES = 8 * MIB
TOOL = "/tool"
SCRATCH = "/scratch"

_PYTHON_WORKER = (PYTHON, "-I", "-S", "-B", "-u", "-X", "utf8", "-m", "toolcell_sdk.worker")
"""Isolated, no site, no byte code written, output at once."""


class Filter(Struct, frozen=True):
    """A compiled seccomp profile: its name in the settings, its digest, its BPF."""

    name: str
    digest: str
    bpf: bytes


class Layout:
    """What all cells of one artifact have in common. Immutable; thread-safe."""

    def __init__(
        self, manifest: Manifest, program: Program, base: Base, tool: Path, seccomp: Filter
    ) -> None:
        self.base = base
        self.seccomp = seccomp
        self._program = _program_path(program)
        self._first = _first_arguments(program)
        self._environment = _environment(program, manifest)
        self._mounts: list[dict[str, Any]] = [
            *(
                {"kind": "bind", "at": f"/{name}", "source": str(base.root / name)}
                for name in base.folders
            ),
            {"kind": "bind", "at": TOOL, "source": str(tool)},
        ]
        self._landlock: list[dict[str, Any]] = [
            *({"at": f"/{name}", "access": ["read", "execute"]} for name in base.folders),
            {"at": TOOL, "access": ["read", "execute"]},
            # No file of /proc: its mountinfo and maps name the host's folders behind the binds.
            {"at": "/dev", "access": ["read", "write"]},
        ]

    def plan(
        self, envelope: PolicyEnvelope, wall_ms: int, arguments: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The plan of one call, all but `id` and `fds`. `arguments` come after the fixed ones."""
        mounts, landlock = list(self._mounts), list(self._landlock)
        if has_scratch(envelope):
            size = envelope.scratch_mb * MIB
            bounds = {"size_bytes": size, "inodes": max(16, size // BYTES_PER_INODE)}
            scratch: dict[str, Any] = {"kind": "tmpfs", "at": SCRATCH, **bounds}
            mounts.append(scratch)
            mounts.append({"kind": "symlink", "at": "/tmp", "to": SCRATCH})  # noqa: S108 - the cell's
            landlock.append({"at": SCRATCH, "access": ["read", "write"]})
        files = envelope.max_open_files
        return {
            "program": self._program,
            "argv": [*self._first, *arguments],
            "env": self._environment,
            "cwd": SCRATCH if has_scratch(envelope) else TOOL,
            "mounts": mounts,
            "landlock": landlock,
            "seccomp": self.seccomp.bpf,
            "rlimits": {
                "nofile": [files, files],
                "stack": [STACK_BYTES, STACK_BYTES],
                "memlock": [0, 0],
                "msgqueue": [0, 0],
                "rtprio": [0, 0],
            },
            "limits": {
                "wall_ms": wall_ms,
                "cpu_ms": envelope.cpu_time_ms,
                "memory_bytes": envelope.memory_mb * MIB,
                "pids": envelope.max_processes,
            },
        }


def has_scratch(envelope: PolicyEnvelope) -> bool:
    """Whether a cell under `envelope` has anything to write to."""
    return envelope.allow_file_io and envelope.scratch_mb > 0


def _program_path(program: Program) -> str:
    if isinstance(program, WorkerProgram) and program.module:
        return PYTHON
    return f"{TOOL}/{program.program}"


def _first_arguments(program: Program) -> list[str]:
    if not isinstance(program, WorkerProgram):
        return [program.program.rpartition("/")[2]]
    if program.module:
        return [*_PYTHON_WORKER, program.module]
    return [str(program.program).rpartition("/")[2], *program.arguments]


def _environment(program: Program, manifest: Manifest) -> list[str]:
    """Nothing but what the signed entry point names, and where the artifact's libraries are."""
    environment = dict(program.environment)
    if any(name.startswith("lib/") for name in manifest.files):
        environment.setdefault("LD_LIBRARY_PATH", f"{TOOL}/lib")
    return [f"{name}={value}" for name, value in sorted(environment.items())]
