"""Runs componentize-py in a child process: bounded, hermetic where this machine can, and silent.

Owns the child's command line, environment and ceilings, and turns its failures into `BuildError`
with the author's own words. Called by `build`.
"""

import importlib.metadata
import importlib.util
import os
import re
import signal
import subprocess
import sys

from toolcell_sdk.builder.staging import ENTRY_MODULE, Staged
from toolcell_sdk.errors import BuildError
from toolcell_sdk.hermetic import SETUP_FAILED, hermetic_command
from toolcell_sdk.wit import WORLD

__all__ = ["compile_component", "toolchain"]

WALL_TIME_S = 300
"""For a whole build; one takes about 5 s."""
CPU_TIME_S = 600
MAX_FILE_BYTES = 1 << 30
MAX_DETAIL_CHARACTERS = 8000

_TRACEBACK = "Traceback (most recent call last):"
_MOUNT = re.compile(r'File "/0/')
# Frames of the SDK, of the entry module beside it and of Python itself: not the author's.
_FOREIGN_FRAME = re.compile(r'  File "(/1/|/python/|<frozen )[^"]*".*\n(?:    .*\n)*')
_OWN_WORDS = "toolcell_sdk.errors.SchemaError: "
"""What stands before a message that needs no more: it names method, parameter and remedy."""

_DRIVER = """\
import resource, sys
from componentize_py import script
resource.setrlimit(resource.RLIMIT_CPU, ({cpu}, {cpu}))
resource.setrlimit(resource.RLIMIT_FSIZE, ({file}, {file}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.argv[0] = "componentize-py"
try:
    sys.exit(script())
except AssertionError as error:
    # How componentize-py passes on what its guest wrote; the frames around it are not the author's.
    sys.exit(str(error))
"""


def toolchain() -> dict[str, str]:
    """The versions that decide the component's bytes, besides the source."""
    names = ("componentize-py", "toolcell")
    return {name: _version(name) for name in names}


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def compile_component(staged: Staged) -> str:
    """Compiles the staged folder. Returns why it is not reproducible, or the empty string."""
    if importlib.util.find_spec("componentize_py") is None:
        raise BuildError("componentize-py is not installed; install `toolcell[sdk]`")
    argv = _command(staged)
    status, output = _run(hermetic_command(argv, staged.root), staged)
    reason = ""
    if status == SETUP_FAILED:
        reason = output.strip() or "the build's surroundings could not be fixed"
        status, output = _run(argv, staged)
    if status != 0 or not staged.component.is_file():
        raise BuildError(*_failure(status, output, staged))
    return reason


def _command(staged: Staged) -> list[str]:
    driver = _DRIVER.format(cpu=CPU_TIME_S, file=MAX_FILE_BYTES)
    paths = [part for mount in staged.mounts for part in ("-p", str(mount))]
    return [
        sys.executable,
        *("-I", "-B", "-c", driver),
        *("--quiet", "-d", str(staged.wit), "-w", WORLD),
        *("componentize", ENTRY_MODULE, "-o", str(staged.component), *paths),
    ]


def _environment(staged: Staged) -> dict[str, str]:
    # componentize-py adds the site-packages of VIRTUAL_ENV, or else asks `pipenv` and `python3` for
    # theirs, and everything in them would reach the interpreter. An empty environment has none.
    nowhere = staged.root / "no-environment"
    (nowhere / "lib" / "site-packages").mkdir(parents=True, exist_ok=True)
    return {"VIRTUAL_ENV": str(nowhere), "TMPDIR": str(staged.temporary), "PATH": ""}


def _run(argv: list[str], staged: Staged) -> tuple[int, str]:
    """Exit status and output. The whole process group is gone when it returns."""
    with subprocess.Popen(  # noqa: S603 - our own interpreter, arguments of our own making
        argv,
        cwd=staged.root,
        env=_environment(staged),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as child:
        try:
            output, _ = child.communicate(timeout=WALL_TIME_S)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise BuildError(
                    f"the build took more than {WALL_TIME_S} s; does a module wait or loop where "
                    "it is imported?"
                ) from None
            raise
    return child.returncode, output.decode("utf-8", "replace")


def _failure(status: int, output: str, staged: Staged) -> tuple[str, str]:
    """Message and detail: the author's traceback where the module failed, else the last words."""
    output = output.replace(str(staged.root), "")
    start = output.find(_TRACEBACK)
    if start < 0:
        return f"componentize-py failed with status {status}", output[-MAX_DETAIL_CHARACTERS:]
    trace = _FOREIGN_FRAME.sub("", output[start:])
    trace = _MOUNT.sub('File "', trace).partition("\n\nCaused by:")[0].rstrip()
    last = next((line for line in reversed(trace.splitlines()) if line[:1].strip()), "")
    message = f"the module failed while it was imported: {last}"
    if last.startswith(_OWN_WORDS):
        message = last.removeprefix(_OWN_WORDS)
        trace = trace.removesuffix(last).rstrip()
    return message, trace[-MAX_DETAIL_CHARACTERS:] if '  File "' in trace else ""
