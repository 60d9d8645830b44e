"""What a secret looks like when nobody has registered it, and what else must not reach a log.

Owns the shapes, as two compiled expressions: a trigger that costs a fraction of a microsecond and
finds nothing in most texts, and the patterns, which run only where it did. Every repetition is
bounded or anchored, so that hostile text costs linear time. Used by `toolcell.telemetry.redact`.

The shapes lean towards too much: a word lost from a message costs less than a token in a log.
"""

import re

__all__ = ["CONTROL", "PLACEHOLDER", "SECRET_NAME", "escape_control", "hide_patterns"]

PLACEHOLDER = "<redacted>"

_NAMES = (
    r"api[_-]?key|access[_-]?key|secret|token(?!s)|passw(?:or)?d|passphrase|pwd"
    r"|private[_-]?key|session[_-]?id|credential"
)

SECRET_NAME = re.compile(rf"(?:{_NAMES}|^authorization$|^cookie$|^signature$)", re.IGNORECASE)
"""A field or header of such a name holds a secret, whatever its value looks like."""

# One capturing group per alternative at most: what it captures is kept.
_PATTERNS = re.compile(
    rf"""
      -----BEGIN[ A-Z0-9]{{0,40}}PRIVATE\ KEY.*?(?:-----END[ A-Z0-9]{{0,40}}PRIVATE\ KEY-----|\Z)
    | (\b(?i:proxy-authorization|authorization|set-cookie|cookie|x-api-key)
        ["']?\s{{0,4}}[:=]\s{{0,4}}) [^\r\n]+
    | (\b(?:[Bb]earer|BEARER)\s{{1,4}}) [\w.~+/=-]{{8,}}
    | (\b(?:[Bb]asic|BASIC)\s{{1,4}}) (?=[a-z]{{0,64}}[A-Z0-9+/=])[A-Za-z0-9+/]{{8,}}={{0,2}}
    | (?<=://)[^\s/?\#@]{{1,512}}(?=@)
    | ([?&;](?i:key|sig|auth|code|signature|x-(?:amz|goog)-[a-z-]{{1,32}})=) [^\s&\#"'<>]+
    | ((?i:{_NAMES})[\w-]{{0,32}}["']?\s{{0,4}}[:=]\s{{0,4}})
        (?:"[^"]*"?|'[^']*'?|[^\s,;&)}}\]"'<>]+)
    | \b(?:A(?:KIA|SIA|GPA|IDA|ROA|IPA|NPA|NVA)[A-Z0-9]{{16}}   # AWS
        |gh[pousr]_\w{{20,}}|github_pat_\w{{20,}}|glpat-[\w-]{{16,}}
        |xox[abeoprs]-[\w-]{{10,}}|AIza[\w-]{{30,}}|npm_\w{{30,}}
        |sk-[\w-]{{20,}}|[sr]k_(?:live|test)_\w{{16,}}
        |eyJ[\w-]{{8,}}\.[\w-]{{8,}}(?:\.[\w-]*)?)               # JSON Web Token
    """,
    re.VERBOSE | re.DOTALL,
)

# Whatever _PATTERNS matches holds one of these; a test with random texts holds the two together.
_TRIGGER = re.compile(
    r"[=:]|-----B|[bB](?:earer|asic)|BEARER|BASIC|A[A-Z]{2}A[A-Z0-9]|gh[pousr]_|b_pat_|glpat-|xox"
    r"|AIza|npm_|[sr]k[_-]|eyJ"
)

CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that steer a terminal or a log reader, turn text round, are invisible, or are no
characters at all (lone surrogates, which UTF-8 can't carry)."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def hide_patterns(text: str) -> str:
    """`text` without what looks like a secret."""
    if _TRIGGER.search(text) is None:
        return text
    return _PATTERNS.sub(_kept_part, text)


def escape_control(text: str, *, keep_newlines: bool = False) -> str:
    """`text` with every control character spelled out, so that it can do nothing.

    `keep_newlines` keeps newlines and tabs, for text that is shown as a block of its own.
    """
    if text.isprintable():
        return text
    return CONTROL.sub(lambda match: _spelled(match[0], keep_newlines), text)


def _spelled(character: str, keep_newlines: bool) -> str:
    if keep_newlines and character in "\n\t":
        return character
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _kept_part(match: re.Match[str]) -> str:
    kept = match[match.lastindex] if match.lastindex else ""
    return kept + PLACEHOLDER
