"""Builders of other lanes: found like the lanes, through an entry-point group.

Owns the look-up. The wasi lane's builder is the SDK's own (`toolcell_sdk.build`); a lane that has
one of its own registers it in `toolcell.builders` under the lane's name, and what runs a tool's
tests there in `toolcell.cell-runners`. Used by `toolcell build` and `toolcell test`.
"""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from toolcell.errors import ConfigError

__all__ = ["BUILDERS", "CELL_RUNNERS", "builder_of", "cell_runner_of"]

BUILDERS = "toolcell.builders"
CELL_RUNNERS = "toolcell.cell-runners"

Builder = Callable[[Path], bytes]
"""Makes the unsigned artifact of the tool in a folder. Raises the SDK's errors and ours."""


def builder_of(lane: str) -> Builder:
    """What builds for `lane`. :class:`ConfigError` where nothing does."""
    builder: Builder = _found(BUILDERS, lane).load()
    return builder


def cell_runner_of(lane: str) -> str:
    """`package.module:callable` of what `toolcell_sdk.testing` runs tests in `lane` with."""
    return _found(CELL_RUNNERS, lane).value


def _found(group: str, lane: str) -> EntryPoint:
    points = {point.name: point for point in entry_points(group=group)}
    if lane not in points:
        raise ConfigError(
            f"nothing here builds for the lane `{lane}`",
            remedy=f"one of {', '.join(sorted({'wasi', *points}))}",
        )
    return points[lane]
