"""Components that attack while they are prepared: what a publisher can write into their types."""

import re

import pytest
import wasmtime
from wasi_cell import Artifact, call
from wasi_guests import ECHO, wat_guest

from toolcell.errors import ArtifactRejected
from toolcell_wasi.engine import component
from toolcell_wasi.engine.component import MAX_ITEMS

NAME = "n" * 50_000


def exporting(count):
    """A component that exports one function `count` times."""
    names = "".join(f'(export "e{at}" (func $f))' for at in range(count))
    return bytes(
        wasmtime.wat2wasm(
            f"""(component
              (core module $m (func (export "f"))) (core instance $i (instantiate $m))
              (func $f (canon lift (core func $i "f"))) {names})"""
        )
    )


def importing_many(count):
    """A guest that imports `count` functions of one interface."""
    names = "".join(f'(export "f{at}" (func))' for at in range(count))
    return wat_guest(ECHO, imports=f'(import "wasi:io/poll@0.2.0" (instance {names}))')


@pytest.mark.parametrize("wasm", [exporting(MAX_ITEMS + 1), importing_many(MAX_ITEMS)])
def test_items_without_number_are_counted_before_they_are_looked_through(wasi_lane, wasm):
    """wasmtime counts from the first for each: 100,000 of them would take minutes."""
    with pytest.raises(ArtifactRejected, match=f"{MAX_ITEMS + 1} items or more"):
        wasi_lane.prepare(Artifact(wasm))


def test_only_the_count_keeps_them_out(prepare, monkeypatch):
    """With the count switched off, all of them are looked through."""
    monkeypatch.setattr(component, "require_few", lambda _count: None)
    assert call(prepare(importing_many(MAX_ITEMS))).output == b"null"


@pytest.mark.parametrize(
    "imported",
    [
        f'(import "{NAME}" (func))',
        f'(import "toolcell:tool/types@0.1.0" (instance (export "{NAME}" (func))))',
        r'(import "url=<http://x/\1b[2J\0a\u{202e}>" (func))',
    ],
)
def test_a_name_that_a_publisher_chose_stays_small_and_harmless(wasi_lane, imported):
    with pytest.raises(ArtifactRejected, match="which this lane does not have") as rejected:
        wasi_lane.prepare(Artifact(wat_guest(ECHO, imports=imported)))
    told = f"{rejected.value.message}{rejected.value.details['import']}"
    assert len(told) < 500
    assert told.isprintable()


def test_a_trap_names_a_function_in_so_many_characters_only(prepare):
    guest = wat_guest(
        f"(call $f) {ECHO}",
        imports=f'(import "wasi:io/poll@0.2.0" (instance $x (export "{NAME}" (func))))',
        lowered=f'(core func $f (canon lower (func $x "{NAME}")))',
        core_imports='(import "x" "f" (func $f))',
        core_instances='(with "x" (instance (export "f" (func $f))))',
    )
    error = call(prepare(guest)).error
    assert re.match(r"the tool called `wasi:io/poll@0\.2\.0#nnn", error.message)
    assert len(error.message) + len(error.details["import"]) < 500
