"""`fs.*` of one run.

Owns the scratch space: made on the first call, removed when the run ends, whatever ended it.
"""

from typing import TYPE_CHECKING

from toolcell.broker.call import Call, Refusal
from toolcell.broker.files.path import parts_of
from toolcell.broker.files.scratch import Scratch
from toolcell.broker.interface import (
    FileEntry,
    FsList,
    FsReadBytes,
    FsReadText,
    FsRemove,
    FsWriteBytes,
    FsWriteText,
)
from toolcell.errors import Status
from toolcell.session import Session

if TYPE_CHECKING:
    from toolcell.broker.services import BrokerServices

__all__ = ["FilesCapability"]

_MIB = 1024 * 1024


class FilesCapability:
    """The six of them, over one scratch space."""

    def __init__(self, session: Session, services: "BrokerServices") -> None:
        self._max_message_bytes = session.envelope.max_message_bytes
        try:
            self.scratch = Scratch(services.scratch, session.envelope.scratch_mb * _MIB)
        except OSError as error:
            raise Refusal(
                "disk",
                f"no scratch space: {error.strerror}",
                status=Status.UPSTREAM,
                remedy="an operator must look at the scratch folder",
            ) from None

    def read_text(self, _call: Call, params: FsReadText) -> str:
        """Serves `fs.readText`."""
        raw = self.scratch.read(parts_of(params.path), self._max_message_bytes)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise Refusal(
                "encoding",
                f"the file is not UTF-8 (byte {error.start})",
                status=Status.MALFORMED,
                remedy="read it with fs.readBytes",
            ) from None

    def write_text(self, _call: Call, params: FsWriteText) -> None:
        """Serves `fs.writeText`."""
        self.scratch.write(parts_of(params.path), params.text.encode())

    def read_bytes(self, _call: Call, params: FsReadBytes) -> bytes:
        """Serves `fs.readBytes`."""
        return self.scratch.read(parts_of(params.path), self._max_message_bytes)

    def write_bytes(self, _call: Call, params: FsWriteBytes) -> None:
        """Serves `fs.writeBytes`."""
        self.scratch.write(parts_of(params.path), params.data)

    def entries(self, _call: Call, params: FsList) -> list[FileEntry]:
        """Serves `fs.list`."""
        return self.scratch.entries_of(parts_of(params.path))

    def remove(self, _call: Call, params: FsRemove) -> None:
        """Serves `fs.remove`."""
        self.scratch.remove(parts_of(params.path))

    def close(self) -> None:
        """Removes the scratch space."""
        self.scratch.close()
