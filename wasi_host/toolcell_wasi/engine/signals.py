"""Signals that arrive while a guest runs on the main thread.

Python runs a signal's handler at the next bytecode, and here that is the first one of a callback
from wasmtime, before any `try` is entered: what the handler raises would be printed by ctypes and
lost, and Ctrl-C with it. So for as long as the main thread is inside wasmtime, a handler that
would run in such a frame is put off to the guarded part of the same callback. Anywhere else, in a
host function that sleeps for instance, it runs at once as it always does.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, TypeVar

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
"""Those whose handlers raise in practice: Ctrl-C, a server's stop, a test's timeout."""

F = TypeVar("F", bound=Callable[..., Any])

_UNGUARDED: set[CodeType] = set()
# Handlers run on the main thread only, so these need no lock.
_originals: dict[int, Callable[[int, FrameType | None], Any]] = {}
_put_off: list[int] = []


def unguarded(function: F) -> F:
    """Marks a function that wasmtime calls: an exception must not start in its own frame."""
    _UNGUARDED.add(function.__code__)
    return function


def deliver_signals() -> None:
    """Runs the handlers that were put off. Called where an exception is caught and kept."""
    while _put_off and threading.current_thread() is threading.main_thread():
        signum = _put_off.pop(0)
        _originals[signum](signum, None)


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Holds signals for the time inside wasmtime; does nothing on any thread but the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[signal.Signals] = []
    try:
        for signum in HELD:
            handler = signal.getsignal(signum)
            # `_hold` is there already where a tool runs inside a capability call of another.
            if callable(handler) and handler is not _hold:
                _originals[signum] = handler
                held.append(signum)
                signal.signal(signum, _hold)
        yield
    finally:
        for signum in held:
            signal.signal(signum, _originals[signum])
        deliver_signals()


def _hold(signum: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code in _UNGUARDED:
        _put_off.append(signum)
    else:
        _originals[signum](signum, frame)
