"""What every test shares: the rule on skips, and a private home."""

import os
from pathlib import Path

import pytest

from toolcell.home import HOME_VARIABLE

REQUIRE_ALL = os.environ.get("TOOLCELL_REQUIRE_ALL") == "1"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Turns a skip into a failure where TOOLCELL_REQUIRE_ALL=1: CI has every feature."""
    outcome = yield
    report = outcome.get_result()
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but TOOLCELL_REQUIRE_ALL=1: {report.longrepr}"


@pytest.fixture(autouse=True)
def private_home(tmp_path_factory, monkeypatch) -> Path:
    """No test touches the user's own home folder of toolcell."""
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    return home
