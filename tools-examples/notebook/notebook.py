"""notebook: notes in a key-value store."""

import json
import secrets
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Literal

from toolcell_sdk import Field, ToolError, files, kv, method

PREFIX = "note/"
EXPORT = "/scratch/notebook"

Title = Annotated[str, Field(min_length=1, max_length=200)]
Tag = Annotated[str, Field(pattern="^[a-z0-9-]{1,30}$")]
NoteId = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]


@dataclass
class Note:
    """`created` is ISO 8601 in UTC."""

    id: str
    title: str
    text: str
    created: str
    tags: list[str] = field(default_factory=list)


@dataclass
class Found:
    """A note and how often the words of the query occur in it."""

    note: Note
    score: int


@dataclass
class Exported:
    """The export, and its path in this call's `/scratch`."""

    path: str
    notes: int
    content: str


@method
def add(
    title: Title,
    text: Annotated[str, Field(max_length=50_000)] = "",
    tags: Annotated[list[Tag], Field(max_length=20)] = [],  # noqa: B006 - never changed
) -> Note:
    """Adds a note."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    note = Note(secrets.token_hex(6), title, text, created, sorted(set(tags)))
    kv.set(PREFIX + note.id, json.dumps(asdict(note), ensure_ascii=False))
    return note


@method
def list_notes(tag: Tag | None = None) -> list[Note]:
    """All notes, or those with a tag; oldest first."""
    return [note for note in _notes() if tag is None or tag in note.tags]


@method
def search(
    query: Annotated[str, Field(min_length=1, max_length=200)],
    limit: Annotated[int, Field(ge=1, le=100)] = 10,
) -> list[Found]:
    """Notes that hold every word of the query in title, text or tags, best first."""
    words = query.casefold().split()
    found = []
    for note in _notes():
        # A word in the title counts three times.
        hay = " ".join([note.title, note.title, note.title, note.text, *note.tags]).casefold()
        counts = [hay.count(word) for word in words]
        if counts and all(counts):
            found.append(Found(note, sum(counts)))
    return sorted(found, key=lambda one: -one.score)[:limit]


@method
def remove(id: NoteId) -> None:  # noqa: A002 - what callers write
    """Removes a note."""
    if not kv.delete(PREFIX + id):
        raise ToolError(f"no note {id}", status=404)


@method
def export(format: Literal["markdown", "json"] = "markdown") -> Exported:  # noqa: A002
    """Writes all notes to one file and returns it."""
    notes = _notes()
    if format == "json":
        path = f"{EXPORT}.json"
        content = json.dumps([asdict(note) for note in notes], ensure_ascii=False, indent=2)
    else:
        path = f"{EXPORT}.md"
        content = "\n".join(_markdown(note) for note in notes)
    files.write_text(path, content)
    return Exported(path, len(notes), files.read_text(path))


def _notes() -> list[Note]:
    notes = []
    for key in kv.list(PREFIX):
        value = kv.get(key)
        # Another call may have removed it since the list was made.
        if value is not None:
            notes.append(Note(**json.loads(value)))
    return sorted(notes, key=lambda note: (note.created, note.id))


def _markdown(note: Note) -> str:
    tags = f" ({', '.join(note.tags)})" if note.tags else ""
    return f"## {note.title}{tags}\n\n{note.created}\n\n{note.text}\n"
