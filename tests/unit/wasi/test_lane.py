"""The lane as the runtime sees it: settings, probe, what it prepares and what it refuses."""

import re
import resource
import threading

import pytest
import wasmtime
from wasi_cell import Artifact, call, make_session
from wasi_guests import ECHO, importing, wat_guest

from toolcell.artifact.manifest import SandboxNeeds
from toolcell.errors import (
    ArtifactRejected,
    ConfigError,
    InternalError,
    LaneUnavailable,
    PolicyDenied,
)
from toolcell.lane import LaneHome, Request
from toolcell.policy.envelope import PolicyEnvelope
from toolcell_wasi.lane import WasiLane


@pytest.fixture
def home(tmp_path):
    return LaneHome(cache_dir=str(tmp_path / "cache"))


def test_unknown_settings_stop_the_start(tmp_path):
    with pytest.raises(ConfigError, match="turbo") as wrong:
        WasiLane().configure(LaneHome(cache_dir=str(tmp_path), settings={"turbo": True}))
    assert "tick_ms" in wrong.value.remedy


@pytest.mark.parametrize("settings", [{"cells": 0}, {"tick_ms": 1000}, {"cache_mb": "big"}])
def test_settings_out_of_range_stop_the_start(tmp_path, settings):
    with pytest.raises(ConfigError):
        WasiLane().configure(LaneHome(cache_dir=str(tmp_path), settings=settings))


def test_the_probe_finds_each_ceiling_working(wasi_lane):
    probe = wasi_lane.probe()
    assert probe.available
    tried = ("host-functions", "fuel", "epoch", "memory", "stack")
    assert {name: probe.features[name] for name in tried} == dict.fromkeys(tried, "")
    assert probe.features["deterministic"] == ""
    assert probe.features["network=full"]


def test_the_probe_says_which_ceiling_does_not_hold(home, monkeypatch):
    monkeypatch.setattr("toolcell_wasi.engine.store.UNCAPPED_FUEL", 10)
    lane = WasiLane()
    lane.configure(home)
    probe = lane.probe()
    lane.close()
    assert not probe.available
    assert "all fuel consumed" in probe.features["stack"]


def test_too_little_address_space_is_refused_before_wasmtime_aborts(home, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (2**32, 2**32))
    lane = WasiLane()
    lane.configure(home)
    probe = lane.probe()
    assert not probe.available
    assert "RLIMIT_AS" in probe.reason
    with pytest.raises(LaneUnavailable, match="address space"):
        lane.prepare(Artifact(wat_guest(ECHO)))
    lane.close()


def test_closing_is_idempotent_and_closes_what_is_prepared(home):
    before = threading.active_count()
    lane = WasiLane()
    lane.configure(home)
    prepared = lane.prepare(Artifact(wat_guest(ECHO)))
    assert call(prepared).output == b"null"
    lane.close()
    lane.close()
    prepared.close()
    with pytest.raises(InternalError, match="closed"):
        lane.prepare(Artifact(wat_guest(ECHO)))
    assert threading.active_count() == before


def test_the_second_prepare_takes_the_code_from_the_cache(home, monkeypatch):
    lane = WasiLane()
    lane.configure(home)
    lane.prepare(Artifact(wat_guest(ECHO)))
    monkeypatch.setattr("toolcell_wasi.aot.compiler.Compiler.compile", None)
    assert call(lane.prepare(Artifact(wat_guest(ECHO)))).output == b"null"
    lane.close()


def test_altered_code_is_thrown_away_reported_and_made_again(tmp_path):
    warnings = []
    home = LaneHome(cache_dir=str(tmp_path), warn=lambda kind, _message: warnings.append(kind))

    def run():
        lane = WasiLane()
        lane.configure(home)
        output = call(lane.prepare(Artifact(wat_guest(ECHO))), text="1").output
        lane.close()
        return output

    assert run() == b"1"
    entry = next(tmp_path.glob("*.aot"))
    good = bytearray(entry.read_bytes())
    good[len(good) // 2] ^= 1
    entry.write_bytes(good)
    assert run() == b"1"
    assert warnings == ["wasi.cache.rejected"]
    assert run() == b"1"
    assert len(warnings) == 1


@pytest.mark.parametrize("wasm", [b"", b"\x7fELF", b"\0asm\x01\0\0\0"])
def test_what_is_no_component_is_rejected(wasi_lane, wasm):
    with pytest.raises(ArtifactRejected, match=r"tool\.wasm is not a WebAssembly component"):
        wasi_lane.prepare(Artifact(wasm))


def test_a_component_without_the_export_is_rejected(wasi_lane):
    with pytest.raises(ArtifactRejected, match="does not export `toolcell:tool/guest"):
        wasi_lane.prepare(Artifact(bytes(wasmtime.wat2wasm("(component)"))))


def test_a_component_that_imports_a_core_module_is_rejected(wasi_lane):
    guest = bytes(wasmtime.wat2wasm('(component (import "m" (core module)))'))
    with pytest.raises(ArtifactRejected):
        wasi_lane.prepare(Artifact(guest))


FEATURES = {
    "threads": "(func (atomic.fence))",
    "memory64": "(memory i64 1)",
    "multiple memories": "(memory 1) (memory 1)",
    "gc feature": "(type $t (struct (field i32)))",
    "exceptions proposal": "(tag $e)",
    "tail calls": "(func $f (return_call $f))",
    "function references": "(type $t (func)) (func (param (ref $t)))",
    "relaxed SIMD": "(func (param v128 v128) (result v128)"
    " (i8x16.relaxed_swizzle (local.get 0) (local.get 1)))",
    "stack switching": "(type $f (func)) (type $c (cont $f))",
    "wide arithmetic": "(func (param i64 i64) (result i64 i64)"
    " (i64.mul_wide_u (local.get 0) (local.get 1)))",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_that_tools_do_not_need_is_off(wasi_lane, name):
    text = f"(component (core module {FEATURES[name]}))"
    with pytest.raises(ArtifactRejected, match=name) as rejected:
        wasi_lane.prepare(Artifact(bytes(wasmtime.wat2wasm(text))))
    assert rejected.value.status == 400


def test_an_unknown_import_is_rejected_by_name(wasi_lane):
    guest = importing("evil:corp/door@1.0.0", "open", "(result u32)", "(result i32)", ECHO)
    with pytest.raises(ArtifactRejected, match=re.escape("evil:corp/door@1.0.0")):
        wasi_lane.prepare(Artifact(guest))


@pytest.mark.parametrize("version", ["0.1.0", "0.3.0", "1.0.0"])
def test_another_version_of_wasi_is_rejected(wasi_lane, version):
    name = f"wasi:random/random@{version}"
    guest = importing(name, "get-random-u64", "(result u64)", "(result i64)", ECHO)
    with pytest.raises(ArtifactRejected, match=re.escape(name)):
        wasi_lane.prepare(Artifact(guest))


def test_an_import_of_another_type_is_rejected(wasi_lane):
    guest = importing(
        "wasi:random/random@0.2.0", "get-random-u64", "(result string)", "(param i32)", ECHO
    )
    with pytest.raises(ArtifactRejected, match=r"`func\(\) -> u64`"):
        wasi_lane.prepare(Artifact(guest))


def test_an_interface_that_the_manifest_does_not_request_is_rejected(wasi_lane):
    with pytest.raises(ArtifactRejected, match="its manifest requests none of"):
        wasi_lane.prepare(Artifact(logging_guest()))


def test_an_interface_without_a_grant_is_denied_by_name(prepare):
    prepared = prepare(logging_guest(), capabilities=("log.emit",))
    with pytest.raises(PolicyDenied, match=re.escape("`log.emit`")) as denied:
        prepared.admit(PolicyEnvelope())
    assert denied.value.details["capability"] == "log.emit"
    prepared.admit(PolicyEnvelope(allowed_host_apis=("log.emit",)))


@pytest.mark.parametrize(
    ("needs", "feature"),
    [({"filesystem": "host"}, "filesystem=host"), ({"network": "full"}, "network=full")],
)
def test_a_need_that_this_lane_can_not_meet_is_refused(prepare, needs, feature):
    prepared = prepare(wat_guest(ECHO), sandbox=SandboxNeeds(**needs))
    with pytest.raises(LaneUnavailable) as refused:
        prepared.admit(PolicyEnvelope())
    assert refused.value.details["feature"] == feature


def test_input_that_is_no_text_is_refused(prepare):
    outcome = prepare(wat_guest(ECHO)).invoke(Request("run", b"\xff"), make_session())
    assert outcome.error.status == 400


def test_a_thread_with_too_small_a_stack_is_refused_not_crashed(prepare):
    prepared = prepare(wat_guest(ECHO))
    outcomes = []
    threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=lambda: outcomes.append(call(prepared)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
    assert outcomes[0].error.status == 503
    assert outcomes[0].error.details["feature"] == "thread-stack"


def test_an_outcome_tells_what_was_used_and_in_force(prepare):
    outcome = call(prepare(wat_guest(ECHO)), text='"hello"', memory_mb=7, fuel=10**6)
    assert outcome.output == b'"hello"'
    assert 0 < outcome.usage.fuel < 10**6
    assert outcome.usage.bytes_out == 7
    assert outcome.usage.cpu_ms > 0
    assert outcome.receipt["memory_max_bytes"] == 7 * 1024 * 1024
    assert set(outcome.stages_us) == {"instantiate", "guest", "discard"}


def logging_guest():
    """Imports `log.emit`, whose fault record comes from the types interface."""
    fault = '(record (field "status" u16) (field "message" string) (field "detail" string))'
    return wat_guest(
        ECHO,
        imports=f"""
          (import "toolcell:tool/types@0.1.0" (instance $types
            (type $r {fault}) (export "fault" (type (eq $r)))))
          (alias export $types "fault" (type $fault))
          (import "toolcell:tool/log@0.1.0" (instance $log
            (alias outer 1 $fault (type $f)) (export "fault" (type $f2 (eq $f)))
            (type $l (enum "debug" "info" "warning" "error")) (export "level" (type $l2 (eq $l)))
            (export "emit" (func (param "level" $l2) (param "message" string)
              (result (result (error $f2)))))))""",
    )
