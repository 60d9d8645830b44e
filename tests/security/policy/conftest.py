"""A home whose policy files an attacker may have touched, and a tool that would gain by it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from toolcell.artifact.manifest import Manifest, Method
from toolcell.home import Home


@pytest.fixture
def home(private_home: Path) -> Home:
    place = Home(private_home)
    place.policies.mkdir(mode=0o700)
    return place


@pytest.fixture
def write_policy(home: Home) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = home.policies / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


@pytest.fixture
def manifest() -> Manifest:
    """A tool that asks for everything that goes through the broker."""
    return Manifest(
        id="00000000-0000-4000-8000-000000000000",
        name="greedy",
        version="1.0.0",
        entry_point="tool.wasm",
        methods={"run": Method(input={}, output={})},
        files={"tool.wasm": "0" * 64},
        capabilities=("fs.readText", "http.fetch", "kv.get", "log.emit"),
        policy_class="safe-default",
    )
