"""What a cell refuses, by qualified name: the tables of the linter.

A target is a dotted name, and stands for all below it when it ends in `.*`. Found by trying each in
a component (CPython 3.14 of componentize-py 0.25): what raises, what is not there, what silently
does nothing. The sandbox is the boundary; these rules say at build time, with a line, what it would
say at run time.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["BAKED", "BAKED_WAIT", "LAZY_IMPORT_REMEDY", "MODULES", "NAMES", "Rule", "rule_of"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One family of targets. `remedy` completes the sentence "TARGET is not in a cell; ..."."""

    name: str
    what: str
    remedy: str
    targets: tuple[str, ...]
    severity: Literal["error", "warning"] = "error"


def _below(prefix: str, names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{name}" for name in names.split())


_NO_PROCESS = "do the work in the tool: a cell is one process"
_USE_FETCH = "use `http.fetch` of toolcell_sdk"
_USE_FILES = "use `files` of toolcell_sdk"

_PATH_IO = (
    "read_text read_bytes write_text write_bytes open touch unlink mkdir rmdir rename replace "
    "iterdir glob rglob walk exists is_file is_dir stat lstat chmod symlink_to hardlink_to"
)
_OS_FILES = (
    "open listdir scandir walk fwalk remove unlink rename renames replace mkdir makedirs rmdir "
    "removedirs link symlink truncate chmod chown stat lstat readlink mkfifo chdir getcwd access"
)
_OS_PROCESS = (
    "system popen fork forkpty execl execle execlp execlpe execv execve execvp execvpe spawnl "
    "spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe posix_spawn posix_spawnp startfile "
    "kill killpg wait waitpid"
)

MODULES = (
    Rule(
        "process",
        "starts a process",
        _NO_PROCESS,
        ("subprocess", "multiprocessing", "pty", "pexpect", "sh"),
    ),
    Rule(
        "network",
        "opens a socket",
        _USE_FETCH,
        (
            *("socket", "socketserver", "ssl", "http.client", "http.server", "urllib.request"),
            *("ftplib", "smtplib", "poplib", "imaplib", "telnetlib", "xmlrpc"),
            *("requests", "httpx", "aiohttp", "urllib3", "websocket", "websockets", "paramiko"),
        ),
    ),
    Rule(
        "native",
        "loads native code or asks the operating system",
        "use pure Python: a component holds no native library",
        (
            *("ctypes", "cffi", "mmap", "fcntl", "resource", "termios", "tty", "curses"),
            *("readline", "pwd", "grp", "syslog", "msvcrt", "winreg", "winsound"),
            *("numpy", "pandas", "scipy", "lxml", "PIL", "cryptography"),
        ),
    ),
    Rule(
        "compression",
        "is not in a component's Python",
        "use `zlib` or `gzip`",
        ("bz2", "lzma"),
    ),
    Rule(
        "files", "reads and writes files", _USE_FILES, ("shutil", "tempfile", "glob", "fileinput")
    ),
    Rule(
        "dynamic-code",
        "loads code at run time",
        "import what you need at the top of the module",
        ("runpy", "code", "codeop", "zipimport", "imp"),
    ),
)
"""Reported where the module is imported."""

NAMES = (
    Rule("process", "starts or ends a process", _NO_PROCESS, _below("os", _OS_PROCESS)),
    Rule(
        "threads",
        "starts a thread",
        "write it as one sequence: a cell has one thread",
        (
            *("threading.Thread", "threading.Timer", "_thread.start_new_thread"),
            *_below("concurrent.futures", "ThreadPoolExecutor ProcessPoolExecutor"),
            *_below("asyncio", "run new_event_loop get_event_loop Runner to_thread"),
        ),
    ),
    Rule(
        "dynamic-code",
        "runs code that is made at run time",
        "write the code out, or parse the input as data (`json`, `ast.literal_eval`)",
        (
            *_below("builtins", "eval exec compile __import__"),
            *_below("importlib", "import_module reload __import__"),
        ),
    ),
    Rule(
        "files",
        "opens a file",
        _USE_FILES,
        (
            *("builtins.open", "io.open", "io.FileIO", "io.open_code", "codecs.open"),
            *_below("os", _OS_FILES),
            *_below("os.path", "exists isfile isdir islink getsize getmtime samefile"),
            *_below("pathlib.Path()", _PATH_IO),
            *_below("pathlib.Path", "cwd home"),
        ),
    ),
    Rule(
        "environment",
        "reads the environment, which is empty in a cell",
        "make it an argument of the method",
        _below("os", "environ.* environ environb getenv getenvb putenv unsetenv"),
    ),
    Rule(
        "stdin",
        "reads standard input, which is empty in a cell",
        "make it an argument of the method",
        ("builtins.input", "sys.stdin.*", "sys.stdin"),
    ),
    Rule("exit", "aborts the cell", "raise `ToolError`", ("os._exit", "os.abort")),
    Rule(
        "exit",
        "ends the call as a fault without a message",
        "raise `ToolError`",
        ("sys.exit", "builtins.exit", "builtins.quit"),
        severity="warning",
    ),
)
"""Reported where the name is used."""

BAKED = Rule(
    "baked-state",
    "is evaluated once, when the component is built",
    "call it inside the method",
    (
        *_below("time", "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns"),
        *_below("datetime.datetime", "now utcnow today"),
        "datetime.date.today",
        *_below("random", "Random random randint randrange choice choices sample uniform"),
        *_below("uuid", "uuid1 uuid4"),
        "secrets.*",
        "os.urandom",
    ),
    severity="warning",
)
"""Reported where it is called at the top level of a module."""

BAKED_WAIT = Rule(
    "baked-state",
    "waits while the component is built, where the clock stands still",
    "call it inside the method",
    ("time.sleep",),
)
"""The same, for what would never end."""

LAZY_IMPORT_REMEDY = "import it at the top of the module: a component can't import later"


def rule_of(rules: tuple[Rule, ...], name: str) -> Rule | None:
    """The rule that `name`, or a name that it lies below, falls under."""
    for rule in rules:
        for target in rule.targets:
            if name == target or (target.endswith(".*") and name.startswith(target[:-1])):
                return rule
    return None
