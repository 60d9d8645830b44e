"""A process of its own that publishes or resolves, driven by the tests of the registry.

python registry_process.py HOME publish FILE…      one line for each: published VERSION
python registry_process.py HOME resolve COUNT      one line at the end: resolved VERSION,…
python registry_process.py HOME stop STAGE FILE    stops for ever inside STAGE, and says so
"""

import os
import signal
import sys
from pathlib import Path

from toolcell.errors import ToolNotFound
from toolcell.home import Home
from toolcell.registry import Registry, publishing
from toolcell.registry.blobs import BlobStore
from toolcell.registry.index import Change


def main(home: str, verb: str, *words: str) -> None:
    with Registry.open(Home(home)) as registry:
        print("ready", flush=True)
        sys.stdin.readline()
        {"publish": publish, "resolve": resolve, "stop": stop}[verb](registry, *words)


def publish(registry: Registry, *files: str) -> None:
    for file in files:
        print("published", registry.publish(Path(file)).version, flush=True)


def resolve(registry: Registry, count: str) -> None:
    """Resolves and reads what it got, over and over, until it has seen `count` versions."""
    seen: list[str] = []
    while len(seen) < int(count):
        try:
            artifact = registry.resolve("echo").artifact
        except ToolNotFound:
            continue
        version = artifact.manifest.version
        assert artifact.read("tool.wasm") == version.encode()
        if version not in seen:
            assert [int(part) for part in version.split(".")] > [
                int(part) for part in (seen[-1] if seen else "0.0.0").split(".")
            ], f"went back from {seen[-1]} to {version}"
            seen.append(version)
            if version == f"{count}.0.0":
                break
    print("resolved", ",".join(seen), flush=True)


def stop(registry: Registry, stage: str, file: str) -> None:
    """Publishes, but halts in `stage` until it is killed."""
    real_fsync, real_replace, real_put = os.fsync, Path.replace, Change.put_version

    def halt() -> None:
        print("stopped in", stage, flush=True)
        signal.pause()

    if stage == "writing":  # written, not yet synced or renamed
        os.fsync = lambda descriptor: halt() or real_fsync(descriptor)
    elif stage == "renaming":
        Path.replace = lambda self, target: halt() or real_replace(self, target)
    elif stage == "renamed":  # the blob has its name, the index knows nothing
        real_add = BlobStore.add
        BlobStore.add = lambda self, data: (real_add(self, data), halt())[0]
    elif stage == "transaction":  # rows written, not committed
        publishing.put_member = lambda *_: halt()
    elif stage == "row":
        Change.put_version = lambda self, row: (real_put(self, row), halt())[0]
    registry.publish(Path(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
