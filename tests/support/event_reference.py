"""The list of events in docs/telemetry.md, from the types themselves.

`python tests/support/event_reference.py` writes it; a test compares it.
"""

import inspect
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec

from toolcell.events import Event

DOCUMENT = Path(__file__).parents[2] / "docs" / "telemetry.md"
BEGIN = "<!-- events: written by tests/support/event_reference.py -->\n"
END = "<!-- end of events -->\n"


def all_events(kind: type[Event] = Event) -> Iterator[type[Event]]:
    """Every type of event that toolcell defines, in the order of their definition."""
    for sub in kind.__subclasses__():
        if sub.__module__ == Event.__module__:
            yield sub
            yield from all_events(sub)


def reference() -> str:
    """The list, in Markdown."""
    return "\n".join(_section(kind) for kind in all_events())


def with_reference(document: str) -> str:
    """`document` with the list as it has to be."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


def _section(kind: type[Event]) -> str:
    must = "Must persist. " if kind.must_persist else ""
    rows = "".join(
        f"| `{field.name}` | {_type(kind, field.name)} |\n"
        for field in msgspec.structs.fields(kind)
        if field.name not in Event.__struct_fields__
    )
    doc = " ".join((inspect.getdoc(kind) or "").split())
    tag = kind.__struct_config__.tag
    return f"### `{tag}`\n\n{must}{doc}\n\n| field | |\n|---|---|\n{rows}"


def _type(kind: type[Event], name: str) -> str:
    hint = typing.get_type_hints(kind, include_extras=True)[name]
    if typing.get_origin(hint) is typing.Annotated:
        return "free text"
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(hint))
    if typing.get_origin(hint) is dict:
        return "object"
    return {str: "name or code", int: "integer", float: "number"}[hint]


if __name__ == "__main__":
    DOCUMENT.write_text(with_reference(DOCUMENT.read_text()))
