"""A small hostile internet for each test."""

from collections.abc import Iterator

import pytest
from loopback import Web


@pytest.fixture
def web() -> Iterator[Web]:
    """Names and servers on loopback, and a broker that is granted them."""
    made = Web()
    yield made
    made.close()
