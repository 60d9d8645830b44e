"""The home folder: whose it must be, and what to do where it is not."""

import pytest

from toolcell.errors import ConfigError
from toolcell.home import Home


def test_a_home_of_somebody_else_is_not_to_be_taken_from_him():
    with pytest.raises(ConfigError, match=r"belongs to another user \(uid 0\)") as caught:
        _home_as(12345)
    assert "chown" not in caught.value.remedy
    assert "$TOOLCELL_HOME" in caught.value.remedy


def test_a_home_that_others_may_write_to_is_refused_with_its_mode(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match=r"others may write .* \(mode 0777\)") as caught:
        Home(tmp_path)
    assert f"chmod 700 {tmp_path}" in caught.value.remedy


def _home_as(uid: int) -> Home:
    """The root folder as a home, for a process of the user `uid`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.geteuid", lambda: uid)
        return Home("/")
