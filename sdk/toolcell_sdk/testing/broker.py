"""The fake broker: grants, faults, delays and a record of every call.

Owns what a broker does around a capability; the capabilities themselves are in `fakes.py`. It is a
`Transport`, so a tool under test can't tell it from the real one. Time is a counter: a delay of an
hour costs nothing.
"""

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from toolcell_sdk.errors import CapabilityError
from toolcell_sdk.testing.fakes import FakeFiles, FakeHttp, FakeImages, FakeKv, FakeLog
from toolcell_sdk.wit import CAPABILITIES

__all__ = ["Call", "FakeBroker"]

DEFAULT_TIMEOUT_MS = 5000
"""Of one capability call: what the policy class `safe-default` gives."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the broker saw it. `status` is 200 or the fault's."""

    capability: str
    arguments: dict[str, Any]
    status: int
    result: Any = None


@dataclass
class _Plan:
    """What a test has in mind for calls of one capability, by number from 1."""

    faults: dict[int, CapabilityError] = field(default_factory=dict)
    always: CapabilityError | None = None
    delays_ms: dict[int, int] = field(default_factory=dict)
    always_ms: int = 0


class FakeBroker:
    """Answers capability calls in a test.

    `granted` are the capabilities that are allowed, by default all; another one is a 403 that
    names it. `kv`, `http`, `files`, `images` and `log` hold what a test sets up and looks at.
    `clock_ms` is the time that delays have taken, `timeout_ms` what one call may take.
    """

    def __init__(self, granted: Iterable[str] | None = None) -> None:
        self.granted = set(CAPABILITIES if granted is None else granted)
        self.timeout_ms = DEFAULT_TIMEOUT_MS
        self.clock_ms = 0
        self.kv = FakeKv()
        self.http = FakeHttp()
        self.files = FakeFiles()
        self.images = FakeImages()
        self.log = FakeLog()
        self._calls: list[Call] = []
        self._plans: dict[str, _Plan] = {}
        self._ways: dict[str, Callable[[dict[str, Any]], Any]] = {
            "kv.get": lambda a: self.kv.get(a["key"]),
            "kv.set": lambda a: self.kv.set(a["key"], a["value"]),
            "kv.delete": lambda a: self.kv.delete(a["key"]),
            "kv.list": lambda a: self.kv.list(a["prefix"]),
            "http.fetch": self.http.fetch,
            "fs.readText": self._read_text,
            "fs.writeText": lambda a: self.files.write(
                "fs.writeText", a["path"], a["text"].encode()
            ),
            "fs.readBytes": lambda a: _base64(self.files.read("fs.readBytes", a["path"])),
            "fs.writeBytes": lambda a: self.files.write(
                "fs.writeBytes", a["path"], base64.b64decode(a["data"])
            ),
            "fs.list": lambda a: self.files.list(a["path"]),
            "fs.remove": lambda a: self.files.remove(a["path"]),
            "images.resize": lambda a: self.images.resize(
                base64.b64decode(a["data"]), a["width"], a["height"], a["format"]
            ),
            "log.emit": lambda a: self.log.emit(a["level"], a["message"]),
        }

    # --- what a test sets up ---------------------------------------------------------------

    def fail(
        self,
        capability: str,
        *,
        status: int,
        message: str = "injected by the test",
        on_call: int | None = None,
    ) -> None:
        """Makes calls of `capability` fail: the `on_call`-th from the start (from 1), or each."""
        error = CapabilityError(status, f"{capability}: {message}", capability)
        plan = self._plan(capability)
        if on_call is None:
            plan.always = error
        else:
            plan.faults[on_call] = error

    def delay(self, capability: str, *, ms: int, on_call: int | None = None) -> None:
        """Makes calls take `ms` of the test's clock; over the call's timeout they fail with 408."""
        plan = self._plan(capability)
        if on_call is None:
            plan.always_ms = ms
        else:
            plan.delays_ms[on_call] = ms

    # --- what a test looks at --------------------------------------------------------------

    def calls(self, capability: str | None = None) -> list[Call]:
        """The calls so far, in order; of one capability, or all."""
        _known(capability)
        return [call for call in self._calls if capability in {None, call.capability}]

    def assert_called(self, capability: str, *, times: int | None = None, **arguments: Any) -> None:
        """Fails unless there was a call with these arguments (or exactly `times`)."""
        matching = [
            call
            for call in self.calls(capability)
            if all(call.arguments.get(name) == value for name, value in arguments.items())
        ]
        found = len(matching)
        if found == 0 if times is None else found != times:
            wanted = "at least once" if times is None else f"{times} times"
            seen = "\n".join(f"  {call.capability} {call.arguments}" for call in self._calls)
            raise AssertionError(
                f"{capability} {arguments or ''} was called {found} times, not {wanted}; "
                f"the calls were:\n{seen or '  none'}"
            )

    def assert_not_called(self, capability: str) -> None:
        """Fails if there was a call."""
        self.assert_called(capability, times=0)

    # --- the transport ---------------------------------------------------------------------

    def call(self, capability: str, arguments: dict[str, Any]) -> Any:
        """Answers one call and records it."""
        try:
            result = self._answer(capability, arguments)
        except CapabilityError as error:
            self._calls.append(Call(capability, arguments, error.status))
            raise
        self._calls.append(Call(capability, arguments, 200, result))
        return result

    def _answer(self, capability: str, arguments: dict[str, Any]) -> Any:
        if capability not in self.granted:
            raise CapabilityError(403, f"{capability}: not granted", capability)
        number = sum(call.capability == capability for call in self._calls) + 1
        plan = self._plans.get(capability, _Plan())
        self._wait(capability, arguments, plan.delays_ms.get(number, plan.always_ms))
        if error := plan.faults.get(number, plan.always):
            raise error
        return self._ways[capability](arguments)

    def _wait(self, capability: str, arguments: dict[str, Any], delay_ms: int) -> None:
        timeout_ms = min(self.timeout_ms, arguments.get("timeout_ms") or self.timeout_ms)
        self.clock_ms += min(delay_ms, timeout_ms)
        if delay_ms > timeout_ms:
            message = f"{capability}: no answer within {timeout_ms} ms"
            raise CapabilityError(408, message, capability)

    def _read_text(self, arguments: dict[str, Any]) -> str:
        try:
            return self.files.read("fs.readText", arguments["path"]).decode()
        except UnicodeDecodeError:
            message = f"fs.readText: `{arguments['path']}` is not UTF-8"
            raise CapabilityError(400, message, "fs.readText") from None

    def _plan(self, capability: str) -> _Plan:
        _known(capability)
        return self._plans.setdefault(capability, _Plan())


def _known(capability: str | None) -> None:
    if capability is not None and capability not in CAPABILITIES:
        raise ValueError(f"no capability `{capability}`; known: {', '.join(CAPABILITIES)}")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
