"""`toolcell publish`, `list`, `yank` and `scope`.

Owns the reading of options and the printing. What is decided is decided in `toolcell.registry`.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from toolcell.cli.artifacts import artifact_bytes
from toolcell.cli.terminal import say
from toolcell.home import Home
from toolcell.registry import Registry
from toolcell.trust.store import TrustStore

__all__ = ["list_command", "publish_command", "scope_command", "yank_command"]


@click.command("publish")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--scope", default="default", show_default=True, help="Put it into this scope.")
@click.option("--policy", metavar="CLASS", help="Bind this policy class to the tool.")
@click.option("--transfer", is_flag=True, help="The name may pass to another publisher or id.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def publish_command(
    home: str | None, artifact: Path, scope: str, policy: str | None, transfer: bool, as_json: bool
) -> None:
    """Put a signed ARTIFACT into the registry, after checking it as for a run."""
    place = Home(home)
    if policy is not None:
        from toolcell.cli.policy import require_class

        require_class(place, policy)
    with Registry.open(place) as registry:
        done = registry.publish(
            artifact_bytes(artifact), scope=scope, policy=policy, transfer=transfer
        )
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(done), indent=2))
        return
    what = "published" if done.created else "was published already:"
    say(f"{what} {done.name} {done.version} by {done.publisher} in scope {done.scope}")
    say(f"  {done.digest}")
    if done.policy is not None:
        say(f"  policy class {done.policy} is bound to {done.name}, to every version of it")


@click.command("list")
@click.option("--scope", help="Only what is in this scope.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_obj
def list_command(home: str | None, scope: str | None, as_json: bool) -> None:
    """List what is in the registry, newest version first.

    POLICY is the class that is bound to a tool, `-` where none is. The last column says what keeps
    a version from being used: it was withdrawn, or the key that signed it does not count.
    """
    place = Home(home)
    trust, now = TrustStore.load(place.trust), datetime.now(UTC)
    with Registry.open(place) as registry:
        scopes = registry.scopes.listing()
        if scope is not None:
            registry.scopes.keys(scope)
            scopes = [each for each in scopes if each.name == scope]
        members = {each.name: set(each.tools) for each in scopes}
        bound = registry.bindings()
        rows = [
            {
                **msgspec.to_builtins(row),
                "scopes": [name for name, tools in members.items() if row.name in tools],
                "policy": bound.get(row.name),
                "key_state": trust.state(row.key_id, now),
            }
            for row in registry.versions()
        ]
    if scope is not None:
        rows = [row for row in rows if row["scopes"]]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif not rows:
        say("nothing is published: `toolcell publish ARTIFACT`")
    else:
        _table(
            ("TOOL", "VERSION", "PUBLISHER", "LANE", "SCOPES", "POLICY", "DIGEST", ""),
            [
                (
                    row["name"],
                    row["version"],
                    row["publisher"],
                    row["lane"],
                    ",".join(row["scopes"]) or "-",
                    row["policy"] or "-",
                    row["digest"][:19],
                    _remark(row),
                )
                for row in rows
            ],
        )


@click.command("yank")
@click.argument("name")
@click.argument("version")
@click.option("--why", help="Shown to whoever asks for it. [default: the reason it has]")
@click.option("--undo", is_flag=True, help="Take the withdrawal back.")
@click.pass_obj
def yank_command(home: str | None, name: str, version: str, why: str | None, undo: bool) -> None:
    """Withdraw a published version: nothing resolves to it any more."""
    with Registry.open(Home(home)) as registry:
        if undo:
            registry.unyank(name, version)
            say(f"{name} {version} is available again")
        else:
            say(f"{name} {version} is withdrawn: {registry.yank(name, version, why)}")


@click.group("scope")
def scope_command() -> None:
    """Named sets of tools. A call resolves a name in one scope."""


@scope_command.command("create")
@click.argument("scope")
@click.pass_obj
def create_command(home: str | None, scope: str) -> None:
    """Make an empty scope, with a key of its own."""
    with Registry.open(Home(home)) as registry:
        registry.scopes.create(scope)
    say(f"made scope {scope}")


@scope_command.command("add")
@click.argument("scope")
@click.argument("tools", nargs=-1, required=True)
@click.pass_obj
def add_command(home: str | None, scope: str, tools: tuple[str, ...]) -> None:
    """Put published TOOLS into a scope."""
    with Registry.open(Home(home)) as registry:
        for tool in tools:
            registry.scopes.add(scope, tool)
            say(f"added {tool} to scope {scope}")


@scope_command.command("remove")
@click.argument("scope")
@click.argument("tools", nargs=-1, required=True)
@click.pass_obj
def remove_command(home: str | None, scope: str, tools: tuple[str, ...]) -> None:
    """Take TOOLS out of a scope; they stay in the registry."""
    with Registry.open(Home(home)) as registry:
        for tool in tools:
            registry.scopes.remove(scope, tool)
            say(f"removed {tool} from scope {scope}")


@scope_command.command("rotate")
@click.argument("scope")
@click.option("--drop-previous", is_flag=True, help="The old key ends at once.")
@click.pass_obj
def rotate_command(home: str | None, scope: str, drop_previous: bool) -> None:
    """Give a scope a new key. The old one stays valid until the next rotation."""
    with Registry.open(Home(home)) as registry:
        registry.scopes.rotate(scope, drop_previous=drop_previous)
    say(f"scope {scope} has a new key")


@scope_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_obj
def list_scopes_command(home: str | None, as_json: bool) -> None:
    """List scopes, their tools, and entries that were tampered with."""
    with Registry.open(Home(home)) as registry:
        scopes = registry.scopes.listing()
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(scopes), indent=2))
        return
    if not scopes:
        say("no scope yet: publishing makes `default`")
    for scope in scopes:
        keys = "two keys valid" if scope.previous_key_valid else "one key"
        say(f"{scope.name} ({keys}): {', '.join(scope.tools) or 'empty'}")
        for name in scope.tampered:
            say(f"    not made with this scope's key, and refused: {name}", err=True)


def _remark(row: dict[str, Any]) -> str:
    """What keeps a listed version from being used, if anything does."""
    state = row["key_state"].removesuffix("_key").replace("_", " ")
    parts = [f"withdrawn: {row['yanked_why']}"] if row["yanked_at"] else []
    parts += [f"key {state}"] if state != "valid" else []
    return "; ".join(parts)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    for row in (titles, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())
