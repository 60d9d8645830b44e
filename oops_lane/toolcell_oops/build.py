"""Builds a Python tool for the oops lane, from the same source as for the wasi lane.

Owns the layout of such an artifact (`app/` the author's source, `lib/` what is vendored,
`program.json` the entry point) and the way to its schemas: the author's module is imported in a
cell, and nowhere else. Makes no signature.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from toolcell.artifact.build import build_artifact
from toolcell.artifact.manifest import Manifest, Method
from toolcell.artifact.names import MANIFEST_NAME
from toolcell.errors import ConfigError
from toolcell.events import Event, EventContext
from toolcell.home import Home
from toolcell.lane import LaneHome
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import CancelToken, Deadline, Session, ToolRef
from toolcell_oops.lane import OopsLane
from toolcell_oops.pack import pack_folder
from toolcell_oops.program import WorkerProgram
from toolcell_sdk.lint import LintError, lint_project
from toolcell_sdk.project import PROJECT_FILE, Project, load_project
from toolcell_sdk.sources import author_files, plain_files

__all__ = ["ENTRY_POINT", "build_archive", "build_python"]

ENTRY_POINT = "program.json"


def build_archive(folder: Path) -> bytes:
    """The unsigned artifact of the tool in `folder`: a Python project (`tool.toml`), or a program
    laid out by hand (`manifest.json`). What `toolcell build` calls for this lane.
    """
    if not (folder / PROJECT_FILE).exists() and (folder / MANIFEST_NAME).exists():
        return pack_folder(folder)
    lane = OopsLane()
    lane.configure(LaneHome(cache_dir=str(Home().cache(lane.name))))
    try:
        return build_python(folder, lane)
    finally:
        lane.close()


def build_python(folder: Path, lane: OopsLane) -> bytes:
    """The unsigned artifact of the tool in `folder`, described by itself in a cell of `lane`.

    Raises :class:`ConfigError` where its module can't be imported or describes nothing, and the
    SDK's errors for the project and its lint.
    """
    project = load_project(folder)
    errors = [found for found in lint_project(project) if found.severity == "error"]
    if errors:
        raise LintError(errors)
    files = _files(project)
    fields = {
        "id": project.id,
        "name": project.name,
        "version": project.version,
        "description": project.description,
        "lane": "oops",
        "entry_point": ENTRY_POINT,
        "capabilities": list(project.capabilities),
        "limits": dict(project.limits),
        "policy_class": project.policy_class,
        "sandbox": dict(project.sandbox),
    }
    methods = _described(fields, files, lane)
    return build_artifact({**fields, "methods": methods}, files)


def _files(project: Project) -> dict[str, bytes]:
    entry = msgspec.json.encode(WorkerProgram(module=project.module))
    files = {ENTRY_POINT: entry}
    for path in author_files(project):
        files[f"app/{path.relative_to(project.folder).as_posix()}"] = path.read_bytes()
    for name in project.python_path:
        vendored = project.folder / name
        for path in plain_files(vendored):
            files[f"lib/{path.relative_to(vendored).as_posix()}"] = path.read_bytes()
    return files


def _described(
    fields: Mapping[str, Any], files: Mapping[str, bytes], lane: OopsLane
) -> dict[str, dict[str, Any]]:
    """The tool's methods, as it says itself. Checked when the manifest is made of them."""
    prepared = lane.prepare(_Draft(fields, files))
    try:
        outcome = prepared.describe(_session())
    finally:
        prepared.close()
    if outcome.error is not None:
        error = outcome.error
        detail = getattr(error, "guest_detail", "")
        raise ConfigError(
            f"the tool's module can't be described: {error.message}\n{detail}".rstrip(),
            remedy="mend the module; it was imported in a cell",
        )
    try:
        described: dict[str, dict[str, Any]] = msgspec.json.decode(
            outcome.output or b"", type=dict[str, dict[str, dict[str, Any]]]
        )["methods"]
    except (msgspec.MsgspecError, KeyError) as error:
        raise ConfigError(f"the tool described itself in another form: {error}") from None
    if not described:
        raise ConfigError("the tool has no method: put @method on a function of its module")
    return described


class _Draft:
    """The artifact before its methods are known. Meets `toolcell.lane.Artifact`."""

    publisher = ""
    digest = ""

    def __init__(self, fields: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        methods = {"describe": Method(input={}, output={})}
        self.manifest = msgspec.convert({**fields, "methods": methods, "files": digests}, Manifest)
        self._files = files

    def read(self, name: str) -> bytes:
        """The bytes of `name`."""
        return self._files[name]


def _session() -> Session:
    envelope = PolicyEnvelope()
    session = Session(
        tool=ToolRef("", "build", "0.0.0", ""),
        envelope=envelope,
        policy_digest="",
        context=EventContext(),
        emitter=_Nowhere(),
        deadline=Deadline(envelope.wall_time_ms),
        cancel=CancelToken(),
        seed=bytes(32),
    )
    session.broker = _NoBroker()
    return session


class _NoBroker:
    """A module that calls a capability while it is imported finds none."""

    def call(self, capability: str, /, **_params: Any) -> Any:
        raise ConfigError(f"the module calls {capability[:64]} while it is imported")

    def close(self) -> None:
        pass


class _Nowhere:
    """Events of a build are nobody's."""

    def emit(self, event: Event) -> None:
        pass
