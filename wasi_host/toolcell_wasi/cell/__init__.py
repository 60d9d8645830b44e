"""The cell: the state of one run, made fresh for it and gone with it.

Owns handles, clock, randomness and captured output of one guest. Host functions (`host`) act on
it; the lane (`prepared`) makes it and reads what is left when the guest is gone.
"""

from toolcell_wasi.cell.state import Cell

__all__ = ["Cell"]
