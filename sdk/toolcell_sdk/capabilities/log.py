"""`log`: lines for the operator, with a level. Rate-limited and capped by the broker.

Capability: `log.emit`. `print` works without it: the cell's stdout is kept with the result.
"""

from toolcell_sdk import transport
from toolcell_sdk.capabilities.arguments import text

__all__ = ["debug", "error", "info", "warning"]


def debug(message: str) -> None:
    """For whoever wrote the tool."""
    _emit("debug", message)


def info(message: str) -> None:
    """What an operator may want to know."""
    _emit("info", message)


def warning(message: str) -> None:
    """What an operator should look at."""
    _emit("warning", message)


def error(message: str) -> None:
    """What went wrong."""
    _emit("error", message)


def _emit(level: str, message: str) -> None:
    transport.call("log.emit", {"level": level, "message": text("log.emit", "message", message)})
