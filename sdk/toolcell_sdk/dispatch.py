"""From a method's name and a JSON text to a JSON text or a `Fault`: the inside of every cell.

Owns the order: find, parse, check, run, check, write; and that nothing an author's function does
gets past it, be it an exception, an exit or a return value that is not what was declared. Must
never know how the call came in: `component.py`, `worker` and the test kit call it. Standard
library only.
"""

import json
import traceback
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, TypeVar

from toolcell_sdk.errors import CapabilityError, Fault, ToolError
from toolcell_sdk.methods import Method, Registry
from toolcell_sdk.shapes import Mismatch

__all__ = ["Dispatcher"]

MAX_MESSAGE_CHARACTERS = 2000
MAX_DETAIL_CHARACTERS = 16_000
"""Of a traceback; the end is kept, where the error is."""
MAX_FRAMES = 40

T = TypeVar("T")

_SDK_FOLDER = str(PurePath(__file__).parent)


class Dispatcher:
    """Calls the methods of `registry`.

    `source_root` is cut from the file names in tracebacks. `passes_through` are exceptions of the
    host that a cell has no cause to hide: a test run's Ctrl-C.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        source_root: str,
        passes_through: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._registry = registry
        self._source_root = source_root.rstrip("/") + "/"
        self._passes_through = passes_through

    def invoke(self, name: str, text: str) -> str:
        """Runs the method on the arguments in `text` and returns its result, both JSON.

        Raises :class:`Fault` and nothing else: 404 no such method, 400 not JSON, 422 against the
        schema, the capability's own status, or 500 with the author's traceback.
        """
        method = self._method(name)
        return self._run(method, _parsed(method, text))

    def invoke_value(self, name: str, value: Any) -> str:
        """As :meth:`invoke`, on arguments that came as parsed JSON."""
        return self._run(self._method(name), value)

    def guard(self, action: Callable[[], T]) -> T:
        """Runs the author's code that `action` leads to: whatever it raises is a :class:`Fault`."""
        try:
            return action()
        except self._passes_through:
            raise
        except BaseException as error:  # noqa: BLE001 - the wall: an author's exit() ends here too
            raise self._fault(error) from None

    def _method(self, name: str) -> Method:
        method = self._registry.methods.get(name)
        if method is None:
            known = ", ".join(self._registry.methods)
            raise Fault(404, _cut(f"no method `{name}`; the tool has {known}"))
        return method

    def _run(self, method: Method, value: Any) -> str:
        arguments = _arguments(method, value)
        return _result(method, self.guard(lambda: method.function(**arguments)))

    def _fault(self, error: BaseException) -> Fault:
        if isinstance(error, CapabilityError):
            return Fault(error.status, _cut(error.message), self._detail(error))
        if isinstance(error, ToolError):
            return Fault(error.status, _cut(error.message))
        if isinstance(error, SystemExit):
            return Fault(500, f"the tool called sys.exit({error.code!r})", self._detail(error))
        try:
            message = f"{type(error).__name__}: {error}".rstrip(": ")
        except Exception:  # noqa: BLE001 - an author's own __str__
            message = type(error).__name__
        return Fault(500, _cut(message), self._detail(error))

    def _detail(self, error: BaseException) -> str:
        """The author's part of the traceback. Empty where even that could not be made."""
        try:
            trace = traceback.TracebackException.from_exception(error, limit=-MAX_FRAMES)
            _keep_author_frames(trace)
            text = "".join(trace.format()).replace(f'File "{self._source_root}', 'File "')
            text.encode()
        except Exception:  # noqa: BLE001 - out of memory, or a hostile __str__
            return ""
        return text if len(text) <= MAX_DETAIL_CHARACTERS else "…" + text[-MAX_DETAIL_CHARACTERS:]


def _parsed(method: Method, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Fault(400, _cut(f"{method.name}: the input is not JSON: {error}")) from None


def _arguments(method: Method, value: Any) -> dict[str, Any]:
    try:
        return method.arguments(value)
    except Mismatch as mismatch:
        raise Fault(422, _cut(f"{method.name}: {mismatch.where('input')}")) from None
    except RecursionError:
        raise Fault(422, f"{method.name}: the input is nested too deeply") from None


def _result(method: Method, returned: Any) -> str:
    try:
        ready = method.result(returned)
        text = json.dumps(ready, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except Mismatch as mismatch:
        raise Fault(500, _cut(f"{method.name}: {mismatch.where('returned value')}")) from None
    except UnicodeEncodeError:
        message = (
            f"{method.name}: the returned text holds a lone surrogate, which UTF-8 can't carry"
        )
        raise Fault(500, message) from None
    except (TypeError, ValueError, RecursionError, MemoryError) as error:
        message = f"{method.name}: the returned value is not JSON: {type(error).__name__}: {error}"
        raise Fault(500, _cut(message)) from None
    return text


def _keep_author_frames(trace: traceback.TracebackException | None) -> None:
    while trace is not None:
        trace.stack[:] = [f for f in trace.stack if not f.filename.startswith(_SDK_FOLDER)]
        _keep_author_frames(trace.__context__)
        trace = trace.__cause__


def _cut(message: str) -> str:
    clean = message.encode("utf-8", "replace").decode()
    if len(clean) <= MAX_MESSAGE_CHARACTERS:
        return clean
    return clean[:MAX_MESSAGE_CHARACTERS] + "…"
