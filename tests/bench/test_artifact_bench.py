"""What the registry and the artifact checks cost: once per artifact, and on every call."""

import json

import pytest
from artifact_maker import SCHEMA, TRUST, manifest_fields, registry_of, signed, trusting_home

from toolcell.artifact.open import open_artifact
from toolcell.artifact.schema import MethodSchemas

PYTHON_COMPONENT_BYTES = 18_352_181
"""A tool that componentize-py 0.25 built."""


@pytest.fixture
def registry(private_home):
    with registry_of(trusting_home(private_home)) as opened:
        opened.publish(signed())
        yield opened


def test_resolve_again(benchmark, registry):
    """On every call."""
    registry.resolve("echo")
    assert benchmark(registry.resolve, "echo").artifact.manifest.name == "echo"


@pytest.mark.parametrize("spaces", [False, True], ids=["compact", "spaced"])
def test_check_an_input(benchmark, spaces):
    """On every call. A compact text, as the runtime makes it, is decoded once."""
    import msgspec

    from toolcell.artifact.manifest import Manifest

    manifest = msgspec.convert(manifest_fields(files={"tool.wasm": "0" * 64}), Manifest)
    checker = MethodSchemas(manifest)
    separators = None if spaces else (",", ":")
    raw = json.dumps({"text": "hello", "n": 7}, separators=separators).encode()
    assert benchmark(checker.check_input, "say", raw)["n"] == 7
    assert manifest.methods["say"].input == SCHEMA


@pytest.mark.parametrize("size", [100, PYTHON_COMPONENT_BYTES], ids=["small", "python"])
def test_open_and_verify(benchmark, size):
    """Once per artifact."""
    raw = signed({"tool.wasm": bytes(size)})
    assert benchmark(open_artifact, raw, TRUST).publisher == "acme"
