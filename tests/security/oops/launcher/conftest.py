"""A launcher that obeys `without`, and one line that says how an attack went."""

import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oops_launcher import Launcher, Run, plan

PRELUDE = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
try:
{attack}
    print("WON", flush=True)
except OSError as error:
    print(errno.errorcode.get(error.errno, error), flush=True)
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    """One launcher for the module; every cell is cold, so that any control can be left out."""
    with Launcher(weaken=True) as made:
        if made.hello["missing"]:
            pytest.skip(f"this machine lacks {made.hello['missing']}")
        yield made


@pytest.fixture
def attack(launcher) -> Callable[..., str]:
    """`attack(source, without=…, **plan)`: `WON`, or the name of the errno that stopped it."""

    def attempt(source: str, extra: tuple[int, ...] = (), **changes: Any) -> str:
        run = attempt_run(launcher, source, extra, **changes)
        assert run.spawned["event"] == "spawned", run.spawned
        if run.ended["signal"]:
            return f"signal {run.ended['signal']}"
        assert run.out, (run.ended, run.err)
        return run.out.decode().strip().splitlines()[-1]

    return attempt


def attempt_run(
    launcher: Launcher, source: str, extra: tuple[int, ...] = (), **changes: Any
) -> Run:
    """Runs `source` in a cell, inside a `try` that prints how it went."""
    body = PRELUDE.format(attack=textwrap.indent(textwrap.dedent(source).strip(), "    "))
    return launcher.run(plan("-I", "-S", "-c", body, **changes), extra=extra)
