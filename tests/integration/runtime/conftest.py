"""The lab: runtimes that are closed when the test is over."""

import pytest
from runtime_lab import Lab, block, echo


@pytest.fixture
def lab(installation):
    made: list[Lab] = []

    def make(handlers=None, **options) -> Lab:
        made.append(Lab(installation, handlers or {"go": echo, "block": block}, **options))
        return made[-1]

    yield make
    for each in made:
        each.runtime.close()
