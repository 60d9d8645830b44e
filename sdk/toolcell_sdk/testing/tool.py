"""A tool under test: calls go in as JSON and come out as JSON, as they would in a cell.

Owns the loading of the author's module (natively, once per `ToolTest`, with a registry of its own)
and the assertions on a call. With a cell it runs the component instead. Used by the pytest plugin
and by tests directly.
"""

import contextlib
import dataclasses
import enum
import importlib
import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from toolcell_sdk import transport
from toolcell_sdk.dispatch import Dispatcher
from toolcell_sdk.errors import Fault
from toolcell_sdk.methods import Registry, collecting
from toolcell_sdk.project import Project, load_project
from toolcell_sdk.testing.broker import FakeBroker
from toolcell_sdk.testing.runner import CellRun, PreparedCell

__all__ = ["ToolFailed", "ToolTest"]


class ToolFailed(AssertionError):
    """A call ended in a fault. `detail` is the author's traceback, where there is one."""

    def __init__(self, method: str, fault: Fault) -> None:
        text = f"{method} failed with {fault.status}: {fault.message}"
        super().__init__(f"{text}\n{fault.detail}" if fault.detail else text)
        self.status = fault.status
        self.message = fault.message
        self.detail = fault.detail


class ToolTest:
    """The tool in `folder`, over `broker` (default: one that grants what `tool.toml` declares).

    Natively `fuel` and `memory_peak_bytes` are unknown, and asserting on them skips the test.
    """

    def __init__(
        self,
        folder: Path | str,
        broker: FakeBroker | None = None,
        *,
        cell: PreparedCell | None = None,
    ) -> None:
        self.project: Project = load_project(folder)
        self.broker = broker or FakeBroker(self.project.capabilities)
        self.last: CellRun | None = None
        self._cell = cell
        self._dispatcher: Dispatcher | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._dispatcher = None

    @property
    def in_cell(self) -> bool:
        """Whether calls run in the component."""
        return self._cell is not None

    def call(self, method: str, /, **arguments: Any) -> Any:
        """Calls a method and returns its result as parsed JSON.

        Bytes go in as base64, dataclasses as objects. Raises :class:`ToolFailed`.
        """
        text = json.dumps(arguments, default=_to_json)
        return json.loads(self.call_text(method, text))

    def call_text(self, method: str, text: str) -> str:
        """The same with the JSON text on both sides, well formed or not."""
        run = self._run(method, text)
        self.last = run
        if run.fault is not None:
            raise ToolFailed(method, run.fault) from None
        assert run.output is not None, "a run has an output or a fault"
        return run.output

    def fails(self, method: str, /, **arguments: Any) -> ToolFailed:
        """Calls a method that is to fail, and returns how it did."""
        try:
            result = self.call(method, **arguments)
        except ToolFailed as failed:
            return failed
        raise AssertionError(f"{method} was to fail and returned {result!r:.200}")

    def assert_fuel_below(self, fuel: int) -> None:
        """Fails if the last call used `fuel` or more. Skips the test outside a cell."""
        used = self._measured().fuel
        if used >= fuel:
            raise AssertionError(f"the call used {used} fuel; it was to stay below {fuel}")

    def assert_memory_below(self, memory_bytes: int) -> None:
        """Fails if the last call's peak was `memory_bytes` or more. Skips outside a cell."""
        used = self._measured().memory_peak_bytes
        if used >= memory_bytes:
            raise AssertionError(f"the call used {used} bytes; it was to stay below {memory_bytes}")

    def _measured(self) -> CellRun:
        if not self.in_cell:
            import pytest

            pytest.skip("fuel and memory are measured in a cell only: `toolcell test --cell`")
        if self.last is None:
            raise AssertionError("nothing was called yet")
        return self.last

    def _run(self, method: str, text: str) -> CellRun:
        if self._cell is not None:
            return self._cell.invoke(method, text, self.broker)
        if self._dispatcher is None:
            self._dispatcher = Dispatcher(
                _load(self.project),
                source_root=str(self.project.folder.resolve()),
                passes_through=(KeyboardInterrupt,),
            )
        with transport.installed(self.broker):
            try:
                return CellRun(output=self._dispatcher.invoke(method, text))
            except Fault as fault:
                return CellRun(fault=fault)


def _load(project: Project) -> Registry:
    """Imports the author's module afresh and returns its methods."""
    folder = project.folder.resolve()
    paths = [str(folder), *(str(folder / name) for name in project.python_path)]
    with _on_path(paths), _without_modules_of(folder), collecting() as registry:
        importlib.invalidate_caches()
        importlib.import_module(project.module)
        registry.describe()
    return registry


@contextlib.contextmanager
def _on_path(paths: list[str]) -> Iterator[None]:
    sys.path[:0] = paths
    try:
        yield
    finally:
        for path in paths:
            sys.path.remove(path)


@contextlib.contextmanager
def _without_modules_of(folder: Path) -> Iterator[None]:
    """Imports from `folder` are fresh inside, and forgotten after: tools may share module names."""
    before = _modules_of(folder)
    for name in before:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in _modules_of(folder):
            del sys.modules[name]
        sys.modules.update(before)


def _modules_of(folder: Path) -> dict[str, ModuleType]:
    # Not the test module that is running: who looks it up must find it.
    return {
        name: module
        for name, module in sys.modules.items()
        if (file := getattr(module, "__file__", None))
        and Path(file).is_relative_to(folder)
        and not _is_test(name)
    }


def _is_test(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last.startswith("test_") or last == "conftest"


def _to_json(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return b64encode(value).decode("ascii")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
