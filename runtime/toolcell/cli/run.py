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

MAX_INPUT_BYTES = 64 * 1024 * 1024
"""What is read from a file or standard input; the policy's own limit on messages applies after."""


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
    metavar="NAME=VALUE|@FILE",
    help="Set one field of the input: JSON, plain text, or a text file's content. Repeat.",
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
    toolcell run csv-profile@^0.1 profile --arg csv=@sales.csv --policy policy.toml --json
    """
    from toolcell.cli.keys import signing_key
    from toolcell.home import Home
    from toolcell.runtime import CallOptions, Runtime

    raw = _with_arguments(_read_input(input_), arguments)
    name, _, version = (tool, "", "") if _is_path(tool) else tool.partition("@")
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


def _is_path(tool: str) -> bool:
    return "/" in tool or tool.endswith(".tool")


def _read_input(text: str) -> bytes:
    if text == "-":
        raw = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    elif text.startswith("@"):
        try:
            with Path(text[1:]).open("rb") as file:
                raw = file.read(MAX_INPUT_BYTES + 1)
        except OSError as error:
            raise click.UsageError(f"--input {text}: {error.strerror}") from None
    else:
        raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_INPUT_BYTES:
        raise click.UsageError(f"--input has more than {MAX_INPUT_BYTES} bytes")
    return raw


def _with_arguments(raw: bytes, arguments: tuple[str, ...]) -> bytes:
    """`raw` with each `NAME=VALUE` set as a field. Left as it is where there is none: text that is
    not JSON is the runtime's to refuse."""
    if not arguments:
        return raw
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise click.UsageError("--arg needs an --input that is a JSON object (the default is {})")
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--arg {argument!r}: write NAME=VALUE or NAME=@FILE")
        fields[name] = _argument_value(name, value)
    return json.dumps(fields).encode()


def _argument_value(name: str, value: str) -> Any:
    if not value.startswith("@"):
        try:
            return json.loads(value)
        except ValueError:
            return value
        except RecursionError:
            raise click.UsageError(f"--arg {name}: its value is nested too deeply") from None
    try:
        return _read_input(value).decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--arg {name}={value}: not UTF-8 text ({error.reason})") from None


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
