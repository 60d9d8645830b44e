"""Drives the launcher as the lane does, but by hand: one plan at a time, any plan, weakened or not.

For tests of `toolcell-native` itself. It must never be used by the lane.
"""

import os
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

NATIVE = Path(__file__).parents[2] / "native"
PACKET_MAX = 262_144

ALLOW = 0x7FFF0000
KILL = 0x80000000
EPERM = 0x00050001
X86_64 = 0xC000003E


def _instruction(code: int, jt: int, jf: int, k: int) -> bytes:
    return struct.pack("=HBBI", code, jt, jf, k)


def bpf(refused: Iterable[int] = (), action: int = EPERM) -> bytes:
    """A filter that answers `action` to the numbered system calls, and to other architectures."""
    lines = [
        _instruction(0x20, 0, 0, 4),  # the architecture
        _instruction(0x15, 1, 0, X86_64),
        _instruction(0x06, 0, 0, KILL),
        _instruction(0x20, 0, 0, 0),  # the number
        _instruction(0x35, 0, 1, 0x40000000),  # x32
        _instruction(0x06, 0, 0, KILL),
    ]
    for number in refused:
        lines += [_instruction(0x15, 0, 1, number), _instruction(0x06, 0, 0, action)]
    return b"".join([*lines, _instruction(0x06, 0, 0, ALLOW)])


def program() -> Path:
    """The launcher, built from the checkout when it is older than its sources."""
    built = NATIVE / "target/release/toolcell-native"
    sources = [NATIVE / "Cargo.toml", *(NATIVE / "src").rglob("*.rs")]
    newest = max(path.stat().st_mtime for path in sources)
    if not built.exists() or built.stat().st_mtime < newest:
        command = ["cargo", "build", "--quiet", "--release", "--locked"]
        subprocess.run([*command, "--manifest-path", NATIVE / "Cargo.toml"], check=True)
        os.utime(built)
    return built


class Run:
    """What came of one plan."""

    def __init__(self, spawned: dict[str, Any], ended: dict[str, Any], out: bytes, err: bytes):
        self.spawned, self.ended, self.out, self.err = spawned, ended, out, err

    @property
    def receipt(self) -> dict[str, Any]:
        """As the launcher read it."""
        receipt: dict[str, Any] = self.spawned["receipt"]
        return receipt


class Launcher:
    """A launcher process and its socket. Every wait has a deadline of `patience_s`."""

    def __init__(
        self,
        *,
        weaken: bool = False,
        pool: int = 0,
        patience_s: float = 20.0,
        inherit: tuple[int, ...] = (),
        before_exec: Callable[[], None] | None = None,
        copy_to: Path | None = None,
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        ours.settimeout(patience_s)
        self.patience_s = patience_s
        self.socket = ours
        place = program() if copy_to is None else Path(shutil.copy(program(), copy_to))
        command = [place, "serve", "--fd", str(theirs.fileno())]
        self.process = subprocess.Popen(
            command + (["--weaken"] if weaken else []),
            pass_fds=[theirs.fileno(), *inherit],
            preexec_fn=before_exec,
        )
        theirs.close()
        self.last_id = 0
        self.pidfds: dict[int, int] = {}
        self.send({"op": "hello", "protocol": 1, "pool": pool, "cgroup_parent": "toolcell-test"})
        self.hello = self.receive()

    def send(self, message: dict[str, Any], fds: Iterable[int] = ()) -> None:
        """One packet."""
        socket.send_fds(self.socket, [msgspec.msgpack.encode(message)], list(fds))

    def receive(self) -> dict[str, Any]:
        """One answer. A pidfd that comes with it is kept in `pidfds`."""
        packet, fds, _, _ = socket.recv_fds(self.socket, PACKET_MAX, 4)
        if not packet:
            raise EOFError("the launcher is gone")
        answer: dict[str, Any] = msgspec.msgpack.decode(packet)
        for fd in fds:
            self.pidfds[answer["id"]] = fd
        return answer

    def start(self, plan: dict[str, Any], fds: Iterable[int]) -> dict[str, Any]:
        """Sends a plan; the first answer to it."""
        self.last_id += 1
        self.send({**plan, "op": "spawn", "id": self.last_id}, fds)
        return self.receive()

    def run(self, plan: dict[str, Any], stdin: bytes = b"", extra: Iterable[int] = ()) -> Run:
        """Runs a plan to its end. Its standard streams are files, so that none can fill up."""
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin)
            given.seek(0)
            fds = [given.fileno(), out.fileno(), err.fileno(), *extra]
            answer = self.start(plan, fds)
            ended = answer
            if answer["event"] == "spawned":
                ended = self.receive()
            out.seek(0)
            err.seek(0)
            return Run(answer, ended, out.read(), err.read())

    def kill(self) -> None:
        """SIGKILL to the launcher, as a crash would be."""
        self.process.kill()
        self.process.wait(self.patience_s)

    def close(self) -> int:
        """Leaves, and waits for the launcher to clean up. Its exit code."""
        self.socket.close()
        for fd in self.pidfds.values():
            os.close(fd)
        self.pidfds.clear()
        return self.process.wait(self.patience_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()


def wait_for_end(pidfd: int, patience_s: float = 20.0) -> bool:
    """Whether the process behind `pidfd` is dead in time."""
    return bool(select.select([pidfd], [], [], patience_s)[0])


def wait_until(true: Any, patience_s: float = 20.0) -> bool:
    """Whether `true()` comes to hold in time; for what the kernel takes apart on its own."""
    deadline = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > deadline:
            return False
        select.select([], [], [], 0.01)
    return True


def leftovers(parent: str = "toolcell-test") -> list[str]:
    """Cgroups below `parent` in any hierarchy."""
    root = Path("/sys/fs/cgroup")
    found = [*root.glob(f"{parent}/*/"), *root.glob(f"*/{parent}/*/")]
    return sorted(str(path) for path in found)


SYSTEM = [path for path in ("/usr", "/etc/alternatives") if Path(path).is_dir()]


def plan(*argv: str, program: str = "/usr/bin/python3", **changes: Any) -> dict[str, Any]:
    """A plan that runs a program of this machine's `/usr`, with every control on."""
    mounts: list[dict[str, Any]] = [{"kind": "bind", "source": p, "at": p} for p in SYSTEM]
    mounts += [
        {"kind": "symlink", "at": f"/{name}", "to": f"usr/{name}"}
        for name in ("bin", "lib", "lib64")
        if Path("/usr", name).is_dir()
    ]
    made: dict[str, Any] = {
        "program": program,
        "argv": [program, *argv],
        "env": ["PATH=/usr/bin"],
        "fds": [0, 1, 2],
        "mounts": mounts,
        "landlock": [
            {"at": "/", "access": ["read"]},
            {"at": "/usr", "access": ["read", "execute"]},
            {"at": "/dev", "access": ["read", "write"]},
        ],
        "seccomp": bpf(),
        "rlimits": {"nofile": [64, 64]},
        "limits": {
            "wall_ms": 10_000,
            "cpu_ms": 10_000,
            "memory_bytes": 256 << 20,
            "pids": 32,
        },
    }
    made.update(changes)
    return made
