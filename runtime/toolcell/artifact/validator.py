"""How schemas are compiled: the one place that sets the options of jsonschema-rs.

Owns the choice of engine and its limits. Used by `schema` and `explain`.
"""

import bisect
from functools import lru_cache
from typing import Any

import jsonschema_rs

__all__ = ["MAX_PATTERN_BYTES", "compile_schema", "pattern_size"]

MAX_PATTERN_BYTES = 128 * 1024
"""Bound of one compiled pattern: `a{1000}{1000}` is refused. `^[a-z0-9_-]{1,255}$` has 35 KB."""
_SIZES = [int(MAX_PATTERN_BYTES / 1.25**step) for step in range(26)][::-1]
_CACHE_BYTES = 1024 * 1024


def compile_schema(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """A validator of `schema`, draft 2020-12 whatever it says.

    Patterns run in the Rust `regex` crate: no backtracking, at worst the pattern's size times the
    text's length. Nothing is ever fetched. Formats are checked. Raises
    `jsonschema_rs.ValidationError`.

    Only `is_valid` may be called on untrusted values: `validate` and `iter_errors` collect the
    errors of every branch of an `anyOf`, and 2 MB of input took 23 GB and 250 s that way.
    """
    return _compiled(schema, MAX_PATTERN_BYTES)


@lru_cache(maxsize=1024)
def pattern_size(pattern: str) -> int:
    """An upper bound of the compiled size of `pattern`, at most a quarter too high.

    Found by trying, since the engine tells only whether a pattern fits. One that fits nowhere
    gives more than :data:`MAX_PATTERN_BYTES`.
    """

    def fits(size: int) -> bool:
        try:
            _compiled({"pattern": pattern}, size)
        except jsonschema_rs.ValidationError:
            return False
        return True

    return [*_SIZES, 2 * MAX_PATTERN_BYTES][bisect.bisect_left(_SIZES, True, key=fits)]


def _compiled(schema: dict[str, Any], pattern_bytes: int) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        schema,
        validate_formats=True,
        ignore_unknown_formats=False,
        pattern_options=jsonschema_rs.RegexOptions(
            size_limit=pattern_bytes, dfa_size_limit=_CACHE_BYTES
        ),
        offline=True,
        mask="the value",
    )
