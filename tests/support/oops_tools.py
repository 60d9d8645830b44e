"""Artifacts of the oops lane for tests: Debian's jq as it is, Python tools from their source."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from installation import TEST_ID

from toolcell.artifact.build import build_artifact
from toolcell.lane import LaneHome
from toolcell_oops.build import build_python
from toolcell_oops.lane import OopsLane

_IN_THE_BASE = re.compile(r"lib(c|m|pthread|dl|rt)\.so\.\d+|ld-linux.*|linux-vdso.*")

JQ_PROGRAM = {
    "schema": "toolcell.program/1",
    "kind": "plain",
    "program": "bin/jq",
    "methods": {
        "filter": {
            "arguments": ["-c", "{filter}"],
            "stdin": "document",
            "stdout": "json-lines",
        }
    },
}
JQ_METHODS = {
    "filter": {
        "description": "Applies a jq filter to a JSON document.",
        "input": {
            "type": "object",
            "properties": {"filter": {"type": "string", "maxLength": 4096}, "document": {}},
            "required": ["filter", "document"],
            "additionalProperties": False,
        },
        "output": {"type": "array"},
    }
}


def program_of_this_machine(name: str) -> dict[str, bytes]:
    """`bin/NAME` and the libraries it needs beyond the C library, as an artifact holds them."""
    program = Path(shutil.which(name) or name).resolve()
    files = {f"bin/{name}": program.read_bytes()}
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for library, place in re.findall(r"(\S+) => (/\S+)", listed):
        if not _IN_THE_BASE.fullmatch(library):
            files[f"lib/{library}"] = Path(place).read_bytes()
    return files


def plain_archive(name: str, program: dict, methods: dict, files: dict[str, bytes], **fields):
    """The unsigned artifact of a plain program."""
    entry = {"program.json": json.dumps(program).encode()}
    manifest = {
        "id": TEST_ID,
        "name": name,
        "version": "1.0.0",
        "lane": "oops",
        "entry_point": "program.json",
        "methods": methods,
        **fields,
    }
    return build_artifact(manifest, {**files, **entry})


def jq_archive() -> bytes:
    """Debian's jq as a tool: its files, and a manifest."""
    return plain_archive("jq", JQ_PROGRAM, JQ_METHODS, program_of_this_machine("jq"))


def python_archive(folder: Path, cache: Path) -> bytes:
    """The unsigned artifact of the Python tool in `folder`, for the oops lane."""
    lane = OopsLane()
    lane.configure(LaneHome(cache_dir=str(cache), settings={"base_dir": str(cache / "bases")}))
    try:
        return build_python(folder, lane)
    finally:
        lane.close()


def module_archive(source: str, name: str = "hostile", **fields) -> bytes:
    """A worker whose module is `source`, with a method `go` that takes and gives anything."""
    manifest = {
        "id": TEST_ID,
        "name": name,
        "version": "1.0.0",
        "lane": "oops",
        "entry_point": "program.json",
        "methods": {"go": {"input": {}, "output": {}}},
        **fields,
    }
    entry = {"kind": "worker", "module": "hostile"}
    files = {"program.json": json.dumps(entry).encode(), "app/hostile.py": source.encode()}
    return build_artifact(manifest, files)
