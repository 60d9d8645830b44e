"""A runtime over the fake lane with one tool, for tests of what is around a cell."""

import threading
import time

import msgspec
from installation import fake_archive

from toolcell.fake_lane import FakeLane
from toolcell.runtime import Runtime
from toolcell.telemetry.memory import MemorySink

FIVE_SECONDS = 5


def echo(value, _session):
    return value


def block(_value, session):
    session.wait(60)


class Lab:
    """A runtime over a fake lane with one tool, and what it told."""

    def __init__(self, installation, handlers, **options):
        self.installation = installation
        self.sink = MemorySink()
        self.lane = FakeLane({("fake", name): handler for name, handler in handlers.items()})
        installation.publish(fake_archive(methods=tuple(handlers)))
        self.runtime = Runtime(
            installation.home.root, lanes={"wasi": self.lane}, sinks=(self.sink,), **options
        )

    def told(self) -> list[str]:
        return [msgspec.to_builtins(event)["event"] for event in self.sink.events()]


def in_threads(count, target):
    threads = [threading.Thread(target=target, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    return threads


def until(condition) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + FIVE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        pause.wait(0.002)
