"""Runtime: the way in for whoever embeds toolcell.

Owns the life of everything long-lived (registry, policies, lanes, broker services, telemetry) and
the ways to call: `invoke`, `ainvoke`, `map`, `start`. What a call does is in `toolcell.pipeline`.
"""

import asyncio
import math
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import msgspec

from toolcell.admission import Gate
from toolcell.broker import BrokerServices
from toolcell.errors import CallCancelled, InternalError, InvalidInput, QueueFull
from toolcell.events import EventContext, MonitorIncident
from toolcell.handle import Handle
from toolcell.home import Home, owner_only_key
from toolcell.lane import Lane
from toolcell.lanes import LaneSet, discover
from toolcell.pipeline import Pipeline
from toolcell.plan import MaskChoice, Planner, PolicyChoice
from toolcell.result import Result, Trust
from toolcell.run import Call
from toolcell.session import CancelToken
from toolcell.telemetry import Sink, Telemetry
from toolcell.telemetry.jsonl import JsonlSink
from toolcell.telemetry.redact import Redactor
from toolcell.trust.keys import SigningKey

__all__ = ["CallOptions", "Runtime"]


class CallOptions(TypedDict, total=False):
    """What every way of calling takes beside tool, method and input.

    `version`: a version or a range; empty, the default, is the newest release.
    `policy`: a class, a policy file or an envelope. None, the default, takes what the operator
    bound to the tool, else the manifest's class where manifests may choose it.
    `masks`: classes or partial envelopes that narrow it further; they can't widen anything.
    `scope`: the named set of tools to resolve in, `default` by default.
    `input_trust`: `system`, `trusted` or `untrusted`, the default.
    `lane`: demand this lane; refused where the selection does not allow it.
    `timeout_ms`: bounds the whole call from when it is asked for: preparing, waiting for a place,
    running. It never lengthens the policy's wall time, which bounds the run alone.
    """

    version: str
    policy: PolicyChoice
    masks: Sequence[MaskChoice]
    scope: str
    input_trust: Trust
    lane: str | None
    timeout_ms: int | None


class Runtime:
    """Runs tools. A context manager; thread-safe; one per process is enough.

    `home`: folder of the installation; None is `$TOOLCELL_HOME`, else the user's data folder.
    `lanes`: None finds the installed ones; a mapping replaces them (tests).
    `lane_settings`: a table per lane, checked by that lane at start.
    `sinks`: further places for events, beside the audit log of the home folder.
    `services`: the broker's; None makes them from the home folder. Closed with the runtime.
    `result_key`: signs the result of each call that succeeds; None signs none.
    `max_concurrency`: calls that run at once, by default 4 per core. `queue_length`: calls that
    may wait beyond that; the next one is refused with status 429.

    Raises :class:`ConfigError` for whatever is wrong with the installation, before any call.
    """

    def __init__(
        self,
        home: Path | str | None = None,
        *,
        lanes: Mapping[str, Lane] | None = None,
        lane_settings: Mapping[str, Mapping[str, Any]] | None = None,
        sinks: Sequence[Sink] = (),
        services: BrokerServices | None = None,
        result_key: SigningKey | None = None,
        max_concurrency: int | None = None,
        queue_length: int = 1000,
    ) -> None:
        self.home = Home(home)
        self.max_concurrency = max_concurrency or 4 * (os.cpu_count() or 1)
        self.queue_length = queue_length
        self._lock = threading.Condition()
        self._active: set[CancelToken] = set()
        self._closed = False
        self._pool: ThreadPoolExecutor | None = None
        redactor = Redactor.for_host(self.home)
        # Whatever fails half-way takes what was opened before it down again, as `close` does.
        with ExitStack() as opened:
            audit = JsonlSink(self.home.audit, owner_only_key(self.home.audit_key))
            self._telemetry = Telemetry((audit, *sinks), redactor=redactor)
            opened.callback(self._telemetry.close)
            services = services or BrokerServices.for_home(self.home, redactor.add_secret)
            opened.callback(services.close)
            found = discover() if lanes is None else lanes
            lane_set = LaneSet(self.home, found, lane_settings or {}, self._warn)
            opened.callback(lane_set.close)
            self._planner = Planner(self.home, lane_set)
            opened.callback(self._planner.close)
            leftovers = services.reap()
            if leftovers:
                self._warn("broker.leftovers", f"removed {leftovers} scratch folders of dead hosts")
            self._opened = opened.pop_all()
        self._pipeline = Pipeline(
            planner=self._planner,
            lanes=lane_set,
            gate=Gate(self.max_concurrency, queue_length),
            services=services,
            emitter=self._telemetry,
            redactor=redactor,
            result_key=result_key,
        )

    def invoke(
        self,
        tool: str | Path,
        method: str,
        input: Any = None,  # noqa: A002 - the domain's word
        **options: Unpack[CallOptions],
    ) -> Result:
        """Calls `method` of `tool` in a fresh cell and waits for the result.

        `tool`: a name in the registry, or the path (a `Path`) of a signed artifact. The first
        call of an artifact compiles it, which takes seconds: see :meth:`prepare`. `input`:
        anything that JSON can hold; None is `{}`. A call that was refused or failed is a result
        with an `error`; `Result.value()` raises it. Ctrl-C ends the cell and is raised here.
        """
        return self._run(Call(tool=tool, method=method, raw=_encode(input), **options))

    def invoke_json(
        self, tool: str | Path, method: str, raw: bytes, **options: Unpack[CallOptions]
    ) -> Result:
        """:meth:`invoke` with an input that is JSON text already, checked like any other."""
        return self._run(Call(tool=tool, method=method, raw=raw, **options))

    async def ainvoke(
        self,
        tool: str | Path,
        method: str,
        input: Any = None,  # noqa: A002 - the domain's word
        **options: Unpack[CallOptions],
    ) -> Result:
        """:meth:`invoke` without blocking the event loop.

        Cancelling the task ends the cell; the cancellation is raised when the cell is gone.
        """
        call = Call(tool=tool, method=method, raw=_encode(input), **options)
        waiting = asyncio.wrap_future(self._submit(call))
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            call.cancel.cancel(CallCancelled("the task that awaited the call was cancelled"))
            await asyncio.wait([waiting])
            raise

    def start(
        self,
        tool: str | Path,
        method: str,
        input: Any = None,  # noqa: A002 - the domain's word
        **options: Unpack[CallOptions],
    ) -> Handle:
        """Starts a call and returns at once; the handle has its status, `kill` and `wait`.

        Raises :class:`QueueFull` where too many calls wait.
        """
        call = Call(tool=tool, method=method, raw=_encode(input), **options)
        return Handle(self._submit(call), call.cancel)

    def map(
        self,
        tool: str | Path,
        method: str,
        inputs: Iterable[Any],
        *,
        concurrency: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Iterator[Result]:
        """Calls `method` once for each of `inputs`; yields the results in their order.

        At most `concurrency` calls run at once (default and upper bound: `max_concurrency`), and
        `inputs` is read no further ahead than that, so it may be endless. Leaving the iteration
        early ends the calls that still run.
        """
        width = min(concurrency or self.max_concurrency, self.max_concurrency)
        if width < 1:
            raise ValueError(f"concurrency is {concurrency}; it must be at least 1")
        window: deque[tuple[Future[Result], CancelToken]] = deque()
        try:
            for each in inputs:
                call = Call(tool=tool, method=method, raw=_encode(each), **options)
                window.append((self._submit(call), call.cancel))
                if len(window) >= width:
                    yield window[0][0].result()
                    window.popleft()
            while window:
                yield window[0][0].result()
                window.popleft()
        finally:
            for _, cancel in window:
                cancel.cancel(CallCancelled("the iteration was left"))
            for future, _ in window:
                future.exception()

    def prepare(self, tool: str | Path, **options: Unpack[CallOptions]) -> None:
        """Does ahead what the first call would: verify, compile, check the imports.

        Raises what that call would have failed with.
        """
        self._pipeline.prepare(Call(tool=tool, method="", raw=b"", **options))

    def close(self) -> None:
        """Ends every call that runs, waits until their cells are gone, and frees everything."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for token in self._active:
                token.cancel(CallCancelled("the runtime was closed"))
            self._lock.wait_for(lambda: not self._active)
        if self._pool is not None:
            self._pool.shutdown()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _admit(self, call: Call, limit: int | None = None) -> None:
        """Registers `call` as active, so that `close` can end it and wait for it."""
        with self._lock:
            if self._closed:
                raise InternalError("the runtime is closed", remedy="make a new Runtime")
            if limit is not None and len(self._active) >= limit:
                raise QueueFull(
                    f"{len(self._active)} calls run or wait",
                    remedy="try again later, or raise queue_length of the Runtime",
                    details={"limit": limit, "waited_ms": 0},
                )
            self._active.add(call.cancel)

    def _retire(self, call: Call) -> None:
        with self._lock:
            self._active.discard(call.cancel)
            if not self._active:
                self._lock.notify_all()

    def _run(self, call: Call) -> Result:
        self._admit(call)
        try:
            return self._pipeline.run(call)
        finally:
            self._retire(call)

    def _submit(self, call: Call) -> "Future[Result]":
        """Runs `call` in the pool. What waits there is bounded like what waits at the gate."""
        self._admit(call, limit=self.max_concurrency + self.queue_length)
        try:
            future = self._threads().submit(self._pipeline.run, call)
        except BaseException:
            self._retire(call)
            raise
        future.add_done_callback(lambda _: self._retire(call))
        return future

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.max_concurrency, "toolcell-call")
            return self._pool

    def _warn(self, type: str, message: str, /) -> None:  # noqa: A002 - the hook's shape
        self._telemetry.emit(
            MonitorIncident.of(EventContext(), severity="warning", type=type, message=message)
        )


_ENCODER = msgspec.json.Encoder()


def _refuse_non_finite(value: Any) -> None:
    """NaN and the infinities have no JSON form; the encoder writes `null` for them."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    if isinstance(value, Mapping):
        for each in value.values():
            _refuse_non_finite(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            _refuse_non_finite(each)


def _encode(value: Any) -> bytes:
    """`value` as JSON text; :class:`InvalidInput` where JSON can't hold it."""
    try:
        raw = _ENCODER.encode({} if value is None else value)
        if b"null" in raw:
            _refuse_non_finite(value)
        return raw
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the input can't be written as JSON: {error}",
            remedy="pass dicts, lists, strings, numbers, booleans and None",
            status=400,
        ) from None
