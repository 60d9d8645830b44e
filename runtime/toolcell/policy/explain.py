"""Explain: field by field, what a tool asked for, what it was granted, what it gets, and why.

Owns the table behind `toolcell policy explain`. It composes by the very steps that a call goes
through (`toolcell.policy.compose.stages`), so it can't tell a different story.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from toolcell.artifact.manifest import Manifest
from toolcell.policy.compose import Grant, Mask, Stage, requested, stages
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.policy.fields import FIELDS, Field

__all__ = ["Row", "explain", "matters"]


class Row(Struct, frozen=True, kw_only=True):
    """One field. `requested` is None where the manifest says nothing about it.

    `why` names the step that had the last word: the policy, a mask, the manifest, the switches.
    """

    field: str
    requested: Any
    granted: Any
    effective: Any
    why: str


def explain(manifest: Manifest, grant: Grant, masks: Sequence[Grant | Mask] = ()) -> list[Row]:
    """Every field of the envelope, in the order of the reference."""
    steps = stages(manifest, grant, masks)
    asked = requested(manifest).values
    return [
        Row(
            field=path,
            requested=asked.get(path),
            granted=field.of(steps[0].envelope),
            effective=field.of(steps[-1].envelope),
            why=_last_word(field, steps),
        )
        for path, field in FIELDS.items()
    ]


def _last_word(field: Field, steps: Sequence[Stage]) -> str:
    word = steps[0].label
    for before, after in pairwise(steps):
        if field.of(before.envelope) != field.of(after.envelope):
            word = after.label
    return word


def matters(path: str, envelope: PolicyEnvelope) -> bool:
    """Whether a field can make a difference: a sub-policy does only where it is granted."""
    if not path.startswith("capabilities."):
        return True
    interface = path.split(".")[1]
    return any(name.startswith(f"{interface}.") for name in envelope.allowed_host_apis)
