"""What is in a policy file: classes, masks, or one policy; checked field by field.

Owns the format and its messages. Nothing unknown, mistyped or out of range gets through, and a
file is read to its end, so that `toolcell policy check` can list every problem at once. It opens
no file and resolves no `extends`. Called by `toolcell.policy.classes` and, for a mask that arrives
with a call, by `toolcell.policy.book`.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from toolcell.artifact.manifest import ClassName
from toolcell.errors import ConfigError
from toolcell.policy.compose import Mask
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.policy.fields import FIELDS

__all__ = ["MAX_ENTRIES", "ClassSpec", "Document", "Problem", "parse", "parse_mask", "refuse"]

MAX_ENTRIES = 256
"""Classes, and masks, in one file."""
MAX_PROBLEMS = 100
"""Problems listed of one file; looking for more stops there."""

Description = Annotated[str, Meta(max_length=500)]


class Problem(Struct, frozen=True, kw_only=True):
    """One thing that is wrong: where (file and table), what, and what to do."""

    where: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class ClassSpec(Struct, frozen=True, kw_only=True):
    """A class as written: the class it starts from, and values by dotted path over that."""

    name: ClassName
    origin: str
    values: dict[str, Any] = field(default_factory=dict)
    extends: ClassName = "safe-default"
    description: Description = ""
    manifest_may_choose: bool = False


class Document(Struct, kw_only=True):
    """A file's content, to be believed only where there was no problem in it.

    `policy` is the name of its one policy, where it is a file of that kind.
    """

    classes: list[ClassSpec] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)
    policy: str | None = None

    def names(self) -> list[str]:
        """The names that it defines."""
        return [*(spec.name for spec in self.classes), *(mask.name for mask in self.masks)]


_CLASS_KEYS = ("extends", "description", "manifest_may_choose")
_MASK_KEYS = ("description",)
_AT = re.compile(r"^(?P<message>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)


def parse(raw: Mapping[str, Any], origin: str, stem: str) -> tuple[Document, list[Problem]]:
    """The document in `raw`, and everything that is wrong with it.

    `stem` names the policy of a file that has one at its top level and no `name`.
    """
    document, problems = Document(), list[Problem]()
    head = {key: value for key, value in raw.items() if key not in ("classes", "masks")}
    for name, table in _tables(raw, "classes", origin, problems):
        spec = _class(name, table, origin, f"{origin}: [classes.{name}]", problems)
        document.classes += [spec] if spec else []
    for name, table in _tables(raw, "masks", origin, problems):
        mask = _mask(name, table, origin, f"{origin}: [masks.{name}]", problems)
        document.masks += [mask] if mask else []
    if head and "classes" in raw:
        known = ("classes", "masks")
        problems += [_unknown(origin, key, known, extra=_MIXED) for key in head]
    elif head:
        name = head.pop("name", stem)
        spec = _class(name, head, origin, origin, problems, extra=("name", "classes", "masks"))
        if spec:
            document.classes.append(spec)
            document.policy = spec.name
    return document, problems


_MIXED = "a file has either one policy at its top level, or tables [classes.NAME]"


def _tables(
    raw: Mapping[str, Any], key: str, origin: str, problems: list[Problem]
) -> Iterable[tuple[str, Mapping[str, Any]]]:
    tables = raw.get(key, {})
    if not isinstance(tables, dict):
        remedy = f"write [{key}.NAME] tables"
        problems.append(Problem(where=origin, message=f"`{key}` is not a table", remedy=remedy))
        return
    if len(tables) > MAX_ENTRIES:
        message = f"`{key}` has {len(tables)} entries; the limit is {MAX_ENTRIES}"
        problems.append(Problem(where=origin, message=message, remedy="split the file"))
        return
    for name, table in tables.items():
        if isinstance(table, dict):
            yield name, table
        else:
            where = f"{origin}: [{key}]"
            remedy = f"write a table [{key}.{name}]"
            problems.append(Problem(where=where, message=f"`{name}` is not a table", remedy=remedy))


def _class(
    name: Any,
    table: Mapping[str, Any],
    origin: str,
    where: str,
    problems: list[Problem],
    extra: tuple[str, ...] = (),
) -> ClassSpec | None:
    """The class, without what is wrong in it, so that others that extend it can be checked too."""
    head = {key: table[key] for key in _CLASS_KEYS if key in table}
    body = {key: value for key, value in table.items() if key not in head}
    checked = _head(name, head, where, problems)
    values = _fields(body, where, problems, keys=(*_CLASS_KEYS, *extra))
    return ClassSpec(origin=origin, values=values, **checked) if "name" in checked else None


def _mask(
    name: str, table: Mapping[str, Any], origin: str, where: str, problems: list[Problem]
) -> Mask | None:
    head = {key: table[key] for key in _MASK_KEYS if key in table}
    body = {key: value for key, value in table.items() if key not in head}
    checked = _head(name, head, where, problems)
    values = _fields(body, where, problems, keys=_MASK_KEYS, mask=True)
    return Mask(origin=origin, values=values, **checked) if "name" in checked else None


def _head(
    name: Any, head: Mapping[str, Any], where: str, problems: list[Problem]
) -> dict[str, Any]:
    """Those of the name and the keys that are no fields of the envelope that are right."""
    given = {"name": name, **head}
    checked = {
        key: _value(ClassSpec, key, value, where, problems, name="x", origin="")
        for key, value in given.items()
    }
    return {key: value for key, value in checked.items() if value is not None}


def parse_mask(raw: Mapping[str, Any], name: str) -> Mask:
    """A mask that arrived with a call, as a partial envelope. :class:`ConfigError` if it is not."""
    problems: list[Problem] = []
    values = _fields(raw, name, problems, mask=True)
    refuse(problems)
    return Mask(name=name, values=values, origin="call")


def _fields(
    table: Mapping[str, Any],
    where: str,
    problems: list[Problem],
    *,
    keys: tuple[str, ...] = (),
    mask: bool = False,
) -> dict[str, Any]:
    """The fields of a (partial) envelope in `table`, checked, by dotted path."""
    values: dict[str, Any] = {}
    pending: list[tuple[str, type[Struct], Mapping[str, Any]]] = [("", PolicyEnvelope, table)]
    while pending:
        prefix, kind, fields = pending.pop()
        known = {info.name: info.type for info in msgspec.structs.fields(kind)}
        if mask:
            known.pop("approvals", None)
        for key, value in fields.items():
            if len(problems) >= MAX_PROBLEMS:
                return values
            path = prefix + str(key)
            if key not in known:
                names = (*known, *(keys if not prefix else ()))
                problems.append(_unknown(where, path, names, prefix))
            elif not (isinstance(known[key], type) and issubclass(known[key], Struct)):
                checked = _value(kind, key, _dated(key, value), where, problems, prefix=prefix)
                if checked is not None:
                    values[path] = checked
            elif isinstance(value, Mapping):
                pending.append((f"{path}.", known[key], value))
            else:
                message = f"`{path}` is {_shown(value)}; it is a table"
                remedy = f"write [{path}] and its fields below"
                problems.append(Problem(where=where, message=message, remedy=remedy))
    return values


def _dated(key: str, value: Any) -> Any:
    """TOML has dates of its own; an approval's `when` may be one."""
    if key != "approvals" or not isinstance(value, list):
        return value
    return [
        {name: own.isoformat() if isinstance(own, date) else own for name, own in item.items()}
        if isinstance(item, dict)
        else item
        for item in value
    ]


def _value(
    kind: type[Struct],
    key: str,
    value: Any,
    where: str,
    problems: list[Problem],
    /,
    *,
    prefix: str = "",
    **others: Any,
) -> Any:
    """`value` as the field `key` of `kind`, normalised; None and a problem where it can't be."""
    try:
        return getattr(msgspec.convert({**others, key: value}, kind), key)
    except msgspec.ValidationError as error:
        found = _AT.match(str(error))
        message, path = (found["message"], found["path"] or "") if found else (str(error), "")
        inner = path.removeprefix("$").removeprefix(".")
        shown = f"`{prefix}{inner or key}` = {_shown(value)}: {message}"
        about = FIELDS.get(prefix + key)
        remedy = f"{prefix}{key}: {about.about}" if about else "see docs/policy.md"
        if about and about.unit:
            remedy += f" Unit: {about.unit}; default {about.of(PolicyEnvelope())}."
        problems.append(Problem(where=where, message=shown, remedy=remedy))
        return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _unknown(
    where: str, path: str, known: Iterable[str], prefix: str = "", extra: str = ""
) -> Problem:
    names = sorted(known)
    near = difflib.get_close_matches(path.removeprefix(prefix)[:80], names, n=1)
    hint = f"did you mean `{prefix}{near[0]}`?" if near else f"known: {', '.join(names)}"
    message = f"unknown field `{path[:80]}`; {hint}"
    return Problem(where=where, message=message, remedy=extra or "correct the name or remove it")


def refuse(problems: list[Problem]) -> None:
    """:class:`ConfigError` for the first of `problems`; the details list up to 50 of them."""
    if not problems:
        return
    more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
    raise ConfigError(
        f"{problems[0]}{more}",
        remedy=problems[0].remedy,
        details={"problems": [str(each) for each in problems[:50]]},
    )
