"""Runs a tool's own tests in an oops cell: `toolcell test --cell --lane oops`.

Fulfils `toolcell_sdk.testing.CellRunner`, as `toolcell.cell_runner` does for components: the same
source and the same tests, in the other lane.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from toolcell.cell_runner import TestCell, cell_of
from toolcell_oops.build import build_archive

__all__ = ["RUNNER", "Runner"]

RUNNER: Final = "toolcell_oops.cell_runner:Runner"
"""What `toolcell_sdk.testing.run_tests` takes as its runner."""


class Runner:
    """Prepares cells of tools. Made once per test session."""

    def prepare(
        self, folder: Path, progress: Callable[[str], None] = lambda _stage: None
    ) -> TestCell:
        """Builds the tool in `folder` for the oops lane and prepares it there."""
        progress(f"building {folder.name}")
        return cell_of(build_archive(folder))
