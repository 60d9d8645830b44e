"""The pytest plugin: fixtures `tool` and `broker`.

`toolcell test` loads it. A test module that is to run under plain pytest too says
`pytest_plugins = ["toolcell_sdk.testing.plugin"]`.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcell_sdk.project import PROJECT_FILE, load_project
from toolcell_sdk.testing.broker import FakeBroker
from toolcell_sdk.testing.runner import PreparedCell, runner_from_environment
from toolcell_sdk.testing.tool import ToolTest

_CELLS = pytest.StashKey[dict[Path, PreparedCell]]()


def pytest_configure(config: pytest.Config) -> None:
    """One cell per tool and session: a build takes seconds."""
    config.stash[_CELLS] = {}


def pytest_unconfigure(config: pytest.Config) -> None:
    """Frees the cells."""
    for cell in config.stash.get(_CELLS, {}).values():
        cell.close()


def _folder(request: pytest.FixtureRequest) -> Path:
    for folder in request.path.resolve().parents:
        if (folder / PROJECT_FILE).is_file():
            return folder
    raise pytest.UsageError(f"{request.path}: no {PROJECT_FILE} in this folder or above it")


def _say(config: pytest.Config, stage: str) -> None:
    """A line on the session's own stderr: what a fixture prints is kept until a test fails."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with contextlib.nullcontext() if capture is None else capture.global_and_fixture_disabled():
        print(f"  {stage} …", file=sys.stderr, flush=True)  # noqa: T201 - for the person who waits


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> FakeBroker:
    """A fresh fake broker that grants what the tool declares."""
    return FakeBroker(load_project(_folder(request)).capabilities)


@pytest.fixture
def tool(request: pytest.FixtureRequest, broker: FakeBroker) -> Iterator[ToolTest]:
    """The tool whose folder the test is in, over `broker`."""
    folder = _folder(request)
    cells = request.config.stash[_CELLS]
    runner = runner_from_environment()
    if runner is not None and folder not in cells:
        cells[folder] = runner.prepare(folder, lambda stage: _say(request.config, stage))
    with ToolTest(folder, broker, cell=cells.get(folder)) as under_test:
        yield under_test
