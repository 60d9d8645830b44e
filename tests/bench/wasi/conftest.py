"""The wasi lane under test; see tests/support."""

from wasi_fixtures import hostile, prepare, wasi_lane

__all__ = ["hostile", "prepare", "wasi_lane"]
