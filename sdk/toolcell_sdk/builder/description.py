"""Reads what a component said of its methods while its snapshot was taken.

The file was written by the author's side of the build, so it is read as untrusted input: bounded
in size, and checked field by field. Called by `build`.
"""

import json
from pathlib import Path
from typing import Any

from toolcell_sdk.errors import BuildError

__all__ = ["read_description"]

MAX_DESCRIPTION_BYTES = 1024 * 1024
MAX_METHODS = 256
_FIELDS = {"description": str, "input": dict, "output": dict}


def read_description(path: Path) -> dict[str, dict[str, Any]]:
    """The methods by name. Raises :class:`BuildError` for none, too many, or anything odd."""
    try:
        size = path.stat().st_size
        if size > MAX_DESCRIPTION_BYTES:
            raise BuildError(f"the schemas take {size} bytes; the limit is {MAX_DESCRIPTION_BYTES}")
        methods = json.loads(path.read_bytes())["methods"]
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
