"""Preparing takes time: who waits for it, how long, and what ends it."""

import threading

from installation import fake_archive
from runtime_lab import echo, until

from toolcell.errors import (
    InternalError,
)
from toolcell.fake_lane import FakeLane
from toolcell.runtime import Runtime


class SlowLane(FakeLane):
    """Preparing takes until `ready` is set, or until the lane is interrupted."""

    def __init__(self, handlers):
        super().__init__(handlers)
        self.ready = threading.Event()
        self.interrupted = False

    def prepare(self, artifact):
        self.ready.wait()
        if self.interrupted:
            raise InternalError("interrupted")
        return super().prepare(artifact)

    def interrupt(self):
        self.interrupted = True
        self.ready.set()


def test_the_caller_s_timeout_covers_preparing_which_goes_on_for_the_next(installation):
    installation.publish(fake_archive())
    lane = SlowLane({("fake", "go"): echo})
    with Runtime(installation.home.root, lanes={"wasi": lane}) as runtime:
        result = runtime.invoke("fake", "go", timeout_ms=30)
        assert (result.status, result.error.details["limit"]) == (408, "timeout_ms")
        assert "prepare" in result.error.remedy
        lane.ready.set()
        assert runtime.invoke("fake", "go", timeout_ms=5000).ok
    assert lane.prepared == 1


def test_closing_does_not_wait_for_what_is_being_prepared(installation):
    installation.publish(fake_archive())
    lane = SlowLane({("fake", "go"): echo})
    runtime = Runtime(installation.home.root, lanes={"wasi": lane})
    handle = runtime.start("fake", "go")
    until(lambda: handle.status == "running")
    runtime.close()
    assert handle.wait(0).status in {499, 500}
    assert lane.closed


def test_a_timeout_of_the_caller_is_told_as_such(lab):
    result = lab().runtime.invoke("fake", "block", timeout_ms=40)
    assert result.status == 408
    assert result.error.details["limit"] == "timeout_ms"
    assert "timeout_ms" in result.error.remedy
