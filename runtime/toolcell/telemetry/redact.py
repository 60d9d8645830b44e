"""Redaction: no secret, no path of the host and no control character in what anybody reads.

Owns the rule for all text that leaves a run: events (applied once by `Telemetry`, before every
sink), errors and tool output that an operator or a tool sees. Never raises and never lengthens a
text past its limit, whatever the text is.

It is a net under the code that keeps secrets out of messages in the first place, not a boundary:
a tool that was given a secret can spell it in a way that nobody recognises. That is why the broker
never gives one to a tool.
"""

import base64
import json
import os
import re
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from toolcell.errors import ToolcellError
from toolcell.events import Event
from toolcell.home import Home
from toolcell.telemetry.hostpaths import host_paths, path_pattern
from toolcell.telemetry.patterns import PLACEHOLDER, SECRET_NAME, escape_control, hide_patterns

__all__ = ["MAX_GUEST_DETAIL_CHARS", "MAX_NAME_CHARS", "MAX_TEXT_CHARS", "Redactor"]

MAX_TEXT_CHARS = 2_000
"""Bound of a free text in an event."""

MAX_GUEST_DETAIL_CHARS = 16_000
"""Bound of the tool's own text in an error (a traceback)."""

MAX_NAME_CHARS = 256
"""Bound of every other text in an event: names, ids, digests, codes."""

_MAX_NAMES_CHARS = 1_024
_MAX_DEPTH = 6
_MAX_VALUES = 256
_MAX_VALUE_CHARS = 8_000
_INT64 = 1 << 63

# A text is cut before it is searched, far enough out that the end of the cut can be given up: a
# secret that the cut went through is not recognised any more.
_SEARCH_FACTOR = 4
_SEARCH_MARGIN = 256


class Redactor:
    """Takes secrets, host paths and control characters out of text.

    `secrets`: values that must never show, also in their percent, JSON and base64 spellings. One
    shorter than four characters is only taken out where it stands as a word by itself.
    `paths`: prefix on this host -> what to show instead; the longest prefix wins. Thread-safe.
    """

    def __init__(
        self, secrets: Iterable[str] = (), paths: Mapping[str | os.PathLike[str], str] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._spellings: tuple[str, ...] = ()
        self._secrets: re.Pattern[str] | None = None
        self._margin = _SEARCH_MARGIN
        for secret in secrets:
            self.add_secret(secret)
        shown = {os.fspath(path).rstrip("/"): name for path, name in (paths or {}).items()}
        shown.pop("", None)
        self._shown = shown
        self._paths = path_pattern(shown)

    @classmethod
    def for_host(
        cls,
        home: Home | None = None,
        *,
        secrets: Iterable[str] = (),
        paths: Mapping[str | os.PathLike[str], str] | None = None,
    ) -> "Redactor":
        """One that knows this process's folders: home, temporary files, Python, toolcell itself."""
        return cls(secrets, {**host_paths(home), **(paths or {})})

    def __repr__(self) -> str:
        return f"<Redactor: {len(self._spellings)} spellings of secrets, {len(self._shown)} paths>"

    def add_secret(self, secret: str) -> None:
        """Registers one more value that must never show. Empty: nothing."""
        if not secret or secret in self._known:
            return
        with self._lock:
            self._known.add(secret)
            spellings = {*self._spellings, *_spellings(secret)}
            # Longest first: a secret that begins like another one goes as a whole.
            ordered = tuple(sorted(spellings, key=lambda text: (-len(text), text)))
            self._secrets = re.compile("|".join(map(_literal, ordered)))
            self._margin = max(self._margin, len(ordered[0]))
            self._spellings = ordered

    def redact(self, text: str, *, limit: int = MAX_TEXT_CHARS, keep_newlines: bool = False) -> str:
        """`text`, safe to show, at most `limit` characters. The same object where nothing is wrong.

        `keep_newlines` is for text that is shown as a block of its own; in an event a newline is
        spelled `\\n`.
        """
        original = len(text)
        cut = original > _SEARCH_FACTOR * limit + self._margin
        if cut:
            text = text[: _SEARCH_FACTOR * limit + self._margin]
        for spelling in self._spellings:
            if spelling in text:
                text = self._hide_secrets(text)
                break
        if self._paths is not None and "/" in text:
            text = self._paths.sub(self._shown_path, text)
        text = hide_patterns(text)
        if cut:
            text = text[: -self._margin]
        text = escape_control(text, keep_newlines=keep_newlines)
        if cut or len(text) > limit:
            return _shortened(text, limit, original)
        return text

    def redact_value(self, value: Any) -> Any:
        """`value`, JSON-ready, with every text in it redacted.

        Bounded: six levels, 256 values and 8,000 characters altogether. The value of a key that
        names a secret goes whatever it looks like. What is not JSON is shown as text.
        """
        return _Walk(self).value(value, 0)

    def redact_event(self, event: Event) -> Event:
        """`event`, or a changed copy of it: free text redacted, names bounded and printable."""
        plan = _plan(type(event))
        names = "".join(plan.names_of(event))
        changes: dict[str, Any] = {}
        if len(names) > _MAX_NAMES_CHARS or not names.isprintable():
            for field in plan.names:
                changes[field] = self.redact(getattr(event, field), limit=MAX_NAME_CHARS)
        for field in plan.texts:
            text = getattr(event, field)
            if text:
                clean = self.redact(text)
                if clean is not text:
                    changes[field] = clean
        for field in plan.values:
            value = getattr(event, field)
            if value:
                changes[field] = self.redact_value(value)
        return replace(event, **changes) if changes else event

    def redact_error(self, error: ToolcellError) -> None:
        """Redacts what `error` says, in place: message, remedy, details and the tool's own text."""
        error.message = self.redact(error.message)
        error.args = (error.message, *error.args[1:])
        error.remedy = self.redact(error.remedy)
        error.details = self.redact_value(error.details)
        guest_detail = getattr(error, "guest_detail", "")
        if guest_detail:
            error.guest_detail = self.redact(  # type: ignore[attr-defined]
                guest_detail, limit=MAX_GUEST_DETAIL_CHARS, keep_newlines=True
            )

    def _hide_secrets(self, text: str) -> str:
        pattern = self._secrets
        return text if pattern is None else pattern.sub(PLACEHOLDER, text)

    def _shown_path(self, match: re.Match[str]) -> str:
        return self._shown[match[0]]


class _Walk:
    """One walk through a JSON value, with what is left of its bounds."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._values = _MAX_VALUES
        self._chars = _MAX_VALUE_CHARS

    def value(self, value: Any, depth: int) -> Any:
        self._values -= 1
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return value if -_INT64 <= value < 2 * _INT64 else self._text(hex(value))
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value)} bytes>"
        if depth >= _MAX_DEPTH:
            return "<nested too deep>"
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, list | tuple | set | frozenset):
            return self._sequence(value, depth)
        return self._text(str(value))

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, item in value.items():
            if self._values <= 0 or self._chars <= 0:
                out["…"] = f"{len(value) - len(out)} more"
                break
            name = self._text(str(key), MAX_NAME_CHARS)
            secret = isinstance(item, str | bytes) and SECRET_NAME.search(str(key))
            out[name] = PLACEHOLDER if secret else self.value(item, depth + 1)
        return out

    def _sequence(self, value: Iterable[Any], depth: int) -> list[Any]:
        out: list[Any] = []
        for item in value:
            if self._values <= 0 or self._chars <= 0:
                out.append("…")
                break
            out.append(self.value(item, depth + 1))
        return out

    def _text(self, text: str, limit: int = MAX_TEXT_CHARS) -> str:
        clean = self._redactor.redact(text, limit=max(1, min(limit, self._chars)))
        self._chars -= len(clean)
        return clean


class _Plan(NamedTuple):
    """What of one event type is redacted, and how."""

    names: tuple[str, ...]
    names_of: "attrgetter[tuple[str, ...]]"
    texts: tuple[str, ...]
    values: tuple[str, ...]


@cache
def _plan(kind: type[Event]) -> _Plan:
    """Read off the type's own fields once, so that a new event can't be forgotten here."""
    names: list[str] = []
    texts: list[str] = []
    values: list[str] = []
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        if hint is str:
            names.append(field.name)
        elif get_origin(hint) is Annotated and get_args(hint)[0] is str:
            texts.append(field.name)
        elif get_origin(hint) in (dict, list):
            values.append(field.name)
    return _Plan(tuple(names), attrgetter(*names), tuple(texts), tuple(values))


def _shortened(text: str, limit: int, original: int) -> str:
    marker = f"…[{original} chars]"
    if limit <= len(marker):
        return text[:limit]
    return text[: limit - len(marker)] + marker


def _literal(spelling: str) -> str:
    literal = re.escape(spelling)
    return literal if len(spelling) >= 4 else rf"(?<!\w){literal}(?!\w)"


def _spellings(secret: str) -> set[str]:
    """The ways in which a secret turns up: as it is, quoted, percent-encoded, inside base64."""
    raw = secret.encode("utf-8", "surrogatepass")
    spellings = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(raw, safe="")}
    if len(raw) >= 8:
        spellings.add(raw.hex())
        for before in range(3):
            # What base64 makes of the secret depends on its offset modulo 3; the characters at
            # both ends mix in their neighbours' bits and are left out.
            encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
            first = (before * 8 + 5) // 6
            last = (before + len(raw)) * 8 // 6
            core = encoded[first:last]
            spellings |= {core, core.replace("+", "-").replace("/", "_")}
    return spellings
