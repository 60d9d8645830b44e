"""The lane's own part: settings, the launcher's place, and what it says where it can't work."""

import os

import pytest

from toolcell.errors import ConfigError, InternalError, LaneUnavailable
from toolcell.lane import LaneHome
from toolcell_oops.lane import OopsLane
from toolcell_oops.launcher.locate import locate


def configured(tmp_path, **settings) -> OopsLane:
    lane = OopsLane()
    lane.configure(LaneHome(cache_dir=str(tmp_path), settings=settings))
    return lane


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"secomp": "strict"}, "secomp"),
        ({"seccomp": "loose"}, "loose"),
        ({"seccomp": "/no/such/profile.json"}, "No such file"),
        ({"pool": 65}, "pool"),
        ({"pool": -1}, "pool"),
        ({"cgroup_parent": "../up"}, "cgroup_parent"),
        ({"bases": {"mine": {"path": "/"}}}, "digest"),
        ({"bases": {"mine": {"path": "/", "digest": "short"}}}, "digest"),
    ],
)
def test_a_setting_that_is_unknown_or_wrong_fails_at_the_start(tmp_path, settings, word):
    with pytest.raises(ConfigError, match=word):
        configured(tmp_path, **settings)


def test_a_machine_without_the_launcher_is_told_what_to_install(tmp_path):
    probe = configured(tmp_path, launcher=str(tmp_path / "nowhere")).probe()
    assert not probe.available
    assert "launcher" in probe.features
    assert "cargo build" in probe.remedy


def test_a_launcher_that_does_not_speak_is_not_used(tmp_path):
    probe = configured(tmp_path, launcher="/bin/true").probe()
    assert not probe.available
    assert "does not answer" in probe.reason


def test_a_launcher_that_others_may_write_is_not_started(tmp_path):
    program = tmp_path / "launcher"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)
    with pytest.raises(LaneUnavailable, match="write"):
        locate(str(program))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_launcher_of_somebody_else_is_not_started(tmp_path):
    program = tmp_path / "launcher"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    os.chown(program, 12345, -1)
    with pytest.raises(LaneUnavailable, match="somebody else"):
        locate(str(program))


def test_a_closed_lane_starts_nothing(tmp_path):
    lane = configured(tmp_path)
    lane.close()
    lane.close()
    with pytest.raises(InternalError, match="closed"):
        lane._running()
    with pytest.raises(InternalError, match="closed"):
        lane._workspace_of_open()


def test_an_interrupted_lane_prepares_nothing_more_and_closes(tmp_path):
    lane = configured(tmp_path)
    lane._workspace_of_open()
    lane.interrupt()
    with pytest.raises(InternalError, match="closed"):
        lane._workspace_of_open()
    lane.close()
    assert list((tmp_path / "tools").iterdir()) == []
