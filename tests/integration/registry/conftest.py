"""A registry that trusts acme."""

from collections.abc import Iterator

import pytest
from artifact_maker import registry_of, trusting_home

from toolcell.home import Home
from toolcell.registry import Registry


@pytest.fixture
def home(private_home) -> Home:
    """A home that trusts acme's key."""
    return trusting_home(private_home)


@pytest.fixture
def registry(home) -> Iterator[Registry]:
    """Its registry."""
    with registry_of(home) as opened:
        yield opened
