"""A lane for tests that look at cells from outside."""

import pytest

from toolcell.lane import LaneHome
from toolcell_oops.lane import OopsLane


@pytest.fixture
def settings(request):
    """Base trees that all tests share: making one takes seconds."""
    cache = request.config.cache.mkdir("oops")
    cache.chmod(0o700)
    return {"base_dir": str(cache / "bases")}


@pytest.fixture
def lane(settings, tmp_path):
    made = OopsLane()
    made.configure(LaneHome(cache_dir=str(tmp_path), settings=settings))
    yield made
    made.close()
