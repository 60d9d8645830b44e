"""Image workers: one process per picture, started, fed, and ended at the deadline.

Owns the processes. One is never used twice: a decoder that was taken over by one tool's picture
must not see another's. It knows nothing of pictures but the command line of the worker.
"""

import contextlib
import math
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from toolcell.broker.call import Call, Refusal, shown
from toolcell.broker.images.header import MAX_PIXELS
from toolcell.broker.images.worker import EXIT_UNCONFINED
from toolcell.broker.interface import MAX_IMAGE_SIDE_PX
from toolcell.errors import Status

__all__ = ["MEMORY_BYTES", "ImageWorkers", "Resized"]

MEMORY_BYTES = 1024 * 1024 * 1024
"""Address space of a worker: five copies of the largest picture, and Python."""

_WORKER = Path(__file__).with_name("worker.py")
_PIECE = 256 * 1024
_POLL_S = 0.05
_MAX_HEAD_BYTES = 1024

Side = Annotated[int, Meta(ge=1, le=MAX_IMAGE_SIDE_PX)]


class Resized(Struct, frozen=True):
    """What a worker made."""

    data: bytes
    width: int
    height: int


class ImageWorkers:
    """Starts workers, at most `limit` at the same time."""

    def __init__(self, limit: int) -> None:
        self._places = threading.BoundedSemaphore(limit)

    def resize(self, call: Call, data: bytes, box: tuple[int, int], target: str) -> Resized:
        """Has `data` scaled to fit `box` and encoded as `target`, within the call's deadline."""
        with self._place(call):
            worker = _start(call, box, target)
            forget = call.session.cancel.on_cancel(worker.kill)
            try:
                raw = _converse(call, worker, data)
                status = worker.wait(call.remaining_s())
            except subprocess.TimeoutExpired:
                raise call.timed_out() from None
            finally:
                forget()
                _end(worker)
        call.remaining_s()
        return _result(raw, status)

    @contextlib.contextmanager
    def _place(self, call: Call) -> Iterator[None]:
        while not self._places.acquire(timeout=min(_POLL_S, call.remaining_s())):
            pass
        try:
            yield
        finally:
            self._places.release()


@cache
def _site() -> str:
    """The folder that Pillow was installed in; the worker sees no other."""
    spec = find_spec("PIL")
    if spec is None or spec.origin is None:
        raise _unavailable("Pillow is not installed")
    return str(Path(spec.origin).parent.parent)


def _start(call: Call, box: tuple[int, int], target: str) -> "subprocess.Popen[bytes]":
    if not sys.executable:
        raise _unavailable("this host does not know its Python interpreter")
    cpu_s = math.ceil(call.remaining_s()) + 1
    numbers = (os.getpid(), cpu_s, MEMORY_BYTES, MAX_PIXELS, *box)
    command = [sys.executable, "-I", "-S", "-B", str(_WORKER), _site(), *map(str, numbers), target]
    try:
        return subprocess.Popen(  # noqa: S603 - our own program; numbers and an allowlisted word
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={},
            cwd="/",
            close_fds=True,
            start_new_session=True,
        )
    except OSError as error:
        raise _unavailable(f"a worker can't be started: {error.strerror}") from None


def _converse(call: Call, worker: "subprocess.Popen[bytes]", data: bytes) -> bytes:
    """Writes `data` and reads the answer at the same time; neither side may wait for the other."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    limit = call.session.envelope.max_message_bytes
    left = memoryview(data)
    out = bytearray()
    os.set_blocking(worker.stdin.fileno(), False)
    with selectors.DefaultSelector() as ready:
        ready.register(worker.stdout, selectors.EVENT_READ)
        ready.register(worker.stdin, selectors.EVENT_WRITE)
        while worker.stdout in ready.get_map():
            for key, _ in ready.select(call.remaining_s()):
                if key.fileobj is worker.stdin:
                    left = _feed(worker, left)
                    if not left:
                        ready.unregister(worker.stdin)
                        worker.stdin.close()
                else:
                    piece = os.read(worker.stdout.fileno(), _PIECE)
                    out += piece
                    if not piece:
                        ready.unregister(worker.stdout)
            if len(out) > limit + _PIECE:
                raise call.message_too_large(len(out))
    return bytes(out)


def _feed(worker: "subprocess.Popen[bytes]", left: memoryview) -> memoryview:
    assert worker.stdin is not None
    try:
        return left[os.write(worker.stdin.fileno(), left[:_PIECE]) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:  # it ended early; its answer or its status says why
        return left[:0]


def _end(worker: "subprocess.Popen[bytes]") -> None:
    """Nothing of the worker is left: killed, waited for, pipes closed."""
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            pipe.close()


class _Made(Struct, tag="made", tag_field="kind"):
    """A worker's first line where it worked."""

    width: Side
    height: Side


class _Failed(Struct, tag="failed", tag_field="kind"):
    """A worker's first line where it did not."""

    error: Literal["memory", "picture"]
    reason: str


_HEAD = msgspec.json.Decoder(_Made | _Failed)


def _result(raw: bytes, status: int) -> Resized:
    """What the worker said. It may be in somebody else's hands, so nothing of it is believed."""
    if status == EXIT_UNCONFINED:
        raise _unavailable("a decoder can't be confined here (rlimits, no_new_privs, seccomp)")
    line, _, data = raw.partition(b"\n")
    try:
        head = _HEAD.decode(line) if status == 0 and len(line) <= _MAX_HEAD_BYTES else None
    except (msgspec.DecodeError, RecursionError):
        head = None
    if isinstance(head, _Made):
        return Resized(data, head.width, head.height)
    if isinstance(head, _Failed):
        too_large = head.error == "memory"
        raise Refusal(
            head.error,
            f"it can't be decoded: {shown(head.reason)}",
            status=Status.TOO_LARGE if too_large else Status.MALFORMED,
        )
    raise Refusal(
        "decoder",
        f"the decoder was ended by its confinement or by a crash (status {status})",
        status=Status.MALFORMED,
        remedy="the picture is damaged or hostile",
    )


def _unavailable(reason: str) -> Refusal:
    return Refusal(
        "feature",
        f"not available on this machine: {reason}",
        status=Status.LANE_UNAVAILABLE,
        remedy="`images.resize` needs Linux on x86-64 or arm64 with seccomp, and Pillow",
    )
