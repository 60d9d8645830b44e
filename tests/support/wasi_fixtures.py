"""Fixtures of the wasi lane: the lane under test and the guests that it runs."""

import pytest
from wasi_cell import Artifact
from wasi_guests import python_guest

from toolcell.lane import LaneHome
from toolcell.policy.envelope import CAPABILITIES
from toolcell_wasi.lane import WasiLane


@pytest.fixture(scope="session")
def wasi_lane(request):
    """One lane for all tests. Its cache outlives the session, as in an installation."""
    folder = request.config.cache.mkdir("wasi-aot")
    folder.chmod(0o700)
    lane = WasiLane()
    lane.configure(LaneHome(cache_dir=str(folder)))
    yield lane
    lane.close()


@pytest.fixture(scope="session")
def prepare(wasi_lane):
    """Prepares the bytes of a component, once for each."""
    known = {}

    def prepared(wasm, **fields):
        key = (wasm, repr(fields))
        if key not in known:
            known[key] = wasi_lane.prepare(Artifact(wasm, **fields))
        return known[key]

    return prepared


@pytest.fixture(scope="session")
def hostile(request, prepare):
    """The hostile Python tool, which requests every capability that there is."""
    folder = request.config.cache.mkdir("wasi-guests")
    return prepare(python_guest(folder), capabilities=tuple(sorted(CAPABILITIES)))
