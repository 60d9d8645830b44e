"""The registry: which artifacts an installation has, and who may be reached by which name."""

from toolcell.registry.registry import Registry

__all__ = ["Registry"]
