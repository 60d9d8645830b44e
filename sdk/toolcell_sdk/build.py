"""Builds a Python tool into a WASI 0.2 component.

Owns the order: read the project, lint, stage the sources, compile, collect what the component
says of itself. Must never run the author's code outside of a sandbox: the module's top level runs
in the WebAssembly interpreter that takes the snapshot. Makes no manifest and no archive: the
runtime's artifact room does, from `Build`. Called by `toolcell build` and by cell runners.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolcell_sdk.builder.compiler import compile_component, toolchain
from toolcell_sdk.builder.description import read_description
from toolcell_sdk.builder.staging import flatten, stage
from toolcell_sdk.errors import BuildError
from toolcell_sdk.lint import Finding, LintError, lint_project
from toolcell_sdk.project import Project, load_project

__all__ = ["Build", "build"]

COMPONENT = "tool.wasm"
"""Name of the component in the output folder and in the artifact."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What a build made. `component` is the file; `digest` is `sha256:<hex>` of its bytes.

    `methods` maps a name to `description`, `input` and `output`, as the manifest holds them.
    `reproducible` is False where this machine could not fix the build's surroundings;
    `not_reproducible_because` says why. `toolchain` names the versions that went in.
    """

    project: Project
    component: Path
    digest: str
    size_bytes: int
    methods: Mapping[str, dict[str, Any]]
    warnings: tuple[Finding, ...] = ()
    not_reproducible_because: str = ""
    toolchain: Mapping[str, str] = field(default_factory=dict)

    @property
    def reproducible(self) -> bool:
        """Whether the same source gives the same bytes on any machine."""
        return not self.not_reproducible_because

    def manifest_fields(self) -> dict[str, Any]:
        """The manifest's fields but for `schema` and `files`: JSON-ready."""
        project = self.project
        return {
            "id": project.id,
            "name": project.name,
            "version": project.version,
            "description": project.description,
            "lane": project.lane,
            "entry_point": COMPONENT,
            "methods": dict(self.methods),
            "capabilities": list(project.capabilities),
            "limits": dict(project.limits),
            "policy_class": project.policy_class,
            "sandbox": dict(project.sandbox),
        }


def build(
    path: Path | str,
    out_dir: Path | str | None = None,
    *,
    progress: Progress = lambda _stage: None,
    require_reproducible: bool = False,
) -> Build:
    """Builds the tool in the folder `path` into `out_dir` (default: `path/build`).

    Writes `tool.wasm` there, whole or not at all, and nothing else anywhere. `progress` is called
    with the name of each stage: `lint`, `stage`, `compile`, `done`. Takes about 5 s.

    Raises :class:`ProjectError`, :class:`LintError` (with every finding) or :class:`BuildError`;
    the last one too where `require_reproducible` is set and this machine can't.
    """
    project = load_project(path)
    if project.lane != "wasi":
        raise BuildError(
            f"{project.name}: lane is `{project.lane}`; `toolcell build` makes components, so "
            'write lane = "wasi", or pack the program by hand'
        )
    progress("lint")
    findings = lint_project(project)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise LintError(errors)
    destination = Path(out_dir) if out_dir is not None else project.folder / "build"
    with tempfile.TemporaryDirectory(prefix="toolcell-build-") as folder:
        root = Path(folder).resolve()
        try:
            progress("stage")
            staged = stage(project, root)
            progress("compile")
            reason = compile_component(staged)
            if reason and require_reproducible:
                raise BuildError(f"{project.name}: this machine can't build reproducibly: {reason}")
            methods = read_description(staged.description)
            data = staged.component.read_bytes()
        finally:
            flatten(root)
        component = _write_whole(destination, data)
    progress("done")
    return Build(
        project=project,
        component=component,
        digest=f"sha256:{hashlib.sha256(data).hexdigest()}",
        size_bytes=len(data),
        methods=methods,
        warnings=tuple(finding for finding in findings if finding.severity == "warning"),
        not_reproducible_because=reason,
        toolchain=toolchain(),
    )


def _write_whole(folder: Path, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".tool-", suffix=".wasm", dir=folder)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.chmod(0o644)
        return temporary.replace(folder / COMPONENT)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
