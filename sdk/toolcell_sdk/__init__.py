"""toolcell_sdk: what the author of a tool needs.

    from toolcell_sdk import kv, method

    @method
    def greet(name: str) -> str:
        ...

The names here are the ones that a tool imports; the same source runs inside a component, in an
out-of-process cell and under the test kit. What builds, checks and tests a tool is in the
submodules `build`, `lint`, `project`, `scaffold` and `testing`, which a tool never imports.
"""

from toolcell_sdk.capabilities import files, http, images, kv, log
from toolcell_sdk.errors import CapabilityError, SchemaError, ToolError
from toolcell_sdk.methods import method
from toolcell_sdk.shapes import Field

__all__ = [
    "CapabilityError",
    "Field",
    "SchemaError",
    "ToolError",
    "files",
    "http",
    "images",
    "kv",
    "log",
    "method",
]
