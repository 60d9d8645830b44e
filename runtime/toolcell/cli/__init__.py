"""The `toolcell` command.

Owns the top group and the mapping of errors to exit statuses: 0 for a status under 400, 1 for a
failed call or a machine that fails, 2 for wrong usage or configuration, 130 for an interruption.
Each command lives in the module that `_COMMANDS` names and is imported only when it is called, so
that `toolcell --help` stays quick.
"""

import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from toolcell.errors import CallCancelled, ConfigError, ToolcellError, ToolFault
from toolcell.telemetry.patterns import escape_control

__all__ = ["main", "toolcell"]

EXIT_INTERRUPTED = 130
"""128 and SIGINT, as shells count."""

_COMMANDS = {
    "new": ("toolcell.cli.author", "Start a tool from a template."),
    "lint": ("toolcell.cli.author", "Find what the sandbox would refuse."),
    "build": ("toolcell.cli.author", "Build a tool folder into an artifact."),
    "test": ("toolcell.cli.author", "Run a tool's tests, natively and in a cell."),
    "keygen": ("toolcell.cli.keys", "Make a signing key."),
    "sign": ("toolcell.cli.artifacts", "Sign an artifact."),
    "verify": ("toolcell.cli.artifacts", "Check an artifact's signature and digests."),
    "inspect": ("toolcell.cli.artifacts", "Show what is in an artifact."),
    "publish": ("toolcell.cli.registry", "Put a signed artifact into the registry."),
    "list": ("toolcell.cli.registry", "List what is in the registry."),
    "yank": ("toolcell.cli.registry", "Withdraw a published version."),
    "scope": ("toolcell.cli.registry", "Named sets of tools."),
    "trust": ("toolcell.cli.keys", "Publishers and their keys."),
    "policy": ("toolcell.cli.policy", "Show, check and explain policies."),
    "run": ("toolcell.cli.run", "Call a method of a tool."),
    "audit": ("toolcell.cli.audit", "Check and read the audit log."),
}
"""Command name -> module that holds it (as an attribute of that name, `_` appended where Python
has the word), and its one line of help."""


class _LazyGroup(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name][0])
        command = getattr(module, f"{cmd_name}_command")
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name}_command is not a command")
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="toolcell")
@click.option(
    "--home",
    envvar="TOOLCELL_HOME",
    metavar="DIR",
    help="Where registry, keys, trust and audit live. [default: the user's data folder]",
)
@click.pass_context
def toolcell(ctx: click.Context, home: str | None) -> None:
    """Run tools that nobody has to trust: every call in its own cell."""
    ctx.obj = home


def main(argv: list[str] | None = None) -> None:
    """Entry point of the `toolcell` command. Never shows a Python traceback for a user's error.

    With `--json` among the arguments an error is one JSON object on stdout, `status` and `error`,
    whatever the command is. SIGTERM ends a command like Ctrl-C, so that a call which is stopped by
    a service manager has its end in the audit log.
    """
    arguments = sys.argv[1:] if argv is None else argv
    as_json = "--json" in arguments
    if sys.stdout is None:  # `>&-`: what was asked for would be lost in silence
        sys.exit(1)
    with _terminated_like_interrupted():
        try:
            toolcell.main(args=arguments, prog_name="toolcell", standalone_mode=False)
            sys.stdout.flush()
        except click.exceptions.Abort:
            error: ToolcellError = CallCancelled("interrupted")
            status = EXIT_INTERRUPTED
        except click.ClickException as wrong:
            if not as_json:
                wrong.show()
                sys.exit(wrong.exit_code)
            error = ConfigError(wrong.format_message(), remedy="see --help")
            status = wrong.exit_code
        except ToolcellError as refused:
            error = refused
            status = 2 if isinstance(refused, ConfigError) else 1
        except BrokenPipeError:  # whoever read our output has gone
            _drop_unwritten_output()
            sys.exit(1)
        except OSError as failed:
            error = _of_machine(failed)
            status = 1
            _drop_unwritten_output()
        else:
            return
    if as_json:
        click.echo(json.dumps({"status": error.status, "error": error.to_dict()}, indent=2))
    else:
        show_error(error)
    sys.exit(status)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt inside the block. Elsewhere than in a main thread: no-op."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _drop_unwritten_output() -> None:
    """Gives up what can't be written: Python would try once more at its end, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _of_machine(error: OSError) -> ConfigError:
    where = f"{error.filename}: " if error.filename else ""
    return ConfigError(
        f"{where}{error.strerror or error}", remedy="check the path, its rights and the disk"
    )


def show_error(error: ToolcellError) -> None:
    """Prints `error` and its remedy on stderr, as text that can do nothing to a terminal."""
    lines = [f"error {error.status} ({error.code}): {error.message}"]
    if isinstance(error, ToolFault) and error.guest_detail:
        lines.append(error.guest_detail.rstrip())
    if error.remedy:
        lines.append(f"  remedy: {error.remedy}")
    for line in lines:
        click.echo(escape_control(line, keep_newlines=True), err=True)
