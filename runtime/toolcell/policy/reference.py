"""The reference of fields and classes in `docs/policy.md`, made from the code.

Owns the generated parts of that page, between `<!-- generated: NAME -->` and `<!-- end -->`. A test
fails where the page is behind the code; `python -m toolcell.policy.reference docs/policy.md`
brings it up to date. Never runs in a call.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolcell.policy.classes import shipped
from toolcell.policy.envelope import CAPABILITIES, PolicyEnvelope
from toolcell.policy.fields import FIELDS, Field, flatten

__all__ = ["update"]

_PART = re.compile(r"<!-- generated: ([a-z-]+) -->\n.*?<!-- end -->", re.DOTALL)


def update(page: str) -> str:
    """`page` with every generated part as the code has it now."""
    return _PART.sub(lambda part: _part(part[1]), page)


def _part(name: str) -> str:
    lines = {
        "envelope": lambda: _fields([field for field in FIELDS.values() if "." not in field.path]),
        "sub-policies": _sub_policies,
        "capabilities": lambda: [", ".join(f"`{name}`" for name in sorted(CAPABILITIES)) + "."],
        "classes": _classes,
        "masks": _masks,
    }[name]()
    return "\n".join([f"<!-- generated: {name} -->", *lines, "<!-- end -->"])


def _fields(fields: Sequence[Field]) -> list[str]:
    default = PolicyEnvelope()
    rows = [
        (
            f"`{field.path.rpartition('.')[2]}`",
            _shown(field.of(default)),
            field.unit,
            field.about,
            field.rule.text,
        )
        for field in fields
    ]
    return _table(("field", "default", "unit", "meaning", "composes to"), rows)


def _sub_policies() -> list[str]:
    lines: list[str] = []
    for interface in ("kv", "http", "fs", "images", "log"):
        prefix = f"capabilities.{interface}."
        fields = [field for path, field in FIELDS.items() if path.startswith(prefix)]
        lines += [f"### `[capabilities.{interface}]`", "", *_fields(fields), ""]
    return lines[:-1]


def _classes() -> list[str]:
    default = flatten(PolicyEnvelope())
    rows = []
    for grant in shipped().grants.values():
        own = flatten(grant.envelope)
        changed = [f"`{p}` = {_shown(v)}" for p, v in own.items() if v != default[p]]
        rows.append((f"`{grant.name}`", grant.description, "; ".join(changed) or "(the defaults)"))
    return _table(("class", "for", "differs from the defaults in"), rows)


def _masks() -> list[str]:
    rows = [
        (
            f"`{mask.name}`",
            mask.description,
            "; ".join(f"`{path}` = {_shown(value)}" for path, value in mask.values.items()),
        )
        for mask in shipped().masks.values()
    ]
    return _table(("mask", "for", "says"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    line = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*line, *(f"| {' | '.join(row)} |" for row in rows)]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_shown(each) for each in value)}]"
    if isinstance(value, Struct):
        return type(value).__name__
    return f'"{value}"' if isinstance(value, str) else f"{value}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(update(target.read_text("utf-8")), "utf-8")
