"""How a test reaches the built component: a protocol that a runtime fulfils.

The SDK knows no lane. Whoever runs `toolcell test` may name a factory, `package.module:callable`,
in `TOOLCELL_CELL_RUNNER`; the same tests then run in the cell, against the same fake broker, and
can measure fuel and memory.
"""

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from toolcell_sdk.errors import Fault
from toolcell_sdk.transport import Transport

__all__ = ["RUNNER_VARIABLE", "CellRun", "CellRunner", "PreparedCell", "runner_from_environment"]

RUNNER_VARIABLE = "TOOLCELL_CELL_RUNNER"


Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRun:
    """One call in a cell. Exactly one of `output` (a JSON text) and `fault` is set."""

    output: str | None = None
    fault: Fault | None = None
    fuel: int = 0
    memory_peak_bytes: int = 0
    stdout: str = ""
    stderr: str = ""


class PreparedCell(Protocol):
    """A built tool, ready to be called many times."""

    def invoke(self, method: str, text: str, transport: Transport) -> CellRun:
        """Runs one call in a fresh cell. Its capability calls are answered by `transport`.

        Policy is the runner's: the ceilings of `safe-default`, every declared capability granted.
        """

    def close(self) -> None:
        """Frees it. Idempotent."""


class CellRunner(Protocol):
    """Makes cells of tools."""

    def prepare(self, folder: Path, progress: Progress) -> PreparedCell:
        """Builds the tool in `folder` and makes it ready. Once per test session.

        It takes seconds, so `progress` is told each stage, a line of text, before it starts.
        """


def runner_from_environment() -> CellRunner | None:
    """The runner that the environment names, or None where it names none."""
    name = os.environ.get(RUNNER_VARIABLE, "")
    if not name:
        return None
    module, separator, attribute = name.partition(":")
    if not separator:
        raise ValueError(f"{RUNNER_VARIABLE} is {name!r}; it must be `package.module:callable`")
    factory = getattr(importlib.import_module(module), attribute)
    runner: CellRunner = factory()
    return runner
