"""Type hints as JSON: one walk over a type gives its schema, its reader and its writer.

Schema and conversion come from the same object, so a value that the schema admits is one that the
reader takes. Imported inside components: standard library only.
"""

from toolcell_sdk.shapes.base import Field, Mismatch, Shape
from toolcell_sdk.shapes.resolve import Resolver

__all__ = ["Field", "Mismatch", "Resolver", "Shape"]
