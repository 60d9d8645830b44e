"""The `toolcell` command.

Owns the top group and the mapping of errors to exit statuses: 0 for a status under 400, 1 for a
failed call, 2 for wrong usage or configuration. Each command lives in the module that `_COMMANDS`
names and is imported only when it is called, so that `toolcell --help` stays quick.
"""

import importlib
import os
import sys

import click

from toolcell.errors import ConfigError, ToolcellError, ToolFault
from toolcell.telemetry.patterns import escape_control

__all__ = ["main", "toolcell"]

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
    """Entry point of the `toolcell` command. Never shows a Python traceback for a user's error."""
    try:
        toolcell.main(args=argv, prog_name="toolcell", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except ToolcellError as error:
        show_error(error)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        show_error(
            ConfigError(
                f"{where}{error.strerror or error}",
                remedy="check the path, its rights and the disk",
            )
        )
        sys.exit(1)


def show_error(error: ToolcellError) -> None:
    """Prints `error` and its remedy on stderr, as text that can do nothing to a terminal."""
    lines = [f"error {error.status} ({error.code}): {error.message}"]
    if isinstance(error, ToolFault) and error.guest_detail:
        lines.append(error.guest_detail.rstrip())
    if error.remedy:
        lines.append(f"  remedy: {error.remedy}")
    for line in lines:
        click.echo(escape_control(line, keep_newlines=True), err=True)
