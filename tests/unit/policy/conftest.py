"""What the policy tests share: a manifest to ask with, and a home whose files can be written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcell.artifact.manifest import Manifest, Method
from toolcell.home import Home


@pytest.fixture(scope="session")
def make_manifest() -> Callable[..., Manifest]:
    """A manifest that asks for nothing, but for what the test says."""

    def make(**changes: Any) -> Manifest:
        fields = {
            "id": "00000000-0000-4000-8000-000000000000",
            "name": "sample",
            "version": "1.0.0",
            "entry_point": "tool.wasm",
            "methods": {"run": Method(input={}, output={})},
            "files": {"tool.wasm": "0" * 64},
        }
        return Manifest(**{**fields, **changes})

    return make


@pytest.fixture
def home(private_home: Path) -> Home:
    """The test's home folder, with an empty `policies/`."""
    place = Home(private_home)
    place.policies.mkdir(mode=0o700)
    return place


@pytest.fixture
def write_policy(home: Home) -> Callable[[str, str], Path]:
    """Writes a policy file of the home as an operator would: whole, and his own to write."""

    def write(name: str, text: str) -> Path:
        path = home.policies / name
        aside = path.with_suffix(".new")
        aside.write_text(text)
        aside.chmod(0o600)
        return aside.replace(path)

    return write
