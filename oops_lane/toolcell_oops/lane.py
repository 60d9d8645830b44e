"""The oops lane: native and interpreted programs in short-lived Linux processes.

Registered as `toolcell.lanes: oops`. Owns the launcher, the base trees and the way from an artifact
to a prepared program. The runtime finds it through the entry point and knows it by the lane
contract only.
"""

import contextlib
import threading
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from toolcell.errors import ConfigError, InternalError, LaneUnavailable
from toolcell.lane import Artifact, LaneHome, Probe
from toolcell.policy.envelope import PolicyEnvelope
from toolcell_oops.base import BaseStore
from toolcell_oops.base.tree import discard
from toolcell_oops.demands import check_demands
from toolcell_oops.launcher.client import Launcher
from toolcell_oops.launcher.locate import locate
from toolcell_oops.plan import Filter, Layout
from toolcell_oops.prepared import PreparedProgram
from toolcell_oops.probe import probe_lane
from toolcell_oops.program import Program, decode_program
from toolcell_oops.seccomp import compile_profile, load_profile
from toolcell_oops.workspace import Workspace

__all__ = ["OopsLane", "OopsSettings"]


class BaseSetting(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A base tree of the operator's own: a folder, and the digest that it must have."""

    path: str
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class OopsSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The lane's table of the configuration file.

    `seccomp`: `strict` (an allow-list, the default), `baseline` (a deny-list), or the absolute path
    of an OCI profile. `pool`: cells parked ahead, 2. `cgroup_parent`: where the cells' cgroups are
    made. `launcher`: path of `toolcell-native`, found by itself where empty. `base_dir`: where base
    trees are kept, the lane's cache where empty. `bases`: trees of your own, by name.
    """

    seccomp: Annotated[str, Meta(min_length=1, max_length=4096)] = "strict"
    pool: Annotated[int, Meta(ge=0, le=64)] = 2
    cgroup_parent: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")] = "toolcell"
    launcher: str = ""
    base_dir: str = ""
    bases: dict[str, BaseSetting] = {}


class OopsLane:
    """Meets `toolcell.lane.Lane`. Thread-safe once configured."""

    name = "oops"
    isolation = 2

    def __init__(self) -> None:
        self._settings = OopsSettings()
        self._folder: Path | None = None
        self._bases: BaseStore | None = None
        self._filter: Filter | None = None
        self._workspace: Workspace | None = None
        self._launcher: Launcher | None = None
        self._open: dict[PreparedProgram, Path] = {}
        self._closed = False
        self._lock = threading.Lock()

    def configure(self, home: LaneHome) -> None:
        """Reads the settings and the seccomp profile. Processes are started on first use."""
        try:
            settings = msgspec.convert(dict(home.settings), OopsSettings)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"settings of the oops lane: {error}",
                remedy=f"known: {', '.join(OopsSettings.__struct_fields__)}",
            ) from None
        load_profile(settings.seccomp)  # an error in it is told at start-up, not at a call
        self._settings = settings
        self._folder = Path(home.cache_dir)
        bases = {name: (Path(own.path), own.digest) for name, own in settings.bases.items()}
        folder = Path(settings.base_dir) if settings.base_dir else self._folder / "bases"
        self._bases = BaseStore(folder, bases, home.warn)

    def probe(self) -> Probe:
        """Runs small programs of our own against each mechanism."""
        try:
            launcher, bases, seccomp = self._running(), self._bases_of_open(), self._seccomp()
            return probe_lane(launcher, bases, seccomp)
        except LaneUnavailable as error:
            return Probe(
                available=False,
                features={str(error.details.get("feature", "lane:oops")): error.message},
                reason=error.message,
                remedy=error.remedy,
            )

    def screen(self, artifact: Artifact, envelope: PolicyEnvelope) -> None:
        """Refuses what can't be given, from the manifest and the entry point alone."""
        check_demands(artifact.manifest, _program_of(artifact), envelope)

    def prepare(self, artifact: Artifact) -> PreparedProgram:
        """Unpacks the artifact, checks its base and plans its cells."""
        bases = self._bases_of_open()
        manifest = artifact.manifest
        program = _program_of(artifact)
        base = bases.get(program.base)
        seccomp = self._seccomp()
        tool = self._workspace_of_open().unpack(artifact)
        prepared = PreparedProgram(
            manifest=manifest,
            program=program,
            layout=Layout(manifest, program, base, tool, seccomp),
            launcher=self._running,
            on_close=self._forget,
        )
        with self._lock:
            self._open[prepared] = tool
        return prepared

    def _running(self) -> Launcher:
        """The launcher, started where there is none or where it has died."""
        with self._lock:
            if self._closed:
                raise InternalError("the oops lane is closed", remedy="make a new Runtime")
            if self._launcher is not None and not self._launcher.alive:
                dead, self._launcher = self._launcher, None
                dead.close()
            if self._launcher is None:
                settings = self._settings
                self._launcher = Launcher(
                    locate(settings.launcher),
                    pool=settings.pool,
                    cgroup_parent=settings.cgroup_parent,
                )
            return self._launcher

    def _seccomp(self) -> Filter:
        with self._lock:
            if self._filter is None:
                profile = load_profile(self._settings.seccomp)
                name = self._settings.seccomp
                self._filter = Filter(Path(name).name, profile.digest(), compile_profile(profile))
            return self._filter

    def _bases_of_open(self) -> BaseStore:
        if self._bases is None:
            raise InternalError("the oops lane was not configured")
        return self._bases

    def _workspace_of_open(self) -> Workspace:
        with self._lock:
            if self._closed or self._folder is None:
                raise InternalError("the oops lane is closed", remedy="make a new Runtime")
            if self._workspace is None:
                self._workspace = Workspace(self._folder / "tools")
            return self._workspace

    def _forget(self, prepared: PreparedProgram) -> None:
        with self._lock:
            tool = self._open.pop(prepared, None)
        if tool is not None:
            with contextlib.suppress(OSError):
                discard(tool)

    def interrupt(self) -> None:
        """No preparation starts after this. One that is under way is done in a few seconds."""
        with self._lock:
            self._closed = True

    def close(self) -> None:
        """Ends every cell and the launcher, and removes what was unpacked. Idempotent."""
        with self._lock:
            self._closed = True
            launcher, self._launcher = self._launcher, None
            workspace, self._workspace = self._workspace, None
        if launcher is not None:
            launcher.close()
        for prepared in list(self._open):
            prepared.close()
        if workspace is not None:
            workspace.close()


def _program_of(artifact: Artifact) -> Program:
    manifest = artifact.manifest
    return decode_program(artifact.read(manifest.entry_point), manifest)
