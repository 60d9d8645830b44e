"""A lane that all attacks share: it must stand every one of them."""

import pytest

from toolcell.lane import LaneHome
from toolcell_oops.lane import OopsLane


@pytest.fixture(scope="module")
def lane(request, tmp_path_factory):
    cache = request.config.cache.mkdir("oops")
    cache.chmod(0o700)
    folder = tmp_path_factory.mktemp("lane")
    made = OopsLane()
    made.configure(LaneHome(cache_dir=str(folder), settings={"base_dir": str(cache / "bases")}))
    yield made
    made.close()
