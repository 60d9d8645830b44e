"""Reads what a component said of its methods while its snapshot was taken.

The file was written by the author's side of the build, so it is read as untrusted input: no link
(it would lead anywhere on this machine), bounded in size, and checked field by field. Called by
`build`.
"""

import json
from pathlib import Path
from typing import Any

from toolcell_sdk.errors import BuildError
from toolcell_sdk.plain_file import read_plain_file

__all__ = ["read_description"]

MAX_DESCRIPTION_BYTES = 1024 * 1024
MAX_METHODS = 256
_FIELDS = {"description": str, "input": dict, "output": dict}


def read_description(path: Path) -> dict[str, dict[str, Any]]:
    """The methods by name. Raises :class:`BuildError` for none, too many, or anything odd."""
    try:
        raw = read_plain_file(path, MAX_DESCRIPTION_BYTES)
        if len(raw) > MAX_DESCRIPTION_BYTES:
            limit = MAX_DESCRIPTION_BYTES
            raise BuildError(f"the schemas are too large; the limit is {limit} bytes")
        methods = json.loads(raw)["methods"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BuildError(f"the component did not describe its methods: {error}") from None
    if not isinstance(methods, dict) or not methods:
        raise BuildError("the tool has no method: put @method on a function of its module")
    if len(methods) > MAX_METHODS:
        raise BuildError(f"the tool has {len(methods)} methods; the limit is {MAX_METHODS}")
    for name, method in methods.items():
        if not isinstance(method, dict) or method.keys() != _FIELDS.keys():
            raise BuildError(f"the description of `{name}` is malformed")
        for key, kind in _FIELDS.items():
            if not isinstance(method[key], kind):
                raise BuildError(f"the description of `{name}` has a malformed `{key}`")
    return methods
