"""Broker services in a folder of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_runs import close_runs

from toolcell.broker import BrokerServices


@pytest.fixture
def services(tmp_path: Path) -> Iterator[BrokerServices]:
    """Services whose state is below the test's folder."""
    made = BrokerServices(kv_dir=tmp_path / "kv", scratch_dir=tmp_path / "scratch")
    yield made
    close_runs()
    made.close()
