"""Resources: the numbers of their types, and the handle table of a cell.

Owns what a handle stands for. wasmtime keeps the guest's own table and traps on a forged or
twice-dropped handle; this table is the host's half, bounded, and checks the kind of each use.
"""

from typing import TypeVar

from toolcell_wasi.cell.violations import GuestViolation

T = TypeVar("T")

KINDS = {
    name: number
    for number, name in enumerate(
        (
            "pollable",
            "input-stream",
            "output-stream",
            "error",
            "terminal-input",
            "terminal-output",
            "descriptor",
            "directory-entry-stream",
        ),
        start=1,
    )
}
"""Resource name -> wasmtime's number of the host's type. Names are unique across WASI 0.2."""

MAX_HANDLES = 1024
"""Live handles of one cell. A Python tool holds three streams and a few pollables."""


class HandleTable:
    """Numbers for objects. A number is never given out twice, so a stale one finds nothing."""

    __slots__ = ("_next", "_objects")

    def __init__(self) -> None:
        self._objects: dict[int, object] = {}
        self._next = 1

    def add(self, resource: object) -> int:
        """The number of `resource` from now on. Over the cap: :class:`GuestViolation`."""
        if len(self._objects) >= MAX_HANDLES:
            raise GuestViolation(f"the tool holds more than {MAX_HANDLES} handles")
        number = self._next
        self._next += 1
        self._objects[number] = resource
        return number

    def get(self, number: int, kind: type[T]) -> T:
        """What `number` stands for. Another kind, or nothing: :class:`GuestViolation`."""
        resource = self._objects.get(number)
        if not isinstance(resource, kind):
            raise GuestViolation(f"handle {number} does not stand for a {kind.__name__}")
        return resource

    def drop(self, number: int) -> None:
        """Forgets `number`."""
        self._objects.pop(number, None)
