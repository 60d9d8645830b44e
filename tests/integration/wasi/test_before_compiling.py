"""What is refused before a component is compiled, and what is told where its code can't be kept."""

import time

import pytest
from installation import Installation
from wasi_cell import Artifact

from toolcell.artifact.open import read_contents
from toolcell.errors import PolicyDenied
from toolcell.lane import LaneHome
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.runtime import Runtime
from toolcell_wasi.aot.cache import CompiledCache
from toolcell_wasi.lane import WasiLane

pytestmark = pytest.mark.slow


@pytest.fixture
def published(tmp_path_factory, archive_of) -> Installation:
    """A home with compiled code of its own: nothing is there yet."""
    installation = Installation(tmp_path_factory.mktemp("home"))
    installation.publish(archive_of("contract"))
    return installation


def test_a_call_without_the_grant_is_refused_without_compiling(published, monkeypatch):
    def compiled(*_args):
        raise AssertionError("it was compiled")

    monkeypatch.setattr(WasiLane, "prepare", compiled)
    with Runtime(published.home.root) as runtime:
        result = runtime.invoke("contract", "echo", {"value": 1}, policy=PolicyEnvelope())
    assert result.status == 403
    assert isinstance(result.error, PolicyDenied)
    assert "kv.get" in result.error.message


def test_screening_reads_the_names_of_the_imports_and_compiles_nothing(archive_of, tmp_path):
    contents = read_contents(archive_of("contract"))
    artifact = Artifact(contents.data("tool.wasm"), capabilities=contents.manifest.capabilities)
    lane = WasiLane()
    lane.configure(LaneHome(cache_dir=str(tmp_path)))
    with pytest.raises(PolicyDenied, match="toolcell:tool/kv"):
        lane.screen(artifact, PolicyEnvelope(allowed_host_apis=("log.emit",)))
    lane.screen(artifact, PolicyEnvelope(allowed_host_apis=contents.manifest.capabilities))
    assert list(tmp_path.glob("*.cwasm")) == []
    lane.close()


def test_code_that_can_t_be_kept_is_a_warning_on_the_result(published, monkeypatch):
    def full(_self, _room_for):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CompiledCache, "_prune", lambda self, room_for: full(self, room_for))
    policy = PolicyEnvelope(allowed_host_apis=("kv.get", "kv.set", "log.emit"))
    with Runtime(published.home.root) as runtime:
        result = runtime.invoke("contract", "echo", {"value": 1}, policy=policy)
    assert result.ok
    assert any("No space left" in warning for warning in result.warnings)


def test_closing_a_runtime_ends_the_compiler_at_once(published):
    runtime = Runtime(published.home.root)
    policy = PolicyEnvelope(allowed_host_apis=("kv.get", "kv.set", "log.emit"))
    handle = runtime.start("contract", "echo", {"value": 1}, policy=policy)
    lane = runtime._planner._lanes.get("wasi")
    deadline = time.monotonic() + 30
    while not lane._compiler._children:
        assert time.monotonic() < deadline
        assert handle.status != "done"
    (child,) = lane._compiler._children
    started = time.monotonic()
    runtime.close()
    assert time.monotonic() - started < 2
    assert child.poll() is not None
    assert handle.wait(0).status in {499, 503}
