"""The probe: small programs of our own against each mechanism, for real, in throw-away cells.

Owns what is tried and how an answer is judged. Nothing is believed because it was asked for: a
feature works where a program in a cell ran into it. Takes about a third of a second.
"""

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

from toolcell.errors import ToolcellError
from toolcell.events import Event, EventContext
from toolcell.lane import Probe
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import CancelToken, Deadline, Session, ToolRef
from toolcell_oops.base import Base, BaseStore
from toolcell_oops.base.recipes import PYTHON
from toolcell_oops.cell import Cell, Streams
from toolcell_oops.launcher.client import Launcher, LauncherGone
from toolcell_oops.plan import MIB, SCRATCH, Filter
from toolcell_oops.probe_scripts import LOOK, SCRIPTS, WORDS
from toolcell_oops.receipt import NAMESPACES, check_receipt

__all__ = ["probe_lane"]

MEMORY_MB = 48
SCRATCH_MB = 1
PROCESSES = 8
CPU_MS = 150
WALL_MS = 4000
SHORT_WALL_MS = 200

_REMEDY = "run as root or in a delegated cgroup, on Linux 5.14 or newer with Landlock and seccomp"

BY_DESIGN = {
    "filesystem=host": "no folder of the host is ever put into a cell",
    "network=outbound-https-only": "",
    "network=full": "a cell has no network interface",
    "deterministic": "a Linux process sees real time and real randomness",
}
"""Demands that `toolcell.isolation` asks about and that no machine decides: HTTPS goes through the
broker (a plain program, which can't ask it, is refused when it is admitted)."""


def probe_lane(launcher: Launcher, bases: BaseStore, seccomp: Filter) -> Probe:
    """Tries everything. A mechanism that does not work makes the lane unavailable."""
    base = bases.get("python")
    found: dict[str, _Tried] = {}

    def attempt(name: str) -> None:
        found[name] = _attempt(launcher, base, seccomp, name)

    threads = [threading.Thread(target=attempt, args=(name,)) for name in SCRIPTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    look = found["look"]
    features = dict(launcher.hello.missing)
    features |= _looked(look)
    features["receipt"] = look.why or _receipt(look)
    features["memory_mb"] = _ended_by(found["memory"], "memory")
    features["cpu_time_ms"] = _ended_by(found["spin"], "cpu")
    features["wall_time_ms"] = _ended_by(found["sleep"], "wall")
    features["max_processes"] = _bounded(found["fork"])
    broken = [f"{name}: {why}" for name, why in features.items() if why]
    return Probe(
        available=not broken,
        features={**features, "filesystem=ephemeral": features["scratch"], **BY_DESIGN},
        reason="; ".join(broken)[:1000],
        remedy=_REMEDY if broken else "",
    )


class _Tried:
    """What came of one cell: why it did not run, or how it ended and what it printed."""

    def __init__(self, cell: Cell, said: bytes, why: str) -> None:
        self.cell = cell
        self.said = said
        self.why = why


def _attempt(launcher: Launcher, base: Base, seccomp: Filter, name: str) -> _Tried:
    envelope = _envelope()
    session = _session(envelope)
    said = bytearray()
    cell = Cell(launcher, session, lambda _cell: None)
    try:
        streams = Streams(None, said.extend, said.extend)
        cell.run(_plan(base, seccomp, envelope, name), streams)
    except LauncherGone as gone:
        return _Tried(cell, b"", str(gone))
    except ToolcellError as error:
        return _Tried(cell, b"", error.message)
    why = "" if cell.error is None else cell.error.message
    return _Tried(cell, bytes(said[:65536]), why)


def _plan(base: Base, seccomp: Filter, envelope: PolicyEnvelope, name: str) -> dict[str, Any]:
    trees = [f"/{folder}" for folder in base.folders]
    return {
        "program": PYTHON,
        "argv": [PYTHON, "-I", "-S", "-B", "-c", SCRIPTS[name]],
        "env": [],
        "cwd": "/",
        "mounts": [
            *({"kind": "bind", "at": at, "source": f"{base.root}{at}"} for at in trees),
            {"kind": "tmpfs", "at": SCRATCH, "size_bytes": SCRATCH_MB * MIB, "inodes": 16},
        ],
        "landlock": [
            *({"at": at, "access": ["read", "execute"]} for at in trees),
            {"at": "/proc", "access": ["read"]},
            {"at": "/dev", "access": ["read", "write"]},
            {"at": SCRATCH, "access": ["read", "write"]},
        ],
        "seccomp": seccomp.bpf,
        "rlimits": {"nofile": [64, 64]},
        "limits": {
            "wall_ms": SHORT_WALL_MS if name == "sleep" else WALL_MS,
            "cpu_ms": CPU_MS if name == "spin" else WALL_MS,
            "memory_bytes": envelope.memory_mb * MIB,
            "pids": PROCESSES,
        },
    }


def _looked(look: _Tried) -> dict[str, str]:
    """What the cell saw of each mechanism: the empty string where it met it."""
    names = [name for name, _ in LOOK]
    if look.why:
        return dict.fromkeys(names, look.why)
    try:
        seen = json.loads(look.said)
        return {name: str(seen[name])[:200] for name in names}
    except (ValueError, KeyError, TypeError):
        words = look.said[-200:].decode("utf-8", "replace")
        return dict.fromkeys(names, f"the probe did not report: {words}")


def _receipt(look: _Tried) -> str:
    spawned = look.cell.spawned
    if spawned is None:
        return "there was none"
    try:
        check_receipt(spawned.receipt, _envelope())
    except ToolcellError as error:
        return error.message
    return _not_ours(spawned.receipt.get("namespaces", {}))


def _not_ours(inodes: Mapping[str, int]) -> str:
    """Which namespace of the cell is the host's own, against our own view of /proc."""
    for name in NAMESPACES:
        if os.stat(f"/proc/self/ns/{name}").st_ino == inodes.get(name):  # noqa: PTH116 - a magic link
            return f"the cell is in the host's {name} namespace"
    return ""


def _ended_by(tried: _Tried, limit: str) -> str:
    if tried.why:
        return tried.why
    exited = tried.cell.exited
    if exited is not None and exited.limit is not None and exited.limit.name == limit:
        return ""
    how = "did not end" if exited is None else f"ended with {exited.exit}, {exited.limit}"
    return f"a program that goes over it {how}"


def _bounded(fork: _Tried) -> str:
    """Forks until it is refused, and says how far it came. Or it was ended for it."""
    if fork.why:
        return fork.why
    exited = fork.cell.exited
    if exited is not None and exited.limit is not None and exited.limit.name == "pids":
        return ""
    words = fork.said.split()
    if len(words) == 2 and words[0] == WORDS and words[1].isdigit():
        made = int(words[1])
        return "" if made < PROCESSES else f"{made} processes under a limit of {PROCESSES}"
    return f"a program that forks said {fork.said[-100:]!a}"


def _envelope() -> PolicyEnvelope:
    return PolicyEnvelope(memory_mb=MEMORY_MB, max_processes=PROCESSES, wall_time_ms=2 * WALL_MS)


def _session(envelope: PolicyEnvelope) -> Session:
    return Session(
        tool=ToolRef("", "probe", "0.0.0", ""),
        envelope=envelope,
        policy_digest="",
        context=EventContext(),
        emitter=_Nowhere(),
        deadline=Deadline(envelope.wall_time_ms),
        cancel=CancelToken(),
        seed=bytes(32),
    )


class _Nowhere:
    """Events of a probe are nobody's."""

    def emit(self, event: Event) -> None:
        pass
