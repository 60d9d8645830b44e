"""Lanes: found, configured, probed once, and kept with what they have prepared.

Owns discovery through the entry-point group `toolcell.lanes` and the cache of prepared artifacts.
Must never import a lane by name: anybody can add one. Used by the runtime.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Self

from toolcell.errors import ConfigError, InternalError, LaneUnavailable, ToolcellError
from toolcell.home import Home
from toolcell.lane import Artifact, Lane, LaneHome, Prepared, Probe, WarnHook

__all__ = ["ENTRY_POINTS", "LaneSet", "discover"]

ENTRY_POINTS = "toolcell.lanes"
MAX_PREPARED = 128
"""Prepared artifacts kept. A Python component holds about 40 MB of mapped code, shared by all
its cells; the least recently used one is closed as soon as no call runs in it."""


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

    __slots__ = ("admitted", "closing", "lock", "prepared", "users")

    def __init__(self) -> None:
        self.lock = threading.Lock()
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
        self._lock = threading.Lock()
        self._probes: dict[str, Probe] = {}
        self._slots: OrderedDict[tuple[str, str], _Slot] = OrderedDict()
        self._closed = False
        for name, lane in self._lanes.items():
            lane.configure(
                LaneHome(
                    cache_dir=str(home.cache(name)), settings=settings.get(name, {}), warn=warn
                )
            )

    def levels(self) -> dict[str, tuple[int, Probe]]:
        """Each lane's isolation level and probe. Probes run once, on first use."""
        return {name: (lane.isolation, self.probe(name)) for name, lane in self._lanes.items()}

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

    def lease(self, name: str, artifact: Artifact) -> Lease:
        """`artifact` prepared in lane `name`, kept open until the lease is given back."""
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
            if slot.prepared is None:
                with slot.lock:
                    if slot.prepared is None:
                        slot.prepared = lane.prepare(artifact)
            return Lease(self, slot, slot.prepared)
        except BaseException:
            self.release(slot)
            raise

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
            prepared = None
            if slot.closing and slot.users == 0:
                prepared, slot.prepared = slot.prepared, None
        if prepared is not None:
            prepared.close()

    def close(self) -> None:
        """Closes every prepared artifact and lane. A call under way ends its own cell first."""
        with self._lock:
            self._closed = True
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


def _close(prepared: list[Prepared]) -> None:
    first: ToolcellError | None = None
    for each in prepared:
        try:
            each.close()
        except ToolcellError as error:  # close all of them, then tell of the first failure
            first = first or error
    if first is not None:
        raise first
