"""The order of the messages: Init, Ready, Invoke, capability calls, Result, Shutdown.

Owns the state of one conversation and what each message leads to: a call of the broker, or the
outcome. A message out of turn ends the run (400). Does no I/O; used by the cell's loop.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from toolcell.errors import CapabilityFault, ToolcellError
from toolcell.lane import Request
from toolcell.session import Session
from toolcell_oops.faults import fault_of_worker
from toolcell_oops.rpc.message import Answer, CapabilityRequest, Context, decode, malformed

__all__ = ["PROTOCOL", "Conversation"]

PROTOCOL = 1
INIT_ID, INVOKE_ID = 1, 2
_encode = msgspec.json.Encoder().encode


class _Ready(Struct, frozen=True, forbid_unknown_fields=True):
    protocol: int
    worker: str = ""


class _Output(Struct, frozen=True, forbid_unknown_fields=True):
    output: Raw


class Conversation:
    """One invocation, from the host's side. `output` or `error` is set when `over`.

    `method` and `params` are those of the one request that is made after Ready: an invocation, or
    the builder's `toolcell.describe`.
    """

    __slots__ = ("_context", "_method", "_params", "_ready", "_session", "error", "output", "over")

    def __init__(self, session: Session, method: str, params: dict[str, Any]) -> None:
        self._session = session
        self._context = Context(
            correlation_id=session.correlation_id,
            tool_id=session.tool.id,
            version=session.tool.version,
            policy_digest=session.policy_digest,
        )
        self._method = method
        self._params = params
        self._ready = False
        self.over = False
        self.output: bytes | None = None
        self.error: ToolcellError | None = None

    @classmethod
    def invocation(cls, session: Session, request: Request) -> "Conversation":
        """The conversation that makes the call `request`."""
        # A line break in checked JSON is white space between tokens; a message is one line.
        text = request.input.replace(b"\n", b" ")
        params = {"method": request.method, "input": Raw(text)}
        return cls(session, "toolcell.invoke", params)

    def start(self) -> bytes:
        """Init: what the host says first."""
        limit = self._session.envelope.max_message_bytes
        return self._request(
            INIT_ID, "toolcell.init", {"protocol": PROTOCOL, "max_message_bytes": limit}
        )

    def take(self, line: bytes) -> bytes:
        """Takes the worker's next message; returns what to say to it, which may be nothing.

        Raises :class:`ToolFault` (400) for a message that is malformed or out of turn, and what
        ended the run inside a capability call.
        """
        message = decode(line)
        if isinstance(message, CapabilityRequest):
            return self._serve(message)
        if not self._ready:
            return self._take_ready(message)
        self._take_result(message)
        return shutdown()

    def _serve(self, request: CapabilityRequest) -> bytes:
        if not self._ready:
            raise malformed("a capability call before Ready")
        if request.params.context != self._context:
            raise malformed("a request with the context of another call")
        try:
            result = self._session.broker.call(request.method, **request.params.arguments)
        except CapabilityFault as fault:
            data = {"remedy": fault.remedy}
            error = {"code": fault.status, "message": fault.message, "data": data}
            return _line({"jsonrpc": "2.0", "id": request.id, "error": error})
        self._session.check()
        return _line({"jsonrpc": "2.0", "id": request.id, "result": result})

    def _take_ready(self, answer: Answer) -> bytes:
        if answer.id != INIT_ID:
            raise malformed(f"an answer to request {answer.id!r:.80}, which was not made")
        if answer.error is not UNSET:
            self._end(fault_of_worker(answer.error))
            return shutdown()
        ready = _converted(answer, _Ready)
        if ready.protocol != PROTOCOL:
            raise malformed(f"it speaks version {ready.protocol}; the host speaks {PROTOCOL}")
        self._ready = True
        return self._request(INVOKE_ID, self._method, self._params)

    def _take_result(self, answer: Answer) -> None:
        # A ceiling holds for a run that went over it and came back all the same.
        self._session.check()
        if answer.id != INVOKE_ID:
            raise malformed(f"an answer to request {answer.id!r:.80}, which was not made")
        if answer.error is not UNSET:
            self._end(fault_of_worker(answer.error))
        else:
            self.output = bytes(_converted(answer, _Output).output)
            self._end(None)

    def _end(self, error: ToolcellError | None) -> None:
        self.error = error
        self.over = True

    def _request(self, number: int, method: str, params: dict[str, Any]) -> bytes:
        params = {"context": self._context, **params}
        return _line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def shutdown() -> bytes:
    """Shutdown: a notification, after which a worker leaves; it is ended where it does not."""
    return b'{"jsonrpc":"2.0","method":"toolcell.shutdown"}\n'


def _converted(answer: Answer, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(answer.result or b"", type=kind)
    except msgspec.MsgspecError as error:
        raise malformed(f"the result of request {answer.id}: {error}") from None


def _line(message: dict[str, Any]) -> bytes:
    return _encode(message) + b"\n"
