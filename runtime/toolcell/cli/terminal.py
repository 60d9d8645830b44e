"""Printing for people.

Owns one rule: words of a publisher, a policy's author or a tool can do nothing to a terminal, such
as hide the line that says what a policy grants. Used by every command that shows such words; JSON
is for machines and printed as it is.
"""

import click

from toolcell.telemetry.patterns import escape_control

__all__ = ["say"]


def say(line: str = "", *, err: bool = False) -> None:
    """Prints one line, with control, direction-changing and invisible characters spelled out."""
    click.echo(escape_control(line), err=err)
