"""`toolcell policy`: show, check and explain policies.

Owns the printing. What is printed comes from `toolcell.policy`; nothing here decides anything.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from toolcell.artifact.manifest import MAX_MANIFEST_BYTES, Manifest
from toolcell.artifact.open import read_contents
from toolcell.artifact.strict_json import finite_float
from toolcell.cli.artifacts import artifact_bytes
from toolcell.cli.terminal import say
from toolcell.errors import ConfigError
from toolcell.home import Home
from toolcell.policy.book import PolicyBook
from toolcell.policy.compose import Grant, Mask, effective
from toolcell.policy.explain import Row, explain, matters
from toolcell.policy.fields import FIELDS, flatten
from toolcell.policy.review import Review, review
from toolcell.registry import Registry

__all__ = ["policy_command", "require_class"]

_MANIFEST = msgspec.json.Decoder(Manifest, float_hook=finite_float)


@click.group("policy")
def policy_command() -> None:
    """Show, check and explain policies: what calls may use, and why."""


@policy_command.command("show")
@click.argument("policy", metavar="[NAME|FILE]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def show_command(home: str | None, policy: str | None, as_json: bool) -> None:
    """List the policies, or show every field of one.

    NAME is a class or a mask; FILE a policy file, FILE#NAME where it holds several.
    """
    book = PolicyBook(Home(home))
    if policy is None:
        _show_all(book, as_json=as_json)
        return
    catalog = book.catalog()
    entry = catalog.masks.get(policy) or book.grant(policy)
    about = {"name": entry.name, "origin": entry.origin, "description": entry.description}
    if isinstance(entry, Mask):
        values = dict(entry.values)
        content = {"mask": values}
    else:
        values = flatten(entry.envelope)
        content = {"envelope": msgspec.to_builtins(entry.envelope)}
    if as_json:
        _print_json({**about, **content})
        return
    say(f"{entry.name} ({entry.origin})")
    if entry.description:
        say(f"  {entry.description}")
    say()
    rows = [(path, _shown(value), FIELDS[path].unit) for path, value in values.items()]
    _print_table(("FIELD", "VALUE", "UNIT"), rows)


def _show_all(book: PolicyBook, *, as_json: bool) -> None:
    catalog = book.catalog()
    if as_json:
        _print_json(
            {
                kind: [
                    {"name": each.name, "origin": each.origin, "description": each.description}
                    for each in entries
                ]
                for kind, entries in (
                    ("classes", catalog.grants.values()),
                    ("masks", catalog.masks.values()),
                )
            }
        )
        return
    for title, entries in (("CLASS", catalog.grants.values()), ("MASK", catalog.masks.values())):
        rows = [(each.name, each.origin, each.description) for each in entries]
        _print_table((title, "FROM", ""), rows)
        say()


@policy_command.command("check")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def check_command(home: str | None, files: tuple[Path, ...], as_json: bool) -> None:
    """List everything that is wrong with policy files; by default, those of the home folder.

    Exit status 2 where there is a problem. A note is no problem: it is valid, and may not be what
    was meant.
    """
    folder = Home(home).policies
    paths = [path.absolute() for path in files] or sorted(folder.glob("*.toml"))
    reviews = review(paths, folder)
    if as_json:
        _print_json({"files": [msgspec.to_builtins(_plain(each)) for each in reviews]})
    else:
        for each in reviews:
            _show_review(each)
        if not reviews:
            say(f"no policy files in {folder}")
    sys.exit(2 if any(each.problems for each in reviews) else 0)


def _plain(review: Review) -> dict[str, Any]:
    return {**msgspec.structs.asdict(review), "path": str(review.path)}


def _show_review(review: Review) -> None:
    held = f"{_counted(len(review.classes), 'class')}, {_counted(len(review.masks), 'mask')}"
    wrong = _counted(len(review.problems), "problem") if review.problems else "ok"
    say(f"{review.path}: {wrong} ({held})")
    for problem in review.problems:
        say(f"  {str(problem).removeprefix(f'{review.path}: ')}")
        if problem.remedy:
            say(f"    remedy: {problem.remedy}")
    for note in review.notes:
        say(f"  note: {note}")


@policy_command.command("explain")
@click.argument("tool", metavar="TOOL|ARTIFACT|MANIFEST")
@click.option(
    "--policy", "-p", metavar="NAME|FILE", help="[default: the registry's, else the manifest's]"
)
@click.option(
    "--mask", "-m", "masks", multiple=True, metavar="NAME", help="Narrow by this; repeat."
)
@click.option("--scope", default="default", show_default=True, help="Resolve in this scope.")
@click.option("--all", "everything", is_flag=True, help="Also what can make no difference.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def explain_command(
    home: str | None,
    tool: str,
    policy: str | None,
    masks: tuple[str, ...],
    scope: str,
    everything: bool,
    as_json: bool,
) -> None:
    """Show what TOOL would get: asked for, granted, effective, and which step decided.

    The argument is a tool of the registry (NAME or NAME@RANGE), an artifact (*.tool), or a
    manifest (*.json): `toolcell policy explain ./manifest.json --policy policy.toml`.
    Exit status 1 where the policy as such is refused.
    """
    place = Home(home)
    book = PolicyBook(place)
    manifest, bound = _subject(place, tool, scope)
    policy = policy or bound
    grant = book.grant(policy) if policy else book.chosen_by(manifest)
    narrowing = book.masks(masks, policy)
    found = effective(manifest, grant, narrowing)
    rows = explain(manifest, grant, narrowing)
    if not everything:
        rows = [row for row in rows if matters(row.field, found.envelope)]
    digest = book.digest(found.envelope)
    if as_json:
        _print_json(
            {
                "tool": manifest.name,
                "version": manifest.version,
                "policy": grant.name,
                "origin": grant.origin,
                "masks": [mask.name for mask in narrowing],
                "policy_digest": digest,
                "fields": rows,
                "denied": found.denied,
            }
        )
        return
    _show_explained(manifest, grant, narrowing, rows)
    say()
    for denial in found.denied:
        say(f"denied: {denial.grant}: {denial.why}")
        say(f"  remedy: {denial.remedy}")
    say(f"policy digest: {digest}")


def _show_explained(
    manifest: Manifest, grant: Grant, masks: Sequence[Grant | Mask], rows: Sequence[Row]
) -> None:
    narrowed = "".join(f", mask `{mask.name}`" for mask in masks)
    say(f"{manifest.name} {manifest.version} under policy `{grant.name}`{narrowed}")
    say()
    _print_table(
        ("FIELD", "REQUESTED", "GRANTED", "EFFECTIVE", "WHY"),
        [
            (
                row.field,
                "-" if row.requested is None else _shown(row.requested),
                _shown(row.granted),
                _shown(row.effective),
                row.why,
            )
            for row in rows
        ],
    )


@policy_command.command("bind")
@click.argument("tool")
@click.argument("policy", metavar="CLASS")
@click.pass_obj
def bind_command(home: str | None, tool: str, policy: str) -> None:
    """Bind a policy class to a published TOOL: each version gets it where a call names none.

    `toolcell list` shows what is bound.
    """
    place = Home(home)
    require_class(place, policy)
    with Registry.open(place) as registry:
        registry.bind_policy(tool, policy)
    say(f"policy class {policy} is bound to {tool}, to every version of it")


@policy_command.command("unbind")
@click.argument("tool")
@click.pass_obj
def unbind_command(home: str | None, tool: str) -> None:
    """Take a binding back: TOOL gets the class that its manifest names, where that is allowed."""
    with Registry.open(Home(home)) as registry:
        registry.bind_policy(tool, None)
    say(f"no policy class is bound to {tool}")


def require_class(home: Home, policy: str) -> None:
    """:class:`ConfigError` where `policy` is no class of `home` that could be bound to a tool."""
    known = PolicyBook(home).catalog().grants
    if policy not in known:
        raise ConfigError(
            f"there is no policy class {policy[:64]!a}; there are {', '.join(sorted(known))}",
            remedy="name one of those, or put a file that defines it into the home's policies",
        )


def _subject(home: Home, tool: str, scope: str) -> tuple[Manifest, str | None]:
    """The manifest of `tool`, and the policy that the registry binds to it.

    An artifact or a manifest on disk is nobody's word: it is only read, and nothing of it is run.
    """
    if tool.endswith(".json"):
        return _read_manifest(tool), None
    if "/" in tool or tool.endswith(".tool"):
        return read_contents(artifact_bytes(Path(tool))).manifest, None
    name, _, version = tool.partition("@")
    with Registry.open(home) as registry:
        found = registry.resolve(name, version, scope=scope)
    return found.artifact.manifest, found.policy


def _read_manifest(path: str) -> Manifest:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read: {error.strerror}", remedy="give the path of a manifest.json"
        ) from None
    if len(raw) > MAX_MANIFEST_BYTES:
        raise ConfigError(
            f"{path} has more than {MAX_MANIFEST_BYTES} bytes", remedy="that is no manifest"
        )
    try:
        return _MANIFEST.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a manifest: {error}", remedy="make one with `toolcell build`"
        ) from None


def _counted(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(_shown(each) for each in value) or "(none)"
    if isinstance(value, msgspec.Struct):
        return " ".join(str(each) for each in msgspec.structs.astuple(value))
    return str(value) if value != "" else "(none)"


def _print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns, never cut: what a policy says is not abbreviated."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say(line.rstrip())
