"""Lanes: found, configured, probed once, and kept with what they have prepared.

Owns discovery through the entry-point group `toolcell.lanes` and the cache of prepared artifacts.
Must never import a lane by name: anybody can add one. Used by the runtime.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from importlib.metadata import entry_points
from typing import Any, Self

from toolcell.errors import ConfigError, InternalError, LaneUnavailable, ToolcellError
from toolcell.home import Home
from toolcell.isolation import can_not_run
from toolcell.lane import Artifact, Lane, LaneHome, Prepared, Probe, WarnHook
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.session import CancelToken

__all__ = ["ENTRY_POINTS", "LaneSet", "discover"]

ENTRY_POINTS = "toolcell.lanes"
MAX_PREPARED = 128
"""Prepared artifacts kept. A Python component holds about 40 MB of mapped code, shared by all
its cells; the least recently used one is closed as soon as no call runs in it."""

_NOT_PROBED = Probe(available=True)
"""Stands for the probe of a lane that is passed over for another reason."""


def discover() -> dict[str, Lane]:
    """Constructs each installed lane. None at all means that toolcell is not installed."""
    found = list(entry_points(group=ENTRY_POINTS))
    if not found:
        raise ConfigError(
            "no lane is installed: the entry-point group `toolcell.lanes` is empty",
            remedy="install the package (pip install -e .); a bare source tree has no entry points",
        )
    lanes: dict[str, Lane] = {}
    for point in found:
        if point.name in lanes:
            raise ConfigError(
                f"two packages register the lane `{point.name}`", remedy="uninstall one of them"
            )
        lanes[point.name] = point.load()()
    return lanes


class _Slot:
    """One artifact in one lane: prepared once, by whoever comes first; the others wait."""

    __slots__ = ("admitted", "closing", "making", "prepared", "users")

    def __init__(self) -> None:
        self.making: Future[Prepared] | None = None
        self.prepared: Prepared | None = None
        self.users = 0
        self.closing = False
        self.admitted: set[str] = set()


class Lease:
    """A prepared artifact while a call uses it. Use it as a context manager."""

    __slots__ = ("_owner", "_slot", "prepared")

    def __init__(self, owner: "LaneSet", slot: _Slot, prepared: Prepared) -> None:
        self._owner = owner
        self._slot = slot
        self.prepared = prepared

    def admitted(self, policy_digest: str) -> bool:
        """Whether this artifact was admitted under this policy before."""
        return policy_digest in self._slot.admitted

    def remember_admitted(self, policy_digest: str) -> None:
        """Spares the next call under the same policy the check."""
        if len(self._slot.admitted) >= 1024:
            self._slot.admitted.clear()
        self._slot.admitted.add(policy_digest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._owner.release(self._slot)


class LaneSet:
    """The configured lanes of one runtime. Thread-safe."""

    def __init__(
        self,
        home: Home,
        lanes: Mapping[str, Lane],
        settings: Mapping[str, Mapping[str, Any]],
        warn: WarnHook,
    ) -> None:
        unknown = sorted(set(settings) - set(lanes))
        if unknown:
            raise ConfigError(
                f"settings for the lane `{unknown[0]}`, which is not installed",
                remedy=f"installed: {', '.join(sorted(lanes))}",
            )
        self._lanes = dict(lanes)
        self._lock = threading.Condition()
        self._probes: dict[str, Probe] = {}
        self._slots: OrderedDict[tuple[str, str], _Slot] = OrderedDict()
        self._closed = False
        for name, lane in self._lanes.items():
            lane.configure(
                LaneHome(
                    cache_dir=str(home.cache(name)), settings=settings.get(name, {}), warn=warn
                )
            )

    def levels(self, artifact_lane: str) -> dict[str, tuple[int, Probe]]:
        """Each lane's isolation level and probe, for an artifact of `artifact_lane`.

        Probes run once, on first use, and only where the lane may be chosen: a probe of the oops
        lane starts processes, which nobody needs to run a component.
        """
        return {
            name: (
                lane.isolation,
                _NOT_PROBED if can_not_run(name, artifact_lane) else self.probe(name),
            )
            for name, lane in self._lanes.items()
        }

    def probe(self, name: str) -> Probe:
        """What this machine can enforce in lane `name`."""
        lane = self.get(name)
        with self._lock:
            known = self._probes.get(name)
            if known is None:
                known = self._probes[name] = lane.probe()
            return known

    def get(self, name: str) -> Lane:
        """The lane `name`; :class:`LaneUnavailable` where it is not installed."""
        lane = self._lanes.get(name)
        if lane is None:
            raise LaneUnavailable(
                f"the lane `{name}` is not installed here",
                remedy=f"installed: {', '.join(sorted(self._lanes))}",
                details={"feature": f"lane:{name}"},
            )
        return lane

    def lease(
        self,
        name: str,
        artifact: Artifact,
        envelope: PolicyEnvelope,
        cancel: CancelToken,
        patience_s: float | None = None,
    ) -> Lease:
        """`artifact` prepared in lane `name`, kept open until the lease is given back.

        What `envelope` is bound to be refused for is refused before anything is prepared.

        Preparing takes seconds the first time. It goes on in a thread of its own when the caller
        is cancelled, interrupted, or has waited for `patience_s` (None: as long as it takes;
        `TimeoutError`): a later call finds it done.
        """
        lane = self.get(name)
        key = (name, artifact.digest)
        with self._lock:
            if self._closed:
                raise InternalError("the runtime is closed", remedy="make a new Runtime")
            slot = self._slots.get(key)
            if slot is None:
                slot = self._slots[key] = _Slot()
            self._slots.move_to_end(key)
            slot.users += 1
            evicted = self._evict()
        _close(evicted)
        try:
            prepared = slot.prepared
            if prepared is None:
                lane.screen(artifact, envelope)
                prepared = _await(self._making(slot, lane, artifact), cancel, patience_s)
            return Lease(self, slot, prepared)
        except BaseException:
            self.release(slot)
            raise

    def _making(self, slot: _Slot, lane: Lane, artifact: Artifact) -> "Future[Prepared]":
        """The preparation of `slot` that is under way, started where there is none."""
        with self._lock:
            if slot.making is None:
                making: Future[Prepared] = Future()
                threading.Thread(
                    target=self._make, args=(slot, lane, artifact, making), name="toolcell-prepare"
                ).start()
                slot.making = making
                slot.users += 1  # the thread's own: the slot stays open until it is done
            return slot.making

    def _make(
        self, slot: _Slot, lane: Lane, artifact: Artifact, making: "Future[Prepared]"
    ) -> None:
        with self._lock:
            pass  # wait until `_making` has noted this thread
        try:
            slot.prepared = lane.prepare(artifact)
        except BaseException as error:  # noqa: BLE001 - handed to everybody who waits
            slot.making = None  # the next call tries again
            making.set_exception(error)
        else:
            making.set_result(slot.prepared)
        finally:
            self.release(slot)

    def _evict(self) -> list[Prepared]:
        """Takes the oldest slots out over the limit; returns those that nobody uses."""
        closable: list[Prepared] = []
        while len(self._slots) > MAX_PREPARED:
            _, slot = self._slots.popitem(last=False)
            slot.closing = True
            if slot.users == 0 and slot.prepared is not None:
                closable.append(slot.prepared)
                slot.prepared = None
        return closable

    def release(self, slot: _Slot) -> None:
        """Gives a lease back; the last user of an evicted slot closes it."""
        with self._lock:
            slot.users -= 1
            self._lock.notify_all()
            prepared = None
            if slot.closing and slot.users == 0:
                prepared, slot.prepared = slot.prepared, None
        if prepared is not None:
            prepared.close()

    def close(self) -> None:
        """Ends what is being prepared, then closes every prepared artifact and lane."""
        with self._lock:
            self._closed = True
        for lane in self._lanes.values():
            lane.interrupt()
        with self._lock:
            self._lock.wait_for(self._idle)
            slots, self._slots = list(self._slots.values()), OrderedDict()
            closable = []
            for slot in slots:
                slot.closing = True
                if slot.users == 0 and slot.prepared is not None:
                    closable.append(slot.prepared)
                    slot.prepared = None
        _close(closable)
        for lane in self._lanes.values():
            lane.close()

    def _idle(self) -> bool:
        return not any(slot.users for slot in self._slots.values())


def _await(making: "Future[Prepared]", cancel: CancelToken, patience_s: float | None) -> Prepared:
    """The result of `making`, or the token's error as soon as the caller is cancelled."""
    done = threading.Event()
    making.add_done_callback(lambda _: done.set())
    forget = cancel.on_cancel(done.set)
    try:
        done.wait(patience_s)
    finally:
        forget()
    if not making.done():
        raise cancel.error or TimeoutError
    return making.result()


def _close(prepared: list[Prepared]) -> None:
    first: ToolcellError | None = None
    for each in prepared:
        try:
            each.close()
        except ToolcellError as error:  # close all of them, then tell of the first failure
            first = first or error
    if first is not None:
        raise first
