"""`toolcell keygen` and `toolcell trust`: keys of one's own, and whose keys count.

Owns the reading of options and the printing. What is decided is decided in `toolcell.trust`.
"""

import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from toolcell.errors import ConfigError
from toolcell.home import Home
from toolcell.trust.edit import add_key, remove_key, revoke_key
from toolcell.trust.keys import PublicKey, SigningKey, write_new
from toolcell.trust.plain_file import open_plain_file
from toolcell.trust.store import Revocation, TrustedKey, TrustStore

__all__ = ["PASSPHRASE_VARIABLE", "keygen_command", "signing_key", "trust_command"]

PASSPHRASE_VARIABLE = "TOOLCELL_KEY_PASSPHRASE"  # noqa: S105 - a name
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_MAX_PUBLIC_KEY_BYTES = 4096

_INSTANT = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S%z"])


@click.command("keygen")
@click.argument("name")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write it here. [default: the home's keys]"
)
@click.option("--passphrase", is_flag=True, help="Encrypt it; the passphrase is asked for.")
@click.option("--trust", is_flag=True, help="Trust it here, as the key of publisher NAME.")
@click.pass_obj
def keygen_command(
    home: str | None, name: str, out: Path | None, passphrase: bool, trust: bool
) -> None:
    """Make a signing key called NAME (Ed25519).

    The private part goes to a file that only you can read; nothing is ever overwritten. The public
    part is printed: give it to whoever should trust your tools.
    """
    place = Home(home)
    _check_name(name)
    path = out or _key_path(place, name)
    key = SigningKey.generate()
    secret = _new_passphrase() if passphrase else ""
    write_new(path.absolute(), key.to_pem(secret), 0o600)
    # The key is there now: whatever becomes of the rest, its public part is told.
    click.echo(f"private key  {path} (keep it to yourself)")
    click.echo(f"key id       {key.public.id}")
    click.echo(f"public key   {key.public}")
    if trust:
        add_key(place.trust, name, key.public, comment="made by toolcell keygen")
        click.echo(f"trusted here as a key of publisher `{name}`")
    else:
        click.echo(f"to trust it: toolcell trust add {name} {key.public}")


@click.group("trust")
def trust_command() -> None:
    """Publishers and their keys: whose signatures count here."""


@trust_command.command("add")
@click.argument("publisher")
@click.argument("public_key", metavar="PUBLIC_KEY|FILE")
@click.option("--not-before", type=_INSTANT, help="Counts from this time on (UTC).")
@click.option("--not-after", type=_INSTANT, help="Counts until just before this time (UTC).")
@click.option("--comment", default="", help="For people.")
@click.pass_obj
def add_command(
    home: str | None,
    publisher: str,
    public_key: str,
    not_before: datetime | None,
    not_after: datetime | None,
    comment: str,
) -> None:
    """Trust a key of PUBLISHER: base64, as `keygen` prints it, or a PEM file."""
    _check_name(publisher)
    key = PublicKey.parse(_text_of_key(public_key))
    store = Home(home).trust
    add_key(
        store,
        publisher,
        key,
        not_before=_utc(not_before),
        not_after=_utc(not_after),
        comment=comment,
    )
    added = TrustStore.load(store).keys[key.id]
    state = added.state(datetime.now(UTC))
    if state == "valid":
        click.echo(f"key {key.id[:16]} is trusted as a key of `{publisher}`")
        return
    click.echo(f"key {key.id[:16]} is now known as a key of `{publisher}`")
    why = "has expired already" if state == "expired" else "does not count yet"
    click.echo(f"warning: it {why}: what it signed is refused", err=True)


@trust_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_obj
def list_command(home: str | None, as_json: bool) -> None:
    """List publishers, their keys, and whether each counts now."""
    now = datetime.now(UTC)
    store = TrustStore.load(Home(home).trust)
    keys = sorted(store.keys.values(), key=lambda key: key.publisher)
    elsewhere = store.revoked_elsewhere
    if as_json:
        described = [_described(key, now) for key in keys]
        described += [_described_revocation(key_id, each) for key_id, each in elsewhere.items()]
        click.echo(json.dumps(described, indent=2))
        return
    if not keys:
        click.echo("no key is trusted: `toolcell trust add PUBLISHER PUBLIC_KEY`")
    for key in keys:
        click.echo(f"{key.publisher}  {key.id[:16]}  {key.state(now).replace('_', ' ')}")
        for line in _details(key):
            click.echo(f"    {line}")
    for key_id, each in elsewhere.items():
        click.echo(f"(nobody's)  {key_id[:16]}  revoked")
        click.echo(f"    revoked {each.when.isoformat()}: {each.why}")


@trust_command.command("revoke")
@click.argument("key_id")
@click.option("--why", required=True, help="Why: it is shown wherever the key is refused.")
@click.pass_obj
def revoke_command(home: str | None, key_id: str, why: str) -> None:
    """Refuse everything that a key ever signed, from now on.

    KEY_ID may be its beginning, at least 8 digits. In full, it may also be the id of a key that is
    not in the store: then it can't be added any more.
    """
    revoked = revoke_key(Home(home).trust, key_id, why)
    click.echo(f"key {revoked[:16]} is revoked; whatever it signed is refused")


@trust_command.command("remove")
@click.argument("key_id")
@click.option("--force", is_flag=True, help="Also a revoked one, whose revocation is forgotten.")
@click.pass_obj
def remove_command(home: str | None, key_id: str, force: bool) -> None:
    """Forget a key. To record that it was lost, use `revoke`.

    KEY_ID may be its beginning, at least 8 digits. A revoked key is kept, so that nobody trusts it
    again by mistake.
    """
    removed = remove_key(Home(home).trust, key_id, force=force)
    if force:
        click.echo("warning: if it was revoked, nothing remembers that now", err=True)
    click.echo(f"key {removed[:16]} is forgotten; whatever it signed is refused")


def signing_key(home: Home, named: str | None) -> SigningKey:
    """The private key `named`: a name in the home's keys, or a path; None: the only one there.

    An encrypted one takes its passphrase from $TOOLCELL_KEY_PASSPHRASE, or asks at a terminal.
    """
    path = _only_key(home) if named is None else _key_path(home, named)
    passphrase = os.environ.get(PASSPHRASE_VARIABLE, "")
    try:
        return SigningKey.load(path)
    except ConfigError as error:
        if not error.details.get("encrypted"):
            raise
    if not passphrase:
        if not sys.stdin.isatty():
            raise ConfigError(
                f"{path} is encrypted, and there is nobody to ask for its passphrase",
                remedy=f"set ${PASSPHRASE_VARIABLE}, or run it at a terminal",
            )
        passphrase = click.prompt(f"passphrase of {path.name}", hide_input=True, err=True)
    return SigningKey.load(path, passphrase)


def _only_key(home: Home) -> Path:
    found = sorted(home.keys.glob("*.pem")) if home.keys.is_dir() else []
    if len(found) != 1:
        names = ", ".join(path.stem for path in found[:10])
        raise ConfigError(
            f"there are {len(found)} keys to sign with" + (f": {names}" if names else ""),
            remedy="say which one with --key" if found else "make one: `toolcell keygen NAME`",
        )
    return found[0]


def _key_path(home: Home, named: str) -> Path:
    if "/" in named or named.endswith(".pem"):
        return Path(named)
    return home.keys / f"{named}.pem"


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:64]!a} is not a publisher's name",
            remedy="use lower-case letters, digits, dots, dashes and underscores; at most 64",
        )


def _new_passphrase() -> str:
    secret = os.environ.get(PASSPHRASE_VARIABLE)
    if secret:
        return secret
    asked: str = click.prompt("passphrase", hide_input=True, confirmation_prompt=True, err=True)
    return asked


def _text_of_key(given: str) -> str:
    """`given`, or the content of the file of that name, where there is one."""
    try:
        with open_plain_file(Path(given)) as file:
            return file.read(_MAX_PUBLIC_KEY_BYTES).decode("ascii", "replace")
    except (OSError, ValueError) as error:
        if given.endswith((".pem", ".pub")):
            raise ConfigError(
                f"{given[:200]} can't be read: {getattr(error, 'strerror', 'a bad name')}",
                remedy="give a public key as `toolcell keygen` printed it, or its PEM file",
            ) from None
        return given


def _utc(when: datetime | None) -> datetime | None:
    if when is None:
        return None
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when


def _details(key: TrustedKey) -> list[str]:
    lines = [f"public key {key.public}"]
    if key.not_before is not None:
        lines.append(f"from {key.not_before.isoformat()}")
    if key.not_after is not None:
        lines.append(f"until {key.not_after.isoformat()}")
    if key.revoked is not None:
        lines.append(f"revoked {key.revoked.when.isoformat()}: {key.revoked.why}")
    if key.comment:
        lines.append(f"# {key.comment}")
    return lines


def _described(key: TrustedKey, now: datetime) -> dict[str, str | None]:
    return {
        "publisher": key.publisher,
        "key_id": key.id,
        "public_key": str(key.public),
        "state": key.state(now),
        "not_before": key.not_before.isoformat() if key.not_before else None,
        "not_after": key.not_after.isoformat() if key.not_after else None,
        "revoked_at": key.revoked.when.isoformat() if key.revoked else None,
        "revoked_why": key.revoked.why if key.revoked else None,
        "comment": key.comment,
    }


def _described_revocation(key_id: str, revocation: Revocation) -> dict[str, str | None]:
    """A key that is known by its revocation alone, with the fields of :func:`_described`."""
    return {
        "publisher": None,
        "key_id": key_id,
        "public_key": None,
        "state": "revoked",
        "not_before": None,
        "not_after": None,
        "revoked_at": revocation.when.isoformat(),
        "revoked_why": revocation.why,
        "comment": "",
    }
