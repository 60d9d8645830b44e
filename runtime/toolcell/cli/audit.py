"""`toolcell audit`: check the audit log, and read it.

Owns the words and the exit status: 0 for a log that is whole, 1 for one that is not. Never makes
a key, and never changes a file.
"""

import json
import re
import sys
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from toolcell.errors import ConfigError
from toolcell.home import Home, given_key
from toolcell.telemetry.patterns import escape_control

__all__ = ["audit_command"]

_SEALS = ("prev", "hash", "mac")
_COLUMNS = ("seq", "event", "time_ns", "correlation_id", "tool", "version")
_CONTEXT = ("scope", "tool_id", "policy_digest", "lane", "artifact_digest")
_MAX_SHOWN_CHARS = 200


@click.group("audit")
def audit_command() -> None:
    """Check and read the audit log."""


@audit_command.command("verify")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help="The log's key. [default: the home's audit.key]",
)
@click.option(
    "--without-key", is_flag=True, help="Check the hashes alone: finds damage, not deceit."
)
@click.option(
    "--anchor",
    metavar="SEQ:HASH",
    help="The end of an earlier check; fails where the log does not hold it any more.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every problem.")
@click.pass_obj
def verify_command(
    home: str | None,
    files: tuple[Path, ...],
    key_file: Path | None,
    without_key: bool,
    anchor: str | None,
    as_json: bool,
) -> None:
    """Say whether a log is whole: every line there, as it was written, in order.

    Without FILE: the home's log with all its full files. Exit status: 0 whole, 1 not whole, 2
    wrong usage.

    \b
    toolcell audit verify
    toolcell audit verify audit.jsonl.000001 audit.jsonl --key-file audit.key --json
    """
    import msgspec

    from toolcell.telemetry.verify import Anchor, verify, verify_log

    wanted = None
    if anchor is not None:
        match = re.fullmatch(r"([1-9][0-9]{0,18}):([0-9a-f]{64})", anchor)
        if match is None:
            raise click.BadParameter("is not SEQ:HASH, as a check prints it", param_hint="--anchor")
        wanted = Anchor(int(match[1]), match[2])
    key = None if without_key else _key(home, key_file)
    if files:
        report = verify(_without_heads(files), key, anchor=wanted)
    else:
        report = verify_log(Home(home).audit, key, anchor=wanted)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        _print_report(report)
    sys.exit(0 if report.whole else 1)


@audit_command.command("show")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--tool", metavar="NAME[@VERSION]", help="Only events of this tool.")
@click.option("--correlation-id", metavar="ID", help="Only events of this call.")
@click.option("--type", "kind", metavar="EVENT", help="Only this type, or types that begin so.")
@click.option("--tail", metavar="N", type=click.IntRange(min=1), help="Only the last N.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON lines: one object per event, with its seals.",
)
@click.pass_obj
def show_command(
    home: str | None,
    files: tuple[Path, ...],
    tool: str | None,
    correlation_id: str | None,
    kind: str | None,
    tail: int | None,
    as_json: bool,
) -> None:
    """Print events of a log, oldest first. It shows what is there; `verify` says what it is worth.

    \b
    toolcell audit show --tail 20
    toolcell audit show --type tool.sandbox.violation --tool csv-profile@1.2.3
    """
    name, _, version = (tool or "").partition("@")
    wanted = {"tool": name, "version": version, "correlation_id": correlation_id or ""}
    shown = (
        event
        for event in _events(_log_files(home, files))
        if all(not value or event.get(field) == value for field, value in wanted.items())
        and str(event.get("event", "")).startswith(kind or "")
    )
    for event in deque(shown, maxlen=tail) if tail else shown:
        click.echo(json.dumps(event) if as_json else _one_line(event))


def _key(home: str | None, key_file: Path | None) -> bytes:
    path = key_file if key_file is not None else Home(home).audit_key
    if not path.exists():
        raise ConfigError(
            f"there is no audit key at {path}",
            remedy="name it with --key-file, or check for damage alone with --without-key",
        )
    return given_key(path)


def _without_heads(files: tuple[Path, ...]) -> list[Path]:
    """`files` without the head records that a glob like `audit.jsonl*` brings in."""
    return [path for path in files if path.suffix != ".head"]


def _log_files(home: str | None, given: tuple[Path, ...]) -> list[Path]:
    """The files to read, oldest first."""
    from toolcell.telemetry.files import LogFiles

    if given:
        return _without_heads(given)
    log = LogFiles(Home(home).audit)
    files = [path for _, path in log.all_full()] + [log.active] * log.active.exists()
    if not files:
        raise ConfigError("there is no audit log yet", remedy="run a tool, or name a FILE")
    return files


def _events(files: list[Path]) -> Iterator[dict[str, Any]]:
    """What each line of `files` says. A line that is no JSON object is shown as such."""
    from toolcell.telemetry.chain import MAX_LINE_BYTES

    for path in files:
        try:
            with path.open("rb") as file:
                while line := file.readline(MAX_LINE_BYTES + 1):
                    yield _event(line)
        except OSError as error:
            raise ConfigError(f"{path} can't be read: {error.strerror or error}") from error


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if isinstance(event, dict):
        return event
    return {"event": "(unreadable)", "line": line.decode("utf-8", "replace").rstrip("\n")}


def _one_line(event: dict[str, Any]) -> str:
    """Time, type, tool, call, and then what the event has to say for itself."""
    tool = "@".join(str(event[field]) for field in ("tool", "version") if event.get(field))
    rest = (
        f"{field}={value if isinstance(value, str) else json.dumps(_rounded(value))}"[
            :_MAX_SHOWN_CHARS
        ]
        for field, value in event.items()
        if field not in (*_SEALS, *_COLUMNS, *_CONTEXT) and value not in ("", {})
    )
    parts = (
        _time(event.get("time_ns")),
        str(event.get("event", "")),
        tool,
        str(event.get("correlation_id", "")),
        *rest,
    )
    return escape_control("  ".join(part for part in parts if part))


def _rounded(value: Any) -> Any:
    """A figure as a person reads it; `--json` has all of its digits."""
    return round(value, 3) if isinstance(value, float) else value


def _time(time_ns: Any) -> str:
    try:
        moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return "(no time)"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _print_report(report: Any) -> None:
    for line in _report_lines(report):
        click.echo(escape_control(line))


def _report_lines(report: Any) -> Iterator[str]:
    if report.whole:
        lines = f"{report.lines} line{'s' * (report.lines != 1)}"
        files = f"{report.files} file{'s' * (report.files != 1)}"
        yield f"whole: {lines} ({report.first_seq} to {report.last_seq}) in {files}"
    else:
        problem = report.problems[0]
        place = f"{problem.file}:{problem.line}" if problem.line else problem.file
        yield f"NOT WHOLE: {place}: {problem.message}"
        yield f"  that means: {problem.meaning}"
        if len(report.problems) > 1:
            yield f"  and {len(report.problems) - 1} more: see --json"
    for note in report.notes:
        yield f"note: {note}"
    if not report.authenticated:
        yield "note: checked without the key: whoever may write to it can have made all of it anew"
    if report.whole and report.lines:
        yield f"end: {report.last_seq}:{report.last_hash}"
        yield "  (keep it elsewhere; --anchor then notices a log that was put back)"
