"""The one seam between a capability client and whatever answers it.

Owns the protocol and which transport is in use. In a component the transport speaks WIT
(`component.py`), in the test kit a fake broker answers (`testing/broker.py`), in an out-of-process
cell it is JSON-RPC. A client passes and gets JSON-ready values, so one source runs in all three.
Standard library only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from toolcell_sdk.errors import CapabilityError

__all__ = ["Transport", "call", "install", "installed"]


class Transport(Protocol):
    """Carries one capability call to the broker."""

    def call(self, capability: str, arguments: dict[str, Any]) -> Any:
        """Calls `capability` (`kv.get`). Bytes are base64 text on both sides.

        Raises :class:`CapabilityError`.
        """


class _NoTransport:
    def call(self, capability: str, arguments: dict[str, Any]) -> Any:
        del arguments
        raise CapabilityError(
            503, f"{capability}: no broker here; run the tool with `toolcell test`", capability
        )


_current: list[Transport] = [_NoTransport()]


def call(capability: str, arguments: dict[str, Any]) -> Any:
    """Calls `capability` through the transport in use."""
    return _current[-1].call(capability, arguments)


def install(transport: Transport) -> None:
    """Uses `transport` from now on. What a cell does once, at its start."""
    _current[-1] = transport


@contextmanager
def installed(transport: Transport) -> Iterator[None]:
    """Uses `transport` inside the block. What a test does."""
    _current.append(transport)
    try:
        yield
    finally:
        _current.remove(transport)
