"""Artifacts to try things on, signed by keys that are made once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcell.artifact.build import build_artifact, sign_artifact
from toolcell.errors import ArtifactRejected
from toolcell.home import Home
from toolcell.registry import Registry
from toolcell.trust.edit import add_key
from toolcell.trust.keys import SigningKey
from toolcell.trust.store import TrustedKey, TrustStore

KEY = SigningKey.generate()
OTHER_KEY = SigningKey.generate()
TRUST = TrustStore([TrustedKey(publisher="acme", public=KEY.public)])
"""Trusts `KEY` as acme's, and nobody else."""

TOOL_ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
OTHER_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
FILES = {"tool.wasm": b"\0asm\x0d\0\x01\0 no component, but a file"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": 10}, "n": {"type": "integer"}},
    "required": ["text"],
    "additionalProperties": False,
}


def manifest_fields(**changes: Any) -> dict[str, Any]:
    """Fields of a manifest that is fine, with `changes`."""
    fields = {
        "id": TOOL_ID,
        "name": "echo",
        "version": "1.0.0",
        "entry_point": "tool.wasm",
        "methods": {"say": {"input": SCHEMA, "output": {"type": "string"}}},
    }
    return {**fields, **changes}


def unsigned(files: dict[str, bytes] | None = None, **changes: Any) -> bytes:
    """An artifact without a signature."""
    return build_artifact(manifest_fields(**changes), files or FILES)


def signed(files: dict[str, bytes] | None = None, key: SigningKey = KEY, **changes: Any) -> bytes:
    """An artifact that `TRUST` accepts, unless signed with another key."""
    return sign_artifact(unsigned(files, **changes), key)


@contextlib.contextmanager
def refused(reason: str) -> Iterator[pytest.ExceptionInfo[ArtifactRejected]]:
    """The block is refused, by the defence that is called `reason`."""
    with pytest.raises(ArtifactRejected) as caught:
        yield caught
    assert caught.value.details["reason"] == reason, caught.value.message
    assert caught.value.message
    assert caught.value.remedy


def trusting_home(root: Path) -> Home:
    """A home folder that trusts `KEY` as acme's."""
    home = Home(root)
    add_key(home.trust, "acme", KEY.public)
    return home


@contextlib.contextmanager
def registry_of(home: Home) -> Iterator[Registry]:
    """The registry of `home`, closed at the end."""
    registry = Registry.open(home)
    try:
        yield registry
    finally:
        registry.close()
