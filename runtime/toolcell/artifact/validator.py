"""How schemas are compiled: the one place that sets the options of jsonschema-rs.

Owns the choice of engine and its limits. Used by `schema` and `explain`.
"""

from typing import Any

import jsonschema_rs

__all__ = ["compile_schema"]

_PATTERN_BYTES = 1024 * 1024
"""Bound of one compiled pattern and of its cache: `a{1000}{1000}` is refused."""


def compile_schema(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """A validator of `schema`, draft 2020-12 whatever it says.

    Patterns run in the Rust `regex` crate, in time linear in the text. Nothing is ever fetched.
    Formats are checked. Raises `jsonschema_rs.ValidationError`.

    Only `is_valid` may be called on untrusted values: `validate` and `iter_errors` collect the
    errors of every branch of an `anyOf`, and 2 MB of input took 23 GB and 250 s that way.
    """
    return jsonschema_rs.Draft202012Validator(
        schema,
        validate_formats=True,
        ignore_unknown_formats=False,
        pattern_options=jsonschema_rs.RegexOptions(
            size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES
        ),
        offline=True,
        mask="the value",
    )
