"""Classes: the shipped ones, and how a class that extends another becomes a grant.

Owns `extends` and the names: a name means one thing, so no file may take a shipped name, and no
two files of the home the same one. Reads its own package data and no other file. Called by
`toolcell.policy.book` and `toolcell policy check`.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from msgspec import Struct

from toolcell.errors import InternalError
from toolcell.policy.compose import SHIPPED_ORIGIN, Grant, Mask
from toolcell.policy.document import MAX_PROBLEMS, ClassSpec, Document, Problem, parse
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.policy.fields import assemble, flatten

__all__ = ["Catalog", "extend", "nearest", "shipped"]

BASE = "safe-default"
"""What a class starts from where it does not say: the defaults of the envelope itself."""
MAX_DEPTH = 16
"""Classes in one chain of `extends`."""


class Catalog(Struct, frozen=True, kw_only=True):
    """Grants and masks by name. Classes and masks share one set of names."""

    grants: Mapping[str, Grant]
    masks: Mapping[str, Mask]

    def entries(self) -> "dict[str, Grant | Mask]":
        """Both by name, classes first."""
        return {**self.grants, **self.masks}


@cache
def shipped() -> Catalog:
    """The classes and masks of the package."""
    raw = tomllib.loads(files("toolcell.policy").joinpath("classes.toml").read_text("utf-8"))
    document, problems = parse(raw, SHIPPED_ORIGIN, "")
    catalog, more = extend(Catalog(grants={}, masks={}), document)
    if problems or more:
        raise InternalError(f"the shipped policy classes are wrong: {[*problems, *more][0]}")
    return catalog


def extend(base: Catalog, document: Document) -> tuple[Catalog, list[Problem]]:
    """`base` and what `document` adds to it, and what is wrong with that.

    An approval is not inherited: it is an operator's word for the class that it is written in.
    """
    problems: list[Problem] = []
    specs: dict[str, ClassSpec] = {}
    masks: dict[str, Mask] = {}
    origins = {name: entry.origin for name, entry in base.entries().items()}
    entries: list[ClassSpec | Mask] = [*document.classes, *document.masks]
    for entry in entries:
        if entry.name in origins:
            problems.append(_duplicate(entry, origins[entry.name]))
            continue
        origins[entry.name] = entry.origin
        if isinstance(entry, Mask):
            masks[entry.name] = entry
        else:
            specs[entry.name] = entry
    grants = dict(base.grants)
    for name in specs:
        if len(problems) < MAX_PROBLEMS:
            _resolve(name, specs, grants, problems)
    return Catalog(grants=grants, masks={**base.masks, **masks}), list(dict.fromkeys(problems))


def _duplicate(entry: ClassSpec | Mask, origin: str) -> Problem:
    return Problem(
        where=entry.origin,
        message=f"the name `{entry.name}` is taken already (by: {origin})",
        remedy="choose another name, and start from the other class by `extends`",
    )


def _resolve(
    name: str,
    specs: Mapping[str, ClassSpec],
    grants: dict[str, Grant],
    problems: list[Problem],
) -> None:
    """Adds the grant of `name`, and of every class on its chain, to `grants`."""
    chain: list[ClassSpec] = []
    while name not in grants and (name != BASE or name in specs):
        if name not in specs:
            message = f"class `{chain[-1].name}` extends `{name}`, which does not exist"
            problems.append(_wrong(chain[-1], message, nearest(name, [*specs, *grants])))
            return
        if specs[name] in chain:
            problems.append(_circle(chain[chain.index(specs[name]) :]))
            return
        chain.append(specs[name])
        if len(chain) > MAX_DEPTH:
            message = f"class `{chain[0].name}` extends through more than {MAX_DEPTH} classes"
            problems.append(_wrong(chain[0], message, "make the chain shorter"))
            return
        if name == BASE:
            break
        name = chain[-1].extends
    for spec in reversed(chain):
        parent = grants[spec.extends].envelope if spec.extends in grants else PolicyEnvelope()
        values = {**flatten(parent), "approvals": (), **spec.values}
        grants[spec.name] = Grant(
            name=spec.name,
            envelope=assemble(values),
            origin=spec.origin,
            description=spec.description,
            manifest_may_choose=spec.manifest_may_choose,
        )


def _circle(loop: list[ClassSpec]) -> Problem:
    """The same problem from whichever of its classes the circle was entered."""
    start = loop.index(min(loop, key=lambda spec: spec.name))
    turned = [*loop[start:], *loop[:start]]
    names = " → ".join([*(spec.name for spec in turned), turned[0].name])
    return _wrong(turned[0], f"a circle of `extends`: {names}", "let one start from another class")


def _wrong(spec: ClassSpec, message: str, remedy: str) -> Problem:
    return Problem(where=spec.origin, message=message, remedy=remedy)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that does not exist: the nearest one, and all of them."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    listed = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
    return f"{hint}known: {listed}"
