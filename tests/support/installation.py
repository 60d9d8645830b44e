"""An installation for tests: a home with a trusted key, into which tools are published."""

import hashlib
from pathlib import Path

from toolcell.artifact.build import build_artifact, sign_artifact
from toolcell.home import Home
from toolcell.registry import Registry
from toolcell.trust.edit import add_key
from toolcell.trust.keys import SigningKey
from toolcell_sdk.build import COMPONENT, build

GUESTS = Path(__file__).parents[1] / "guests"
EXAMPLES = Path(__file__).parents[2] / "tools-examples"
TEST_ID = "6f2d3a52-93f1-4c0e-9d4e-6b1c0f6a7aff"


class Installation:
    """A home folder, one trusted publisher, and the bytes of what it published."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.key = SigningKey.generate()
        add_key(self.home.trust, "tester", self.key.public)

    def publish(self, unsigned: bytes, **options) -> str:
        """Signs and publishes; returns the artifact's digest."""
        with Registry.open(self.home) as registry:
            return registry.publish(sign_artifact(unsigned, self.key), **options).digest


def fake_archive(name="fake", version="1.0.0", methods=("go",), output=None, **fields) -> bytes:
    """An unsigned artifact for the fake lane: any input, `output` as the output schema (default:
    anything), eight bytes of program.
    """
    described = {method: {"input": {}, "output": output or {}} for method in methods}
    manifest = {
        "id": TEST_ID,
        "name": name,
        "version": version,
        "entry_point": "tool.wasm",
        "methods": described,
        **fields,
    }
    return build_artifact(manifest, {"tool.wasm": b"\0asm\x0d\0\x01\0"})


def built_archive(folder: Path, cache: Path) -> bytes:
    """The unsigned artifact of the tool in `folder`, built once per source and toolchain."""
    parts = hashlib.sha256()
    sdk = Path(build.__code__.co_filename).parents[1]
    for root in (folder, sdk):
        for path in sorted(root.rglob("*")):
            if path.suffix in {".py", ".toml", ".wit"} and path.is_file():
                parts.update(path.name.encode() + path.read_bytes())
    kept = cache / f"{folder.name}-{parts.hexdigest()[:32]}.tool"
    if not kept.exists():
        made = build(folder, cache / folder.name)
        archive = build_artifact(made.manifest_fields(), {COMPONENT: made.component.read_bytes()})
        kept.write_bytes(archive)
    return kept.read_bytes()
