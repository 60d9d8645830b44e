"""The broker of one invocation: the gate that every capability call goes through.

Owns the order of the checks (known, granted, quota, size, parameters, deadline), the counting and
the audit. What a capability does is in its own module; what outlives the call is in the services.
Made by the runtime for each run, called by the lane, closed by the runtime.

Calls are told to the audit log one by one up to a number, and as sums after it: a guest that calls
in a loop must not fill the operator's disk.
"""

import time
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from toolcell.broker.call import BrokerUsage, Call, Meter, Refusal, payload_size, shown
from toolcell.broker.interface import PARAMS, LogLine
from toolcell.broker.services import BrokerServices
from toolcell.errors import CapabilityFault, InternalError, Status, ToolcellError
from toolcell.events import CapabilityCalled, MonitorIncident, SandboxViolation
from toolcell.policy.envelope import FILE_CAPABILITIES
from toolcell.session import Session

__all__ = ["MAX_TOLD", "InvocationBroker"]

MAX_TOLD = 200
"""Calls of one invocation that are each an event of their own; the rest are told as sums."""

_METERED_ON_THE_WIRE = "http.fetch"
"""Charged by its connection, byte by byte, redirects included; the others by their messages."""

Serve = Callable[[Call, Any], Any]


class _Sums(Struct):
    """Calls that are not told one by one."""

    count: int = 0
    bytes: int = 0
    duration_ms: float = 0.0


class InvocationBroker:
    """Serves the capability calls of `session`. Opens nothing until a call needs it.

    For one guest, so one call at a time; `close` may come from another thread.
    """

    __slots__ = (
        "_closed",
        "_interfaces",
        "_meters",
        "_serve",
        "_services",
        "_session",
        "_untold",
        "last_fault",
        "usage",
    )

    def __init__(self, session: Session, services: BrokerServices) -> None:
        self._session = session
        self._services = services
        self._closed = False
        self._interfaces: dict[str, Any] = {}
        self._meters: dict[str, Meter] = {}
        self._serve: dict[str, Serve] = {}
        self.last_fault: CapabilityFault | None = None
        self._untold: dict[tuple[str, int], _Sums] = {}
        self.usage = BrokerUsage()

    # --- calling ---

    def call(self, capability: str, /, **params: Any) -> Any:
        """Serves `capability`; parameters and results are those of `toolcell.broker.interface`.

        Raises :class:`CapabilityFault` where the guest may go on, and what ended the run
        (:class:`LimitExceeded`, :class:`CallCancelled`) where it may not.
        """
        started_s = time.monotonic()
        session = self._session
        self._count(capability)
        call: Call | None = None
        status = 200
        try:
            meter = self._admissible(capability)
            call = Call(capability, session, meter, self.usage, started_s)
            result = self._run(call, params)
        except ToolcellError as error:
            status = error.status
            self._tell_refusal(error)
            raise
        except Refusal as refusal:
            status = refusal.status
            fault = _fault_of(capability, call, refusal)
            self._tell_refusal(fault)
            raise fault from None
        except Exception as error:
            status = 500
            raise InternalError(
                f"{shown(capability)}: internal error ({type(error).__name__}) "
                f"in call {session.correlation_id}",
                remedy="look for the correlation id in the audit log, and report it",
            ) from error
        finally:
            self._tell(capability, call, status, started_s)
        return result

    def _run(self, call: Call, params: dict[str, Any]) -> Any:
        session = self._session
        session.check()
        call.admit()
        try:
            size = sum(map(payload_size, params.values()))
            if size > session.envelope.max_message_bytes:
                raise call.message_too_large(size)
            checked = msgspec.convert(params, PARAMS[call.capability])
        except (msgspec.ValidationError, UnicodeEncodeError, RecursionError) as error:
            raise call.fault(f"malformed parameters: {error}", Status.MALFORMED) from None
        if call.capability != _METERED_ON_THE_WIRE:
            call.charge(size)
        self.usage.bytes_written += size
        result = self._serve_of(call.capability)(call, checked)
        out = payload_size(result)
        if out > session.envelope.max_message_bytes:
            raise call.message_too_large(out)
        if call.capability != _METERED_ON_THE_WIRE:
            call.charge(out)
        self.usage.bytes_read += out
        session.check()
        return result

    def _admissible(self, capability: str) -> Meter:
        """The meter of `capability`; raises where it is unknown, not granted, or it is too late."""
        if self._closed:
            self._refuse_closed(capability)
        if not self._session.envelope.grants(capability):
            raise self._denial(capability)
        interface = capability.partition(".")[0]
        meter = self._meters.get(interface)
        if meter is None:
            policy = getattr(self._session.envelope.capabilities, interface)
            meter = self._meters[interface] = Meter(policy)
        return meter

    def _denial(self, capability: str) -> CapabilityFault:
        """Why `capability` is not granted, and which switch or grant is missing."""
        envelope = self._session.envelope
        if capability not in PARAMS:
            return CapabilityFault(
                shown(capability),
                "there is no such capability",
                status=Status.NOT_FOUND,
                remedy=f"known ones: {', '.join(sorted(PARAMS))}",
                details={"rule": "unknown"},
            )
        if capability not in envelope.allowed_host_apis:
            missing = "allowed_host_apis"
            remedy = f"add `{capability}` to `allowed_host_apis` in the policy and the manifest"
        else:
            files = capability in FILE_CAPABILITIES
            missing = "allow_file_io" if files else "allow_network_egress"
            remedy = f"set `{missing} = true` in the policy"
        return CapabilityFault(
            capability,
            f"not granted: `{missing}` of the policy does not allow it",
            status=Status.NOT_GRANTED,
            remedy=remedy,
            details={"rule": missing},
        )

    def _refuse_closed(self, capability: str) -> NoReturn:
        self._session.check()
        raise CapabilityFault(
            shown(capability),
            "the run is over",
            status=Status.CANCELLED,
            details={"rule": "closed"},
        )

    # --- the capabilities, made when first used ---

    def _serve_of(self, capability: str) -> Serve:
        serve = self._serve.get(capability)
        if serve is None:
            interface = capability.partition(".")[0]
            made = self._interfaces.get(interface)
            if made is None:
                made = self._interfaces[interface] = self._make(interface)
            serve = self._serve[capability] = getattr(made, _METHODS[capability])
        return serve

    def _make(self, interface: str) -> Any:
        """The capabilities of `interface` for this run, from its own module."""
        policies = self._session.envelope.capabilities
        if interface == "kv":
            from toolcell.broker.kv.capability import KvCapability

            return KvCapability(policies.kv, self._services)
        if interface == "http":
            from toolcell.broker.http.fetch import HttpCapability

            return HttpCapability(self._session, policies.http, self._services)
        if interface == "fs":
            from toolcell.broker.files.capability import FilesCapability

            return FilesCapability(self._session, self._services)
        if interface == "images":
            from toolcell.broker.images.capability import ImagesCapability

            return ImagesCapability(self._services)
        from toolcell.broker.log import LogCapability

        return LogCapability(self._session, self.usage)

    # --- what the runtime reads ---

    @property
    def log_lines(self) -> list[LogLine]:
        """The lines that the tool logged and that were kept, markers included."""
        log = self._interfaces.get("log")
        return [] if log is None else log.lines

    # --- telling ---

    def _count(self, capability: str) -> None:
        usage = self.usage
        usage.calls += 1
        counts = usage.by_capability
        name = capability if capability in PARAMS else "unknown"
        counts[name] = counts.get(name, 0) + 1

    def _tell(self, capability: str, call: Call | None, status: int, started_s: float) -> None:
        size = 0 if call is None else call.size
        duration_ms = (time.monotonic() - started_s) * 1000
        if status != 200:
            self.usage.refused += 1
        if self.usage.calls > MAX_TOLD:
            name = capability if capability in PARAMS else "unknown"
            sums = self._untold.setdefault((name, status), _Sums())
            sums.count += 1
            sums.bytes += size
            sums.duration_ms += duration_ms
            return
        self._session.emit(
            CapabilityCalled,
            name=capability if capability in PARAMS else shown(capability),
            status=status,
            bytes=size,
            duration_ms=duration_ms,
            target="" if call is None else call.target,
        )

    def _tell_refusal(self, error: ToolcellError) -> None:
        """A call against the policy is a violation, a soft one: it was refused, the run goes on."""
        if isinstance(error, CapabilityFault):
            self.last_fault = error
        if error.status != Status.NOT_GRANTED or self.usage.calls > MAX_TOLD:
            return
        self._session.emit(
            SandboxViolation,
            type=f"capability.{error.details.get('rule', 'denied')}",
            detail=error.message,
            severity="soft",
        )

    # --- the end ---

    def close(self) -> None:
        """Frees the run's store, scratch and connections. Idempotent; leaves nothing half done.

        A part that can't be freed is told as an incident: it must not hide how the run ended.
        """
        if self._closed:
            return
        self._closed = True
        for name, interface in self._interfaces.items():
            try:
                interface.close()
            except Exception as error:  # noqa: BLE001 - the rest must be freed all the same
                self._session.emit(
                    MonitorIncident,
                    severity="warning",
                    type="broker.cleanup",
                    message=f"`{name}` of the broker was not freed: {type(error).__name__}",
                )
        for (name, status), sums in self._untold.items():
            self._session.emit(
                CapabilityCalled,
                name=name,
                status=status,
                bytes=sums.bytes,
                duration_ms=sums.duration_ms,
                count=sums.count,
            )


_METHODS = {
    "kv.get": "get",
    "kv.set": "set",
    "kv.delete": "delete",
    "kv.list": "keys",
    "http.fetch": "fetch",
    "fs.readText": "read_text",
    "fs.writeText": "write_text",
    "fs.readBytes": "read_bytes",
    "fs.writeBytes": "write_bytes",
    "fs.list": "entries",
    "fs.remove": "remove",
    "images.resize": "resize",
    "log.emit": "emit",
}


def _fault_of(capability: str, call: Call | None, refusal: Refusal) -> CapabilityFault:
    if call is not None:
        return call.refuse(refusal)
    return CapabilityFault(capability, refusal.message, status=refusal.status)
