"""TOML of a configuration file, within bounds that `tomllib` does not have.

Owns the one way in which the runtime reads TOML: whatever is wrong with a text is a `ValueError`,
and soon. Knows nothing of what is in a file. Used for policies, trust, scope keys and secrets.
"""

import re
import tomllib
from typing import Any

__all__ = ["MAX_KEY_PARTS", "parse_toml"]

MAX_KEY_PARTS = 32
"""Parts of one dotted key. The deepest key of ours has five:
`classes.NAME.capabilities.http.domains`."""

_STRINGS_AND_COMMENTS = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""(?!")|'{3}.*?'{3}(?!')|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|["'].*''',
    re.DOTALL,
)
"""What can't be a key, in the order in which TOML reads it. The last alternative is a string that
does not end: the parser stops there, so nothing behind it matters."""
_KEY = re.compile(r"[\w\-. \t]+")


def parse_toml(raw: bytes) -> dict[str, Any]:
    """The table in `raw`. :class:`ValueError` where it is not UTF-8, not TOML, nested too deeply,
    or has a number of thousands of digits.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    _refuse_long_keys(text)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_long_keys(text: str) -> None:
    """Refuses `a.a.a.…`: tomllib (3.11) takes a minute for one key of 60,000 parts."""
    bare = _STRINGS_AND_COMMENTS.sub("", text)
    if any(run.group().count(".") > MAX_KEY_PARTS for run in _KEY.finditer(bare)):
        raise ValueError(f"it has a key of more than {MAX_KEY_PARTS} parts")
