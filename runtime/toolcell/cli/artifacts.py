"""`toolcell sign`, `toolcell verify` and `toolcell inspect`.

Owns the reading of options, the writing of a signed file and the printing. What is decided is
decided in `toolcell.artifact`.
"""

import json
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from toolcell.artifact.build import sign_artifact
from toolcell.artifact.component import component_imports
from toolcell.artifact.open import Contents, open_artifact, read_artifact_file, read_contents
from toolcell.artifact.shown import shown
from toolcell.cli import show_error
from toolcell.cli.keys import signing_key
from toolcell.cli.terminal import say
from toolcell.errors import ArtifactRejected, ConfigError
from toolcell.home import Home
from toolcell.registry import Registry
from toolcell.trust.store import TrustStore

__all__ = ["artifact_bytes", "inspect_command", "sign_command", "verify_command"]

_ARTIFACT = click.Path(path_type=Path)


@click.command("sign")
@click.argument("artifact", type=_ARTIFACT)
@click.option("--key", metavar="NAME|FILE", help="Sign with this key. [default: the only one]")
@click.option("--out", type=_ARTIFACT, help="Write the signed artifact here. [default: in place]")
@click.pass_obj
def sign_command(home: str | None, artifact: Path, key: str | None, out: Path | None) -> None:
    """Sign ARTIFACT. A signature that is there already is replaced."""
    archive = artifact_bytes(artifact)
    signer = signing_key(Home(home), key)
    signed = sign_artifact(archive, signer)
    target = out or artifact
    _replace_file(target, signed)
    say(f"signed {target} with key {signer.public.id[:16]}")


@click.command("verify")
@click.argument("artifact", type=_ARTIFACT)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def verify_command(home: str | None, artifact: Path, as_json: bool) -> None:
    """Check ARTIFACT: container, signature, publisher, and every byte of every file.

    Exit status: 0 where it would be run, 1 where it would be refused.
    """
    trust = TrustStore.load(Home(home).trust)
    try:
        found = open_artifact(artifact_bytes(artifact), trust)
    except ArtifactRejected as error:
        if as_json:
            about = {"valid": False, "status": error.status, "error": error.to_dict()}
            click.echo(json.dumps(about, indent=2))
        else:
            show_error(error)
        sys.exit(1)
    about = {
        "valid": True,
        "name": found.manifest.name,
        "version": found.manifest.version,
        "digest": found.digest,
        "publisher": found.publisher,
        "key_id": found.key.id,
        "files": len(found.manifest.files),
    }
    if as_json:
        click.echo(json.dumps(about, indent=2))
        return
    say(f"{about['name']} {about['version']} is valid")
    say(f"  publisher  {found.publisher} (key {found.key.id[:16]})")
    say(f"  digest     {found.digest}")


@click.command("inspect")
@click.argument("tool", metavar="ARTIFACT|TOOL[@RANGE]")
@click.option("--scope", default="default", show_default=True, help="Resolve TOOL in this scope.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def inspect_command(home: str | None, tool: str, scope: str, as_json: bool) -> None:
    """Show what is in an artifact: manifest, methods, imports, publisher.

    An artifact need not be trusted to be looked at: nothing of it is run or compiled.
    """
    place = Home(home)
    if "/" in tool or tool.endswith(".tool"):
        contents = read_contents(artifact_bytes(Path(tool)))
        contents.check_files()
    else:
        name, _, wanted = tool.partition("@")
        with Registry.open(place) as registry:
            contents = registry.look(name, wanted, scope=scope)
    about = _described(contents, TrustStore.load(place.trust))
    if as_json:
        click.echo(json.dumps(about, indent=2))
    else:
        _show(about)


def artifact_bytes(path: Path) -> bytes:
    """The artifact in `path`, which was typed here: a message may say all of it.

    Elsewhere it may not, since a path of the host must not get into a result.
    """
    try:
        return read_artifact_file(path)
    except ArtifactRejected as error:
        if error.details.get("reason") != "not_a_file":
            raise
        raise ArtifactRejected(
            f"{path}{error.message.removeprefix(path.name)}",
            remedy=error.remedy,
            status=error.status,
            details=error.details,
        ) from None


def _described(contents: Contents, trust: TrustStore) -> dict[str, Any]:
    manifest = contents.manifest
    signature: dict[str, str]
    try:
        key = open_artifact(contents.raw, trust).key
        signature = {"state": "valid", "publisher": key.publisher, "key_id": key.id}
    except ArtifactRejected as error:
        signature = {"state": str(error.details.get("reason")), "message": error.message}
    return {
        "digest": contents.digest,
        "size_bytes": len(contents.raw),
        "signature": signature,
        "manifest": msgspec.to_builtins(manifest),
        "file_bytes": {name: contents.spans[name].size for name in manifest.files},
        "imports": component_imports(contents.data(manifest.entry_point)),
    }


def _show(about: dict[str, Any]) -> None:
    manifest, signature = about["manifest"], about["signature"]
    say(f"{manifest['name']} {manifest['version']}  {_one_line(manifest['description'])}")
    signed = signature["state"]
    if signed == "valid":
        signed = f"valid, publisher {signature['publisher']} (key {signature['key_id'][:16]})"
    else:
        signed = f"{signed.replace('_', ' ')}: {signature['message']}"
    rows = [
        ("signature", signed),
        ("digest", about["digest"]),
        ("tool id", manifest["id"]),
        ("lane", f"{manifest['lane']}, entry point {manifest['entry_point']}"),
        ("policy class", manifest["policy_class"]),
        ("capabilities", ", ".join(manifest["capabilities"]) or "none"),
        (
            "size",
            f"{about['size_bytes']} bytes, files: {', '.join(sorted(manifest['files'])[:10])}",
        ),
    ]
    limits = {name: value for name, value in manifest["limits"].items() if value is not None}
    rows += [("limits", ", ".join(f"{k} {v}" for k, v in limits.items()))] if limits else []
    for title, text in rows:
        say(f"  {title:13} {text}")
    for name, method in manifest["methods"].items():
        say(f"  method {name}: {_one_line(method['description'])}".rstrip(": "))
        for direction in ("input", "output"):
            schema = json.dumps(method[direction], ensure_ascii=True)
            say(f"      {direction:6} {schema}")
    if about["imports"] is not None:
        say("  imports")
        for name in about["imports"]:
            say(f"      {name}")


def _one_line(text: str) -> str:
    """A publisher's text for a terminal: its first line, printable characters only."""
    return shown(text.strip().partition("\n")[0])


def _replace_file(path: Path, data: bytes) -> None:
    """Writes `path` in one step: whoever reads it sees the old or the new artifact."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(aside, flags, 0o644), "wb") as file:
            file.write(data)
        aside.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} can't be written: {error.strerror}", remedy="name another file with --out"
        ) from None
    finally:
        with suppress(FileNotFoundError):
            aside.unlink()
