"""What the linter says: one finding, and the error that carries the ones that stop a build."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from toolcell_sdk.errors import SdkError

__all__ = ["Finding", "LintError"]


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place and what is wrong there. `path` is relative to the project's folder.

    `line` and `column` count from 1. An `error` stops a build; a `warning` does not.
    """

    path: str
    line: int
    column: int
    rule: str
    message: str
    remedy: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}; {self.remedy} [{self.rule}]"


class LintError(SdkError):
    """The findings that stop a build, one per line of the message."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = tuple(findings)
