"""How the bases that come with toolcell are made: `empty`, `native` and `python`.

Owns the layout inside the trees. What goes in is this machine's own: its C library, the running
interpreter, its standard library and the SDK. Called by the store, into an empty folder.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import toolcell_sdk
from toolcell.errors import LaneUnavailable
from toolcell_oops.base.elf import libraries, loader_of
from toolcell_sdk.builder.staging import GUEST_PARTS
from toolcell_sdk.sources import plain_files

__all__ = ["PYTHON", "RECIPES", "fingerprint"]

PYTHON = "/python/bin/python3"
"""The interpreter in the base `python`."""

COMPILE_TIMEOUT_S = 300
_PYTHON_LIB = f"python/lib/python3.{sys.version_info.minor}"

_LEFT_OUT = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "ensurepip",
        "idle_test",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "tkinter",
        "turtledemo",
        "venv",
    }
)
"""Of the standard library: tests, programs with windows, and installers."""

_NATIVE_LIBRARIES = (
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libresolv.so.2",
    "libgcc_s.so.1",
    "libstdc++.so.6",
)
"""What a C or C++ program may take for granted. Its other libraries come in the artifact's lib/."""

_WORKER_PARTS = (*(part for part in GUEST_PARTS if part != "component.py"), "worker")


def fingerprint(name: str) -> str:
    """Changes when what the recipe `name` would make may change. Cheap: reads no big file."""
    parts = [name, sys.version, sys.base_prefix, str(platform.libc_ver())]
    for path in (Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib")) / "os.py"):
        found = path.stat()
        parts.append(f"{path} {found.st_size} {found.st_mtime_ns}")
    sources = (Path(__file__), *_sdk_files())
    parts += (hashlib.sha256(source.read_bytes()).hexdigest() for source in sources)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def make_empty(root: Path) -> None:
    """Nothing: for a program that is linked statically."""
    del root


def make_native(root: Path) -> None:
    """The C library, its loader, and the few libraries next to it that everybody needs."""
    program = Path(sys.executable).resolve()
    loader = loader_of(program)
    found = libraries(loader, [program])
    libc = found.get("libc.so.6")
    if libc is None:
        raise LaneUnavailable(
            "no base tree can be made here: this interpreter's C library is not glibc",
            remedy="name a folder of your own in the setting `bases` of the oops lane",
            details={"feature": "base"},
        )
    _copy(loader, root / str(loader).lstrip("/"))
    for name in _NATIVE_LIBRARIES:
        beside = libc.parent / name
        if beside.exists():
            _copy(beside, root / str(beside).lstrip("/"))


def make_python(root: Path) -> None:
    """The running interpreter without its site-packages, and the SDK with its worker."""
    make_native(root)
    program = Path(sys.executable).resolve()
    _copy(program, root / PYTHON.lstrip("/"))
    lib = root / _PYTHON_LIB
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        lib,
        ignore=_ignored,
        copy_function=shutil.copyfile,
    )
    needed = libraries(loader_of(program), [program, *lib.glob("lib-dynload/*.so")])
    folder = root / str(libraries(loader_of(program), [program])["libc.so.6"].parent).lstrip("/")
    for name, file in needed.items():
        if not (folder / name).exists():
            _copy(file, folder / name)
    here = Path(toolcell_sdk.__file__).parent
    for file in _sdk_files():
        target = lib / "toolcell_sdk" / file.relative_to(here)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    _compile(lib)


RECIPES: Mapping[str, Callable[[Path], None]] = {
    "empty": make_empty,
    "native": make_native,
    "python": make_python,
}


def _sdk_files() -> list[Path]:
    here = Path(toolcell_sdk.__file__).parent
    return [file for part in _WORKER_PARTS for file in plain_files(here / part)]


def _ignored(folder: str, names: list[str]) -> set[str]:
    # A static library or a config-* folder helps to build programs, not to run them.
    odd = {name for name in names if name.endswith((".a", ".pyc"))}
    odd |= {name for name in names if name.startswith(("config-", "_tkinter."))}
    links = {name for name in names if (Path(folder) / name).is_symlink()}
    return odd | links | (_LEFT_OUT & set(names))


def _copy(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file.resolve(), target)
    target.chmod(0o755)


def _compile(lib: Path) -> None:
    """Byte code beside each module, which a cell can't write. Unchecked: the digest covers it."""
    subprocess.run(  # noqa: S603 - our own interpreter
        [
            *(sys.executable, "-I", "-S", "-m", "compileall", "-qq"),
            *("--invalidation-mode", "unchecked-hash"),
            *("-s", str(lib), "-p", f"/{_PYTHON_LIB}", str(lib)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=COMPILE_TIMEOUT_S,
        check=False,  # a file that does not compile is one that nobody can import
        env={},
    )
