"""The exceptions of the SDK, split by whose hands they end up in.

A tool meets `CapabilityError` and may raise `ToolError`; `Fault` is what the host gets. The rest
tell an author, at build time, what is wrong in a project. Imported inside components: standard
library only.
"""

from typing import ClassVar

__all__ = [
    "BuildError",
    "CapabilityError",
    "Fault",
    "ProjectError",
    "SchemaError",
    "SdkError",
    "ToolError",
]


class CapabilityError(Exception):
    """A capability call was refused or failed.

    `status` is a code of the status table: 403 not granted, 404, 408 deadline, 413 too large,
    429 quota, 502 upstream. A tool may catch it; one that it lets through becomes the call's
    fault with the same status.
    """

    def __init__(self, status: int, message: str, capability: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.capability = capability


class ToolError(Exception):
    """Raised by a tool to fail a call with a message of its own and no traceback.

    `status` is one of 400, 404, 413, 422, 429, 500 (the default) or 502: what a tool can know.
    """

    STATUSES: ClassVar[frozenset[int]] = frozenset({400, 404, 413, 422, 429, 500, 502})

    def __init__(self, message: str, *, status: int = 500) -> None:
        if status not in self.STATUSES:
            allowed = ", ".join(str(code) for code in sorted(self.STATUSES))
            raise ValueError(f"a tool can't fail with status {status}; it may use {allowed}")
        super().__init__(message)
        self.message = message
        self.status = status


class Fault(Exception):
    """Why a call failed, as it crosses to the host: the WIT record `fault`."""

    def __init__(self, status: int, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.detail = detail


class SdkError(Exception):
    """Base of what is wrong in a project: the message names the thing and the remedy."""


class SchemaError(SdkError, TypeError):
    """A type hint that has no JSON Schema, a method's name that can't be one, and the like."""


class ProjectError(SdkError):
    """`tool.toml`, or the folder around it, is not as it must be."""


class BuildError(SdkError):
    """The component could not be built. `detail` holds the compiler's or the module's own words."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(f"{message}\n{detail}" if detail else message)
        self.message = message
        self.detail = detail
