"""One message: from bytes that a worker wrote to a request or an answer, or a refusal.

Owns the form (JSON-RPC 2.0, https://www.jsonrpc.org/specification) and the bound on a line, and
nothing of the order. Batches and notifications are refused: the protocol has no use for them. A
worker is hostile, so nothing is lenient: an unknown field, a name that comes twice or bytes that
are not UTF-8 end the run.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from toolcell.artifact.strict_json import NotStrictJson, decode_json
from toolcell.errors import LimitExceeded, Status, ToolFault

__all__ = ["Answer", "CapabilityRequest", "Context", "LineBuffer", "Refusal", "decode", "malformed"]

MAX_ID_CHARACTERS = 64

_Id = Annotated[int, Meta(ge=-(2**53), le=2**53)] | Annotated[str, Meta(max_length=64)]


class Context(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every request carries, in both directions."""

    correlation_id: str
    tool_id: str
    version: str
    policy_digest: str


class _Params(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    context: Context
    arguments: dict[str, Any]


class CapabilityRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A capability call: `method` is its name, which the broker knows or not."""

    jsonrpc: Literal["2.0"]
    id: _Id
    method: Annotated[str, Meta(min_length=1, max_length=64)]
    params: _Params


class _RefusalData(Struct, frozen=True, forbid_unknown_fields=True):
    detail: str = ""


class Refusal(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The error object of an answer. `code` is a status, `data.detail` a traceback."""

    code: int
    message: str
    data: _RefusalData = _RefusalData()


class Answer(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A worker's answer to a request of ours: `result` as it was written, or `error`."""

    jsonrpc: Literal["2.0"]
    id: _Id
    result: Raw | UnsetType = UNSET
    error: Refusal | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.result is UNSET) == (self.error is UNSET):
            raise ValueError("an answer has either `result` or `error`")


_answer = msgspec.json.Decoder(Answer).decode


def decode(line: bytes) -> CapabilityRequest | Answer:
    """The message in `line`. Raises :class:`ToolFault` (400) for anything else."""
    try:
        # The strict reader sees what msgspec lets through: names that come twice, deep nesting.
        value = decode_json(line)
        if isinstance(value, dict) and "method" in value:
            return msgspec.convert(value, CapabilityRequest)
        # Once more, for the text of the result as it was written. Nothing in it is converted.
        return _answer(line)
    except (NotStrictJson, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed(str(error)) from None


def malformed(why: str) -> ToolFault:
    """The error that ends a run whose worker does not keep to the protocol."""
    return ToolFault(
        f"the worker broke the protocol: {why[:300]}",
        status=Status.MALFORMED,
        remedy="this is a defect of the tool: tell its author",
        details={"protocol": "json-rpc 2.0"},
    )


class LineBuffer:
    """Bytes as they come in, out as lines of at most `max_bytes`, the newline included."""

    __slots__ = ("_data", "_max_bytes", "_searched")

    def __init__(self, max_bytes: int) -> None:
        self._data = bytearray()
        self._max_bytes = max_bytes
        self._searched = 0

    def feed(self, data: bytes) -> None:
        """Takes in `data`."""
        self._data += data

    def line(self) -> bytes | None:
        """The next line, without its newline; None where it is not whole yet.

        Raises :class:`LimitExceeded` for a line that is, or can only become, too long.
        """
        end = self._data.find(b"\n", self._searched)
        size = len(self._data) if end < 0 else end + 1
        if size > self._max_bytes:
            raise LimitExceeded(
                "max_message_bytes",
                allowed=self._max_bytes,
                used=size,
                message=f"the worker sent a message of {size} bytes or more; "
                f"max_message_bytes is {self._max_bytes}",
            )
        if end < 0:
            self._searched = len(self._data)
            return None
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        self._searched = 0
        return line
