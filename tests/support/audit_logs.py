"""Audit logs for tests: made by the real sink, and taken apart line by line."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from toolcell.events import CapabilityCalled, Event, EventContext, ToolInvocation
from toolcell.telemetry.jsonl import JsonlSink
from toolcell.telemetry.verify import Report, verify, verify_log

KEY = bytes(range(32))
OTHER_KEY = bytes(32)
CONTEXT = EventContext(
    correlation_id="0192f0c4-7d1e-7c0a-8b1e-0123456789ab",
    scope="default",
    tool_id="3f0c4d52-5f52-4cb5-8a2c-0123456789ab",
    tool="csv-profile",
    version="1.2.3",
    policy_digest="hmac-sha256:" + "ab" * 32,
    lane="wasi",
)


def capability(target: str = "notes/a", **fields: Any) -> CapabilityCalled:
    """A capability call, which need not persist."""
    given = {"name": "kv.get", "status": 200, "bytes": 12, "duration_ms": 0.25, "target": target}
    return CapabilityCalled.of(CONTEXT, **{**given, **fields})


def invocation(**fields: Any) -> ToolInvocation:
    """The end of a call, which must persist."""
    given = {
        "method": "profile",
        "duration_ms": 12.5,
        "cpu_ms": 11.0,
        "queue_wait_ms": 0.1,
        "memory_peak_bytes": 1 << 20,
        "bytes_in": 100,
        "bytes_out": 200,
        "fuel": 123456,
        "status": 200,
        "outcome": "ok",
        "artifact_digest": "sha256:" + "cd" * 32,
    }
    return ToolInvocation.of(CONTEXT, **{**given, **fields})


def write_log(path: Path, events: int = 5, **options: Any) -> Path:
    """A log with an opening line and `events` more, closed."""
    options.setdefault("fsync", "none")
    sink = JsonlSink(path, KEY, **options)
    for number in range(events):
        sink.write(capability(f"notes/{number}"))
    sink.close()
    return path


def append(path: Path, *events: Event, **options: Any) -> None:
    """What the next process does: opens the log, writes, closes."""
    options.setdefault("fsync", "none")
    sink = JsonlSink(path, KEY, **options)
    for event in events:
        sink.write(event)
    sink.close()


def check(*paths: Path, key: bytes | None = KEY) -> Report:
    """What the verifier says."""
    return verify(paths, key)


def check_all(log: Path, key: bytes | None = KEY) -> Report:
    """What the verifier says of a log with all its files."""
    return verify_log(log, key)


def kinds(report: Report) -> list[str]:
    """The kinds of all problems, in order."""
    return [problem.kind for problem in report.problems]


def lines_of(path: Path) -> list[bytes]:
    """The log's lines, each with its newline."""
    return path.read_bytes().splitlines(keepends=True)


def head_of(path: Path) -> Path:
    """Where the head record of the log at `path` is."""
    return path.with_name(path.name + ".head")


def spawn(code: str, *arguments: str) -> "subprocess.Popen[str]":
    """A Python process that runs `code`, which can import this module."""
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r})\n{code}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
