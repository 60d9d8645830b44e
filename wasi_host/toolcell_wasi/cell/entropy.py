"""Random bytes for a guest: the system's, or a seeded stream in a deterministic run."""

import hashlib
import os
from typing import Protocol


class Entropy(Protocol):
    """A source of random bytes."""

    def read(self, count: int) -> bytes:
        """`count` bytes."""


class SystemEntropy:
    """`getrandom(2)`."""

    def read(self, count: int) -> bytes:
        return os.urandom(count)


class SeededEntropy:
    """SHAKE-256 of seed and counter: the same seed, the same bytes, however they are asked for."""

    BLOCK_BYTES = 1024

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._counter = 0
        self._buffer = b""

    def read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            block = hashlib.shake_256(self._seed + self._counter.to_bytes(8, "big"))
            self._buffer += block.digest(self.BLOCK_BYTES)
            self._counter += 1
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken
