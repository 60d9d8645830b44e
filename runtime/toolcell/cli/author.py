"""`toolcell new | lint | build | test`: from nothing to an artifact.

Owns the printing and the file that a build leaves. The work is `toolcell_sdk`'s and
`toolcell.artifact`'s.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from toolcell.artifact.build import artifact_file_name, build_artifact
from toolcell.artifact.names import MANIFEST_NAME
from toolcell.artifact.open import read_contents
from toolcell.builders import builder_of, cell_runner_of
from toolcell.errors import ConfigError
from toolcell.telemetry.patterns import escape_control
from toolcell_sdk.errors import SdkError
from toolcell_sdk.lint import LintError

__all__ = ["build_command", "lint_command", "new_command", "test_command"]

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@contextmanager
def _sdk_errors() -> Iterator[None]:
    """The SDK's errors as the runtime's: the SDK knows nothing of ours."""
    try:
        yield
    except LintError as error:
        raise ConfigError(
            f"lint found what a cell would refuse:\n{error}", remedy="mend the lines that it names"
        ) from None
    except SdkError as error:
        raise ConfigError(str(error)) from None


@click.command("new")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", default="", help="The tool's name. [default: the folder's]")
def new_command(folder: Path, name: str) -> None:
    """Start a tool in the new folder FOLDER.

    It builds and passes its tests as it is.
    """
    from toolcell_sdk.scaffold import new

    with _sdk_errors():
        files = new(folder, name=name)
    for file in files:
        click.echo(f"  {file}")
    click.echo(f"next: toolcell test {folder} && toolcell build {folder}")


@click.command("lint")
@click.argument("folder", type=_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of findings.")
def lint_command(folder: Path, as_json: bool) -> None:
    """Find what a cell would refuse, before it does.

    Exit status 1 where anything would stop a build; warnings alone leave it 0.
    """
    from dataclasses import asdict

    from toolcell_sdk.lint import lint

    with _sdk_errors():
        findings = lint(folder)
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            # It names files and words of somebody else's project.
            click.echo(escape_control(f"{finding.severity}: {finding}"))
        if not findings:
            click.echo("nothing found")
    sys.exit(1 if any(finding.severity == "error" for finding in findings) else 0)


@click.command("build")
@click.argument("folder", type=_FOLDER)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the artifact goes. [default: FOLDER/build]",
)
@click.option("--lane", default="", help="Build for this lane. [default: tool.toml's]")
@click.option(
    "--require-reproducible",
    is_flag=True,
    help="Fail where this machine can't make the same bytes as any other.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def build_command(
    folder: Path, out: Path | None, lane: str, require_reproducible: bool, as_json: bool
) -> None:
    """Build the tool in FOLDER into NAME-VERSION.tool, not yet signed.

    A Python tool (`tool.toml`) builds for either lane from the same source. A folder with a
    `manifest.json` is a program as it is, for the oops lane.
    """
    from toolcell_sdk.build import COMPONENT, build

    with _sdk_errors():
        lane = lane or _lane_of(folder)
    if lane != "wasi":
        _build_elsewhere(folder, out or folder / "build", lane, as_json)
        return

    def say(stage: str) -> None:
        # `done` is the component's; the artifact, which is what was asked for, is yet to be written
        if not as_json and stage != "done":
            click.echo(f"  {stage} …", err=True)

    started = time.monotonic()
    with _sdk_errors(), tempfile.TemporaryDirectory(prefix="toolcell-build-") as scratch:
        built = build(folder, scratch, progress=say, require_reproducible=require_reproducible)
        component = built.component.read_bytes()
    say("pack")
    archive = build_artifact(built.manifest_fields(), {COMPONENT: component})
    contents = read_contents(archive)
    artifact = _write_whole(out or folder / "build", artifact_file_name(contents.manifest), archive)
    warnings = [str(finding) for finding in built.warnings]
    if built.not_reproducible_because:
        warnings.append(f"not reproducible: {built.not_reproducible_because}")
    report = {
        "artifact": str(artifact),
        "digest": contents.digest,
        "size_bytes": len(archive),
        "methods": sorted(built.methods),
        "reproducible": built.reproducible,
        "warnings": warnings,
        "toolchain": dict(built.toolchain),
    }
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for warning in warnings:
        click.echo(escape_control(f"warning: {warning}", keep_newlines=True), err=True)
    click.echo(f"{artifact}")
    click.echo(f"  digest   {contents.digest}")
    click.echo(f"  size     {len(archive) / 1e6:.1f} MB, in {time.monotonic() - started:.1f} s")
    click.echo(f"  methods  {', '.join(sorted(built.methods))}")


def _lane_of(folder: Path) -> str:
    """What the folder's own files name as its lane."""
    from toolcell_sdk.project import PROJECT_FILE, load_project

    if not (folder / PROJECT_FILE).exists() and (folder / MANIFEST_NAME).exists():
        return "oops"
    return load_project(folder).lane


def _build_elsewhere(folder: Path, out: Path, lane: str, as_json: bool) -> None:
    """Builds with the builder that the lane registered."""
    with _sdk_errors():
        archive = builder_of(lane)(folder)
    contents = read_contents(archive)
    artifact = _write_whole(out, artifact_file_name(contents.manifest), archive)
    report = {
        "artifact": str(artifact),
        "digest": contents.digest,
        "size_bytes": len(archive),
        "methods": sorted(contents.manifest.methods),
        "lane": lane,
    }
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    click.echo(f"{artifact}")
    click.echo(f"  digest   {contents.digest}")
    click.echo(f"  size     {len(archive) / 1e6:.1f} MB")
    click.echo(f"  methods  {', '.join(sorted(contents.manifest.methods))}")


def _write_whole(folder: Path, name: str, data: bytes) -> Path:
    """Writes the file beside its place and renames it: a half-written artifact is never seen."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, beside = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(beside).chmod(0o644)
            return Path(beside).replace(folder / name)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(
            f"{folder / name} can't be written: {error.strerror}", remedy="name another --out"
        ) from None


@click.command("test")
@click.argument("folder", type=_FOLDER)
@click.option("--cell", is_flag=True, help="Build the tool and run its methods in a cell.")
@click.option("--lane", default="wasi", show_default=True, help="The lane of that cell.")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def test_command(folder: Path, cell: bool, lane: str, pytest_args: tuple[str, ...]) -> None:
    """Run the tests of the tool in FOLDER against the test kit's broker.

    Natively by default, which takes a moment; with --cell as it will run, where fuel and memory
    are measured. What follows `--` goes to pytest.
    """
    from toolcell.cell_runner import RUNNER
    from toolcell_sdk.testing import run_tests

    in_cell = RUNNER if lane == "wasi" else cell_runner_of(lane)
    with _sdk_errors():
        status = run_tests(folder, runner=in_cell if cell else "", arguments=pytest_args)
    sys.exit(1 if status else 0)
