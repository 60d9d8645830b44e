"""What stands behind each capability in a test: small, in memory, with the real one's statuses.

Owns the state that a test sets up and looks at. Quotas, grants and injected faults are the fake
broker's (`broker.py`, the only caller).
"""

import base64
import io
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from toolcell_sdk.errors import CapabilityError

__all__ = ["FakeFiles", "FakeHttp", "FakeImages", "FakeKv", "FakeLog"]

MAX_IMAGE_PIXELS = 50_000_000


@dataclass
class FakeKv:
    """`kv.*` over `values`, which a test may read and fill."""

    values: dict[str, str] = field(default_factory=dict)
    max_value_bytes: int = 256 * 1024
    max_total_bytes: int = 4 * 1024 * 1024

    def get(self, key: str) -> str | None:
        """The value, or None."""
        return self.values.get(key)

    def set(self, key: str, value: str) -> None:
        """413 where a cap is passed; the store stays as it was."""
        size = len(value.encode())
        total = sum(len(k.encode()) + len(v.encode()) for k, v in self.values.items() if k != key)
        if size > self.max_value_bytes:
            message = f"kv.set: a value of {size} bytes; the limit is {self.max_value_bytes}"
            raise CapabilityError(413, message, "kv.set")
        if total + size + len(key.encode()) > self.max_total_bytes:
            message = f"kv.set: the store is full; the limit is {self.max_total_bytes} bytes"
            raise CapabilityError(413, message, "kv.set")
        self.values[key] = value

    def delete(self, key: str) -> bool:
        """Whether the key was there."""
        return self.values.pop(key, None) is not None

    def list(self, prefix: str) -> list[str]:
        """The keys with the prefix, sorted."""
        return sorted(key for key in self.values if key.startswith(prefix))


class FakeHttp:
    """`http.fetch` over the answers that a test set up; another URL is refused with 403."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], dict[str, Any]] = {}

    def respond(
        self,
        url: str,
        body: bytes | str = b"",
        *,
        status: int = 200,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        method: str = "GET",
        final_url: str | None = None,
    ) -> None:
        """Sets the answer for `url`. `final_url` is where redirects would have led."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        raw = body.encode() if isinstance(body, str) else body
        self._answers[method.upper(), url] = {
            "status": status,
            "url": final_url or url,
            "headers": [[name, value] for name, value in pairs],
            "body": base64.b64encode(raw).decode("ascii"),
        }

    def fetch(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The answer; 403 where none was set up, as for a domain that is not granted."""
        key = (arguments["method"].upper(), arguments["url"])
        if key not in self._answers:
            message = (
                f"http.fetch: {key[0]} {key[1]} is not allowed: no `respond` was set up for it"
            )
            raise CapabilityError(403, message, "http.fetch")
        return self._answers[key]


@dataclass
class FakeFiles:
    """`fs.*` over `contents`: absolute path to bytes. Folders are where files are."""

    contents: dict[str, bytes] = field(default_factory=dict)
    max_total_bytes: int = 16 * 1024 * 1024

    def read(self, capability: str, path: str) -> bytes:
        """404 where there is no such file."""
        name = self._path(capability, path)
        if name not in self.contents:
            raise CapabilityError(404, f"{capability}: no file `{path}`", capability)
        return self.contents[name]

    def write(self, capability: str, path: str, data: bytes) -> None:
        """413 over the quota."""
        name = self._path(capability, path)
        others = sum(len(held) for key, held in self.contents.items() if key != name)
        if others + len(data) > self.max_total_bytes:
            message = f"{capability}: the scratch space is full ({self.max_total_bytes} bytes)"
            raise CapabilityError(413, message, capability)
        self.contents[name] = data

    def list(self, path: str) -> list[dict[str, Any]]:
        """One level, sorted by name. 404 where nothing is below."""
        base = self._path("fs.list", path).rstrip("/") + "/"
        entries: dict[str, dict[str, Any]] = {}
        for name, data in self.contents.items():
            if name.startswith(base):
                first, _, rest = name.removeprefix(base).partition("/")
                kind, size = ("directory", 0) if rest else ("file", len(data))
                entries[first] = {"name": first, "kind": kind, "size": size}
        if not entries and base != "/scratch/":
            raise CapabilityError(404, f"fs.list: no folder `{path}`", "fs.list")
        return [entries[name] for name in sorted(entries)]

    def remove(self, path: str) -> None:
        """A file, or all that is below a folder. 404 where there is neither."""
        target = self._path("fs.remove", path)
        gone = [n for n in self.contents if n == target or n.startswith(target.rstrip("/") + "/")]
        if not gone:
            raise CapabilityError(404, f"fs.remove: no file or folder `{path}`", "fs.remove")
        for name in gone:
            del self.contents[name]

    def _path(self, capability: str, path: str) -> str:
        if not path.startswith("/"):
            message = f"{capability}: `{path}` is not an absolute path; write /scratch/…"
            raise CapabilityError(400, message, capability)
        parts: list[str] = []
        for part in PurePosixPath(path).parts[1:]:
            parts = parts[:-1] if part == ".." else [*parts, part]
        if parts[:1] != ["scratch"]:
            message = f"{capability}: `{path}` is not below /scratch"
            raise CapabilityError(403, message, capability)
        return "/" + "/".join(parts)


class FakeImages:
    """`images.resize` by Pillow, so that a test gets a real picture."""

    def resize(self, data: bytes, width: int, height: int, format: str) -> dict[str, Any]:  # noqa: A002
        """400 for bytes that are no picture, 413 for too many pixels."""
        from PIL import Image, UnidentifiedImageError

        try:
            with warnings.catch_warnings(), Image.open(io.BytesIO(data)) as picture:
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)
                if picture.width * picture.height > MAX_IMAGE_PIXELS:
                    message = f"images.resize: more than {MAX_IMAGE_PIXELS} pixels"
                    raise CapabilityError(413, message, "images.resize")
                small = picture.convert("RGB" if format == "jpeg" else "RGBA")
                small.thumbnail((width, height))
        except (UnidentifiedImageError, OSError) as error:
            message = f"images.resize: not a picture of an allowed format: {error}"
            raise CapabilityError(400, message, "images.resize") from None
        out = io.BytesIO()
        small.save(out, format)
        encoded = base64.b64encode(out.getvalue()).decode("ascii")
        return {"data": encoded, "width": small.width, "height": small.height, "format": format}


@dataclass
class FakeLog:
    """`log.emit` into `lines`: (level, message)."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def emit(self, level: str, message: str) -> None:
        """Keeps the line."""
        self.lines.append((level, message))
