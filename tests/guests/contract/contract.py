"""The guest of the lane contract: one method for each thing that a lane must get right."""

import random
import sys
import time
from typing import Any

from toolcell_sdk import kv, log, method

SEEN: list[str] = []


@method
def echo(value: Any) -> Any:
    """Gives back what it got."""
    return value


@method
def fail(message: str) -> None:
    """Raises."""
    raise ValueError(message)


@method
def spin() -> None:
    """Never ends, and never asks the host for anything."""
    while True:
        pass


@method
def sleep(seconds: float) -> str:
    """Blocks in the host."""
    time.sleep(seconds)
    return "awake"


@method
def large(size: int) -> str:
    """Gives back `size` characters."""
    return "x" * size


@method
def remember(word: str) -> list[str]:
    """Everything that this instance was told: one word, if each call has a fresh cell."""
    SEEN.append(word)
    return SEEN


@method
def store(key: str, value: str) -> str | None:
    """Through the broker and back."""
    kv.set(key, value)
    return kv.get(key)


@method
def say(line: str) -> None:
    """To the log, to stdout and to stderr."""
    log.info(line)
    print(f"out {line}")
    print(f"err {line}", file=sys.stderr)


@method
def dice() -> float:
    """A random number."""
    return random.random()
