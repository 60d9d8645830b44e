"""The compiling child: component on stdin, native code on stdout, a sentence on stderr.

Run as `python -I -m toolcell_wasi.aot.child LIMITS` with an empty environment. It bounds itself
before it reads a byte: the compiler is large, and its input comes from a publisher whom nobody has
to trust. A rlimit set here can't be raised again (the hard limit goes with it).
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
NICENESS = 10
"""Below the guests that run meanwhile: a compiler with a thread per core would make them late."""

REJECTED = 3
"""Exit status for a component that wasmtime refuses. Any other failure is the machine's or ours."""


def main() -> int:
    """Compiles stdin to stdout."""
    limits: dict[str, int] = json.loads(sys.argv[1])
    die_with(limits["parent"])
    bound(limits)
    from toolcell_wasi.engine import Engine, EngineFailure

    wasm = sys.stdin.buffer.read(limits["input_bytes"] + 1)
    if len(wasm) > limits["input_bytes"]:
        return _refuse(f"more than {limits['input_bytes']} bytes")
    try:
        compiled = Engine(pooling=False).compile(wasm)
    except EngineFailure as error:
        return _refuse(error.message)
    sys.stdout.buffer.write(compiled)
    sys.stdout.buffer.flush()
    return 0


def die_with(parent: int) -> None:
    """Ends this process when the host's does, so that a host that is killed leaves no child.

    The signal follows the thread that started us (prctl(2)), and that thread waits for our end.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before the call
        sys.exit(1)


def bound(limits: dict[str, int]) -> None:
    """Sets the rlimits, hard and soft, and steps behind the host in the queues for cores and
    memory. Public so that a test can switch it off.
    """
    for which, figure in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_AS, limits["address_space_bytes"]),
        (resource.RLIMIT_FSIZE, limits["output_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
    ):
        resource.setrlimit(which, (figure, figure))
    os.nice(NICENESS)
    # Where the machine has less memory than the limits allow, this process ends and not its host.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _refuse(message: str) -> int:
    os.write(2, message.encode()[:4096])
    return REJECTED


if __name__ == "__main__":
    sys.exit(main())
