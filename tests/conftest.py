"""What every test shares: the rule on skips, and a private home."""

import os
from pathlib import Path

import pytest
from installation import EXAMPLES, GUESTS, Installation, built_archive

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


@pytest.fixture(scope="session")
def new_home(request, tmp_path_factory):
    """Makes a home folder whose compiled code and base trees are shared by all, and kept between
    sessions.

    Compiling a Python tool takes five seconds on two cores, and a hundred homes need the same few.
    A test of the cache, or of what happens before there is one, makes a folder of its own.
    """
    compiled = request.config.cache.mkdir("wasi-aot")
    compiled.chmod(0o700)
    bases = request.config.cache.mkdir("oops") / "bases"
    bases.mkdir(mode=0o700, exist_ok=True)

    def make() -> Path:
        home = tmp_path_factory.mktemp("home")
        home.chmod(0o700)
        (home / "cache").mkdir(mode=0o700)
        (home / "cache" / "wasi").symlink_to(compiled)
        (home / "cache" / "oops").mkdir(mode=0o700)
        (home / "cache" / "oops" / "bases").symlink_to(bases)
        return home

    return make


@pytest.fixture(autouse=True)
def private_home(new_home, monkeypatch) -> Path:
    """No test touches the user's own home folder of toolcell."""
    home = new_home()
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    return home


@pytest.fixture
def installation(private_home) -> Installation:
    """A home with one trusted publisher and nothing published."""
    return Installation(private_home)


@pytest.fixture(scope="session")
def archive_of(request):
    """`archive_of("csv-profile")`: the unsigned artifact of an example or of a test guest.

    Built once per source; a build takes five seconds.
    """
    cache = request.config.cache.mkdir("tools")

    def archive(name: str) -> bytes:
        folder = EXAMPLES / name
        return built_archive(folder if folder.is_dir() else GUESTS / name, cache)

    return archive


@pytest.fixture(scope="session")
def oops_archive_of(request):
    """As `archive_of`, built for the oops lane: described by itself in a cell."""
    from oops_tools import python_archive

    cache = request.config.cache.mkdir("oops")
    cache.chmod(0o700)

    def archive(name: str) -> bytes:
        folder = EXAMPLES / name
        return python_archive(folder if folder.is_dir() else GUESTS / name, cache)

    return archive
