"""Names to addresses, under a deadline.

Owns the threads that look names up. `getaddrinfo` can't be given a deadline and can't be stopped,
so it runs in a thread of its own and the call stops waiting for it. Such a thread ends by itself
when the machine's resolver gives up (seconds); their number is capped, so that a dead name server
costs a fixed amount.
"""

import threading

from toolcell.broker.call import Call, Refusal
from toolcell.broker.services import Lookup
from toolcell.errors import Status

__all__ = ["MAX_ADDRESSES", "MAX_LOOKUPS", "Resolver"]

MAX_LOOKUPS = 16
"""Lookups under way at the same time, the abandoned ones included."""
MAX_ADDRESSES = 16
"""Addresses of one name that are looked at; a name with more is cut."""

_POLL_S = 0.05


class Resolver:
    """Runs `lookup` off the caller's thread. Keeps no answers: each one is checked when used."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._places = threading.BoundedSemaphore(MAX_LOOKUPS)

    def resolve(self, host: str, call: Call) -> list[str]:
        """The addresses of `host`, at least one. Raises at the call's deadline or cancellation."""
        while not self._places.acquire(timeout=min(_POLL_S, call.remaining_s())):
            pass
        answer = _Answer()
        thread = threading.Thread(
            target=self._run, args=(host, answer), name="toolcell-lookup", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            self._places.release()
            raise
        forget = call.session.cancel.on_cancel(answer.done.set)
        try:
            answer.done.wait(call.remaining_s())
        finally:
            forget()
        call.remaining_s()
        if not answer.addresses:
            raise Refusal(
                "dns", f"`{host}` can't be resolved: {answer.reason}", status=Status.UPSTREAM
            )
        return answer.addresses[:MAX_ADDRESSES]

    def _run(self, host: str, answer: "_Answer") -> None:
        try:
            answer.addresses = self._lookup(host)
        except OSError as error:
            answer.reason = error.strerror or "the lookup failed"
        except UnicodeError:
            answer.reason = "it is not a host name"
        finally:
            self._places.release()
            answer.done.set()


class _Answer:
    """Where a lookup leaves what it found. Nobody reads one whose waiter has gone."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.addresses: list[str] = []
        self.reason = "it has no address"
