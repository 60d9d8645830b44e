"""Plans: which artifact, under which envelope, in which lane. Made once, kept, looked up per call.

Owns the caches between the registry, the policy book and the isolation selection, and decides
nothing itself. What a plan was made from is asked again on every call (the registry for the
artifact, the book for the ruling), so that a revoked key or an edited policy counts at once; only
what follows from it is remembered. Used by the call pipeline, from any thread.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from toolcell.artifact.open import open_artifact
from toolcell.artifact.schema import MethodSchemas
from toolcell.home import Home
from toolcell.isolation import output_trust, select_isolation
from toolcell.lane import Artifact
from toolcell.lanes import LaneSet
from toolcell.policy.book import MaskChoice, PolicyBook, PolicyChoice, Ruling
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.registry import Registry
from toolcell.result import Trust
from toolcell.session import ToolRef
from toolcell.trust.store import TrustFile

__all__ = ["MaskChoice", "Plan", "Planner", "PolicyChoice", "Tool"]

MAX_TOOLS = 256
MAX_PLANS = 4096


class Tool(Struct, frozen=True):
    """A verified artifact with what every call of it needs. `policy`: what the registry binds."""

    artifact: Artifact
    ref: ToolRef
    schemas: MethodSchemas
    policy: str | None = None

    def check_input(self, method: str, raw: bytes, limit: int) -> None:
        """Refuses an unknown method (404) and input that is no JSON, too large or off schema."""
        self.schemas.check_input(method, raw, limit)

    def check_output(self, method: str, raw: bytes) -> Any:
        """The decoded output; :class:`ToolFault` where it is not what the manifest promises."""
        return self.schemas.check_output(method, raw)


class Plan(Struct, frozen=True, kw_only=True):
    """How a call will run.

    `warnings` say what the tool asked for and does not get, `reasons` why it runs in that lane.
    """

    tool: Tool
    ruling: Ruling
    envelope: PolicyEnvelope
    policy_digest: str
    lane: str
    isolation: int
    output_trust: Trust
    warnings: tuple[str, ...]
    reasons: tuple[str, ...]


class Planner:
    """Makes plans and remembers them. Thread-safe."""

    def __init__(self, home: Home, lanes: LaneSet) -> None:
        self._lanes = lanes
        self._trust = TrustFile(home.trust)
        self._registry = Registry.open(home, self._trust)
        self._book = PolicyBook(home)
        self._lock = threading.Lock()
        self._tools: OrderedDict[tuple[str, str | None], Tool] = OrderedDict()
        self._plans: OrderedDict[tuple[object, ...], Plan] = OrderedDict()

    def resolve(self, tool: str | Path, version: str, scope: str) -> Tool:
        """The newest release of `tool` in `version`'s range that `scope` holds; or, for a path,
        that artifact, verified against the same trust store.
        """
        if isinstance(tool, Path):
            # Without its bytes, 18 MB of a Python tool, which the cache would hold on to; what is
            # read of the file again is checked again.
            opened = open_artifact(tool, self._trust.current())
            return self._tool(opened.kept_at(tool.absolute()), None)
        found = self._registry.resolve(tool, version, scope=scope)
        return self._tool(found.artifact, found.policy)

    def _tool(self, artifact: Artifact, policy: str | None) -> Tool:
        key = (artifact.digest, policy)
        with self._lock:
            known = self._tools.get(key)
            if known is not None:
                if known.artifact is not artifact:
                    # The same content from another file, or under another signature: the file of
                    # before may be gone, and the key of before may not count any more.
                    known = self._tools[key] = structs.replace(known, artifact=artifact)
                self._tools.move_to_end(key)
                return known
        manifest = artifact.manifest
        ref = ToolRef(manifest.id, manifest.name, manifest.version, artifact.digest)
        made = Tool(artifact, ref, MethodSchemas(manifest), policy)
        with self._lock:
            self._tools[key] = made
            while len(self._tools) > MAX_TOOLS:
                self._tools.popitem(last=False)
        return made

    def plan(
        self,
        tool: Tool,
        *,
        policy: PolicyChoice = None,
        masks: Sequence[MaskChoice] = (),
        input_trust: Trust = "untrusted",
        lane: str | None = None,
    ) -> Plan:
        """How a call of `tool` runs under `policy` (None: what the registry binds, else the
        manifest's class), narrowed by `masks`. Raises whatever refuses it.
        """
        manifest = tool.artifact.manifest
        chosen = tool.policy if policy is None else policy
        ruling = self._book.ruling(manifest, tool.ref.digest, chosen, masks)
        key = (tool.ref.digest, ruling.digest, input_trust, lane)
        known = self._plans.get(key)
        if known is not None and known.tool is tool and known.ruling is ruling:
            return known
        selection = select_isolation(
            manifest, input_trust, ruling.envelope, self._lanes.levels(manifest.lane), lane=lane
        )
        made = Plan(
            tool=tool,
            ruling=ruling,
            envelope=ruling.envelope,
            policy_digest=ruling.digest,
            lane=selection.lane,
            isolation=selection.level,
            output_trust=output_trust(input_trust, selection.level, ruling.envelope),
            warnings=tuple(f"{each.grant} is not granted: {each.why}" for each in ruling.denied),
            reasons=selection.reasons,
        )
        with self._lock:
            self._plans[key] = made
            while len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
        return made

    def close(self) -> None:
        """Closes the registry."""
        self._registry.close()
