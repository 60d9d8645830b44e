"""The compiled cache: native code on disk, believed only under its MAC.

Owns the folder, the key and the format. An entry is found by the component's digest and the
engine's fingerprint; before a byte of it is used, an HMAC-SHA256 over that name and the code is
checked on the bytes that will be loaded. An entry that fails is deleted, reported and made again.

    offset  0  8 bytes   magic, with the format's version
            8  32 bytes  HMAC-SHA256(key, magic | name | code)
           40            code
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import time
from pathlib import Path

from toolcell.home import ensure_private_dir, owner_only_key
from toolcell.lane import WarnHook
from toolcell_wasi.aot.compiler import MAX_COMPILED_BYTES
from toolcell_wasi.aot.sealed import SealedFile

MAGIC = b"TCAOT\x00\x00\x01"
MAC_BYTES = 32
HEADER_BYTES = len(MAGIC) + MAC_BYTES
SUFFIX = ".aot"
STALE_S = 3600
"""Age of a half-written file that no process can still be writing."""


class CompiledCache:
    """A folder of authenticated entries, `max_bytes` at most; what was used longest ago goes first.

    0 bytes keeps nothing.

    Any number of processes may use it at once: an entry is written beside its place and renamed.
    """

    def __init__(self, folder: Path, max_bytes: int, warn: WarnHook | None) -> None:
        ensure_private_dir(folder)
        self._folder = folder
        self._max_bytes = max_bytes
        self._warn = warn
        self._key = owner_only_key(folder / "aot.key")

    def name_of(self, wasm: bytes, fingerprint: str) -> str:
        """The entry's name: component and engine, nothing that a publisher could choose freely."""
        digest = hashlib.sha256(wasm).hexdigest()
        return hashlib.sha256(f"{digest}\n{fingerprint}".encode()).hexdigest()

    def load(self, name: str) -> SealedFile | None:
        """The code of entry `name`, checked and sealed; None where there is none to believe."""
        raw = self._read(name)
        if raw is None:
            return None
        view = memoryview(raw)
        code = view[HEADER_BYTES:]
        mac = bytes(view[len(MAGIC) : HEADER_BYTES])
        if bytes(view[: len(MAGIC)]) != MAGIC or not hmac.compare_digest(
            mac, self._mac(name, code)
        ):
            self.reject(name, "its MAC does not match")
            return None
        with contextlib.suppress(OSError):
            os.utime(self._path(name))  # what was used last goes last
        return SealedFile.of("toolcell-compiled", code)

    def store(self, name: str, code: SealedFile) -> str:
        """Keeps `code` as entry `name`. A full disk costs the entry, not the call.

        Returns the empty string, or what to warn of: each new process will compile again.
        """
        aside = self._folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
        data = code.read(MAX_COMPILED_BYTES)
        if len(data) + HEADER_BYTES > self._max_bytes:
            return _not_kept(f"it has {len(data)} bytes, cache_mb allows {self._max_bytes}")
        try:
            self._prune(room_for=len(data) + HEADER_BYTES)
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(MAGIC + self._mac(name, data))
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            # Never in place: a mapped file that is overwritten kills who runs it with SIGBUS.
            aside.rename(self._path(name))
        except OSError as error:
            self._tell("wasi.cache.not_written", f"entry {name[:12]} not kept: {error.strerror}")
            return _not_kept(error.strerror or "the disk failed")
        finally:
            aside.unlink(missing_ok=True)
        return ""

    def reject(self, name: str, why: str) -> None:
        """Throws entry `name` away and says so."""
        with contextlib.suppress(OSError):  # a folder in its place stays
            self._path(name).unlink(missing_ok=True)
        self._tell(
            "wasi.cache.rejected", f"compiled entry {name[:12]} was thrown away: {why}; made again"
        )

    def _read(self, name: str) -> bytes | None:
        # Not blocking: a pipe in an entry's place would be waited for.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(self._path(name), flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.reject(name, str(error.strerror))
            return None
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(fd)
            self.reject(name, "it is not a plain file")
            return None
        with os.fdopen(fd, "rb") as file:
            if not HEADER_BYTES < info.st_size <= MAX_COMPILED_BYTES + HEADER_BYTES:
                self.reject(name, f"it has {info.st_size} bytes")
                return None
            return file.read(MAX_COMPILED_BYTES + HEADER_BYTES)

    def _mac(self, name: str, code: bytes | memoryview) -> bytes:
        mac = hmac.new(self._key, MAGIC + name.encode("ascii"), hashlib.sha256)
        mac.update(code)
        return mac.digest()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{SUFFIX}"

    def _prune(self, room_for: int) -> None:
        """Deletes what a crash left behind, then the oldest entries over the size."""
        entries = []
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                info = path.lstat()
                if path.suffix == SUFFIX:
                    entries.append((info.st_mtime, info.st_size, path))
                elif path.name.startswith(".") and info.st_mtime < time.time() - STALE_S:
                    path.unlink()
        total = room_for + sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _tell(self, kind: str, message: str) -> None:
        if self._warn is not None:
            self._warn(kind, message)


def _not_kept(why: str) -> str:
    return f"the compiled tool could not be kept ({why}); each new process compiles it again"
