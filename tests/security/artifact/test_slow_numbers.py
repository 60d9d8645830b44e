"""Numbers that take long to read: 2 MB of `1e300` are seconds in msgspec's own reader."""

import time

import msgspec
import pytest
from artifact_maker import manifest_fields, refused

from toolcell.artifact import manifest as manifest_module
from toolcell.artifact import strict_json
from toolcell.artifact.manifest import Manifest, decode_manifest
from toolcell.artifact.strict_json import finite_float
from toolcell.cli import policy as cli_policy
from toolcell.policy import book
from toolcell.telemetry import recovery

COUNT = 20_000
TIMES_SLOWER = 5.0
"""By what slow numbers may at most be slower than others. Without the defence it is over 15."""


def manifest_of(number: str) -> bytes:
    """A manifest whose schema lists `number` many times, in canonical form."""
    methods = {"say": {"input": {"enum": [float(number)] * COUNT}, "output": {"type": "string"}}}
    fields = manifest_fields(methods=methods, files={"tool.wasm": "0" * 64})
    return msgspec.convert(fields, Manifest).to_bytes()


def cpu_s(raw: bytes) -> float:
    """The quickest of three readings of `raw`."""

    def once() -> float:
        started = time.process_time()
        decode_manifest(raw)
        return time.process_time() - started

    return min(once() for _ in range(3))


@pytest.mark.slow
def test_a_manifest_of_slow_numbers_is_read_as_quickly_as_another(monkeypatch):
    slow, quick = manifest_of("1e300"), manifest_of("1.5")
    assert cpu_s(slow) < TIMES_SLOWER * cpu_s(quick)
    # With the defence off, the attack succeeds.
    monkeypatch.setattr(manifest_module, "_DECODER", msgspec.json.Decoder(Manifest))
    assert cpu_s(slow) > TIMES_SLOWER * cpu_s(quick)


def test_a_number_out_of_range_in_a_manifest_is_refused():
    raw = manifest_of("1.5").replace(b"[1.5,", b"[1e999,", 1)
    assert b"1e999" in raw
    with refused("manifest") as caught:
        decode_manifest(raw)
    assert "out of range" in caught.value.message


@pytest.mark.parametrize(
    "decoder", [book._MASK_DECODER, recovery._ANY, cli_policy._MANIFEST, strict_json._DECODER]
)
def test_no_decoder_of_untyped_fields_reads_numbers_by_itself(decoder):
    assert decoder.float_hook in (finite_float, float)
