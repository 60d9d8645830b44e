"""Hermetic builds: a program that sees the same surroundings on every run and every machine.

componentize-py keeps a snapshot of a running interpreter, and into that snapshot go the hash seed,
the time, the dates and inode numbers of the files that were imported and the order of their
folders. Two builds of one source then differ in some 13,000 bytes. It has no setting for any of
these, so they are fixed from outside: a seccomp listener answers the system calls that carry them
(`answers.py`), and the clock is stopped in the program's own vDSO (`vdso.py`).

This is about reproducibility, not about safety: what the program may do is not narrowed. Needs
Linux 5.5 or newer on x86-64 or AArch64, and the right to trace an own child. Called by
`toolcell_sdk.build`.
"""

import sys
from pathlib import Path

from toolcell_sdk.hermetic.kernel import SETUP_FAILED

__all__ = ["SETUP_FAILED", "hermetic_command"]


def hermetic_command(argv: list[str], root: Path) -> list[str]:
    """The command line that runs `argv` hermetically.

    `argv[0]` is an absolute path. `root` is the folder that the program works in; nothing of its
    location gets into the program. The exit status is the program's own (128 + N where signal N
    ended it), or `SETUP_FAILED` with a message on stderr where the surroundings could not be
    fixed; the program did not run then.
    """
    supervisor = "toolcell_sdk.hermetic.supervisor"
    return [sys.executable, "-I", "-B", "-m", supervisor, str(root), *argv]
