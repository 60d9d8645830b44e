"""The probe: it finds what works here, and each control that is missing, because it tries."""

from pathlib import Path

import pytest
from oops_launcher import program

from toolcell_oops.base import BaseStore
from toolcell_oops.launcher.client import Launcher
from toolcell_oops.plan import Filter
from toolcell_oops.probe import probe_lane
from toolcell_oops.seccomp import compile_profile, load_profile

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def weakenable():
    launcher = Launcher(program(), ["--weaken"], cgroup_parent="toolcell-probe-test")
    yield launcher
    launcher.close()


@pytest.fixture
def bases(settings, tmp_path):
    return BaseStore(Path(settings["base_dir"]), {}, None)


@pytest.fixture(scope="module")
def strict():
    profile = load_profile("strict")
    return Filter("strict", profile.digest(), compile_profile(profile))


class Without:
    """The launcher, with controls left out of every plan."""

    def __init__(self, launcher, *controls):
        self._launcher = launcher
        self._controls = list(controls)
        self.hello = launcher.hello

    def spawn(self, plan, descriptors, waker):
        return self._launcher.spawn({**plan, "without": self._controls}, descriptors, waker)

    def __getattr__(self, name):
        return getattr(self._launcher, name)


def test_everything_works_here(lane):
    probe = lane.probe()
    assert probe.available, probe.reason
    assert probe.features["memory_mb"] == probe.features["filesystem=ephemeral"] == ""
    assert probe.features["network=full"]
    assert probe.features["filesystem=host"]
    assert probe.features["deterministic"]


@pytest.mark.parametrize(
    ("control", "features"),
    [
        ("seccomp", {"seccomp", "io_uring", "receipt"}),
        ("landlock", {"landlock", "receipt"}),
        ("no_new_privs", {"receipt"}),
        ("memory", {"memory_mb", "receipt"}),
        ("pids", {"max_processes", "receipt"}),
        ("net", {"receipt"}),
        ("pid", {"pid", "receipt"}),
    ],
)
def test_a_control_that_is_missing_is_found_by_trying(weakenable, bases, strict, control, features):
    probe = probe_lane(Without(weakenable, control), bases, strict)
    assert not probe.available
    broken = {name for name, why in probe.features.items() if why}
    assert features <= broken
