"""`toolcell run`: one call, from the shell."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from toolcell.cli import show_error
from toolcell.errors import ConfigError, ToolcellError
from toolcell.result import Result
from toolcell.telemetry.patterns import escape_control

__all__ = ["run_command"]


@click.command("run")
@click.argument("tool", metavar="TOOL[@RANGE]")
@click.argument("method")
@click.option(
    "--input",
    "-i",
    "input_",
    metavar="JSON|@FILE|-",
    default="{}",
    show_default=True,
    help="The input: JSON, a file, or standard input.",
)
@click.option(
    "--arg",
    "-a",
    "arguments",
    multiple=True,
    metavar="NAME=TEXT|NAME:=JSON",
    help="Set one field of the input: NAME=TEXT or NAME=@FILE to text, NAME:=JSON or NAME:=@FILE "
    "to any JSON value. Repeat.",
)
@click.option(
    "--bytes",
    "files",
    multiple=True,
    metavar="NAME=FILE",
    help="Set one field of the input to the bytes of a file, as base64. Repeat.",
)
@click.option(
    "--policy", "-p", metavar="NAME|FILE", help="What to grant. [default: the registry's]"
)
@click.option(
    "--mask", "masks", multiple=True, metavar="NAME", help="Narrow by this class; repeat."
)
@click.option("--scope", default="default", show_default=True, help="Resolve in this scope.")
@click.option(
    "--trust",
    type=click.Choice(["system", "trusted", "untrusted"]),
    default="untrusted",
    show_default=True,
    help="Where the input comes from.",
)
@click.option("--lane", help="Demand this lane; refused where it would not be allowed.")
@click.option("--sign-result", metavar="KEY", help="Attest a success with this key of yours.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with everything.")
@click.pass_obj
def run_command(
    home: str | None,
    tool: str,
    method: str,
    input_: str,
    arguments: tuple[str, ...],
    files: tuple[str, ...],
    policy: str | None,
    masks: tuple[str, ...],
    scope: str,
    trust: Any,
    lane: str | None,
    sign_result: str | None,
    as_json: bool,
) -> None:
    """Call METHOD of TOOL in a fresh cell.

    RANGE is a version (1.2.3) or a range (^1.2, ~1.2, ">=1,<2"). TOOL may also be the path of a
    signed artifact. Exit status: 0 success, 1 the call failed, 2 wrong usage (an unknown policy
    or mask is that too).

    \b
    toolcell run hello greet --input '{"name": "Ada"}'
    toolcell run hello greet --arg name=Ada
    toolcell run csv-profile@^1.0 profile --arg csv=@sales.csv --arg top:=3 --json
    toolcell run thumbnail make --bytes image=photo.jpg --arg sizes:=[64] --policy policy.toml
    """
    from toolcell.cli.call_input import call_input
    from toolcell.cli.keys import signing_key
    from toolcell.home import Home
    from toolcell.runtime import CallOptions, Runtime

    name, version = _which(tool)
    raw = call_input(input_, arguments, files)
    try:
        key = signing_key(Home(home), sign_result) if sign_result else None
        with Runtime(home, result_key=key) as runtime:
            what = Path(name) if _is_path(tool) else name
            options: CallOptions = {
                "version": version,
                "policy": policy,
                "masks": masks,
                "scope": scope,
                "input_trust": trust,
                "lane": lane,
            }
            # The first use of an artifact compiles it, which takes seconds. What goes wrong in it
            # goes wrong again in the call, whose result tells of it.
            with (
                _said_if_slow(f"preparing {escape_control(name)}, once per artifact …"),
                suppress(ToolcellError),
            ):
                runtime.prepare(what, **options)
            result = runtime.invoke_json(what, method, raw, **options)
    except ToolcellError as error:  # the installation is wrong: there was no call
        result = Result(status=error.status, method=method, error=error)
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=2))
    else:
        _show(result)
    sys.exit(_exit_status(result))


@contextmanager
def _said_if_slow(text: str) -> Iterator[None]:
    """Says `text` on stderr where the block takes longer than a second."""
    timer = threading.Timer(1.0, click.echo, [text], {"err": True})
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _exit_status(result: Result) -> int:
    if result.status < 400:
        return 0
    return 2 if isinstance(result.error, ConfigError) else 1


def _which(tool: str) -> tuple[str, str]:
    """Name or path, and range."""
    if _is_path(tool):
        if Path(tool).is_dir():
            raise click.UsageError(
                f"{tool}: that is a folder: build it first (`toolcell build {tool}`), then sign it "
                "and run the artifact"
            )
        return tool, ""
    name, at, version = tool.partition("@")
    if not name or (at and not version.strip()):
        raise click.UsageError(
            f"{tool!r:.80}: write TOOL, or TOOL@RANGE with a range such as 1.2.3, ^1.2 or '>=1,<2'"
        )
    return name, version


def _is_path(tool: str) -> bool:
    return "/" in tool or tool.endswith(".tool")


def _harmless(text: str) -> str:
    """A tool's text for a terminal: a control character could type, hide or rewrite lines."""
    return escape_control(text, keep_newlines=True)


def _show(result: Result) -> None:
    """Output on stdout, so that it can be piped; everything else on stderr."""
    for line in result.log:
        click.echo(f"{line.level}: {line.message}", err=True)
    for text in (result.stdout, result.stderr):
        if text:
            click.echo(_harmless(text.rstrip("\n")), err=True)
    for warning in result.warnings:
        click.echo(escape_control(f"warning: {warning}"), err=True)
    if result.error is not None:
        show_error(result.error)
    elif isinstance(result.output, str):
        click.echo(_harmless(result.output))
    else:
        click.echo(_harmless(json.dumps(result.output, ensure_ascii=False, indent=2)))
    metrics = result.metrics
    summary = (
        f"{result.tool or '?'} {result.version} {result.method}: status {result.status}, "
        f"lane {result.lane or 'none'}, {result.duration_ms:.1f} ms, cpu {metrics.cpu_ms:.1f} ms, "
        f"peak {metrics.memory_peak_mb:.1f} MiB"
    )
    click.echo(escape_control(summary), err=True)
