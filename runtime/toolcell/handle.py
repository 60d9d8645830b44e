"""A call that runs by itself: what `Runtime.start` gives back.

Owns nothing but the view of one call. The cell, its place and its events belong to the pipeline,
whether anybody waits for the handle or not.
"""

from concurrent.futures import Future
from typing import Literal

from toolcell.errors import CallCancelled
from toolcell.result import Result
from toolcell.session import CancelToken

__all__ = ["Handle"]


class Handle:
    """One call that was started. Thread-safe."""

    def __init__(self, future: "Future[Result]", cancel: CancelToken) -> None:
        self._future = future
        self._cancel = cancel

    @property
    def status(self) -> Literal["queued", "running", "done"]:
        """Where the call is now."""
        if self._future.done():
            return "done"
        return "running" if self._future.running() else "queued"

    def kill(self, reason: str = "by the caller") -> bool:
        """Ends the call with status 499 and `reason`. False where it had ended, or been killed.

        Returns at once; :meth:`wait` tells when the cell is gone.
        """
        if self._future.done():
            return False
        return self._cancel.cancel(CallCancelled(f"killed: {reason}", details={"reason": reason}))

    def wait(self, timeout_ms: int | None = None) -> Result:
        """The result, as soon as it is there. `TimeoutError` after `timeout_ms`: the call goes on.

        None waits as long as it takes, which the call's own deadline bounds.
        """
        try:
            return self._future.result(None if timeout_ms is None else timeout_ms / 1000)
        except TimeoutError:
            raise TimeoutError(f"the call is still {self.status} after {timeout_ms} ms") from None
