"""Files of the home that somebody has prepared: they are refused, soon, with a sentence."""

import os
import time
import tomllib

import pytest

from toolcell.broker.http.credentials import CredentialStore
from toolcell.errors import ConfigError
from toolcell.registry.scope_keys import ScopeFile
from toolcell.trust.store import TrustStore

LONG_KEY = b"a" + b".a" * 60_000 + b" = 1"
"""A minute of the parser's time, were it given to it."""
READERS = {
    "trust": lambda path: TrustStore.load(path),
    "scopes": lambda path: ScopeFile(path).current(),
    "secrets": lambda path: CredentialStore(path).find("any"),
}


@pytest.fixture(params=sorted(READERS))
def read(request, tmp_path):
    """`read(content)`: what a reader of one of the files makes of it."""
    path = tmp_path / f"{request.param}.toml"

    def run(content=None):
        if content is not None:
            path.write_bytes(content)
            path.chmod(0o600)
        return READERS[request.param](path)

    run.path = path
    return run


@pytest.mark.parametrize(
    "content",
    [
        LONG_KEY,
        b"x = {y = '''z'''', " + LONG_KEY + b"}",
        b"x = " + b"[" * 100_000,
        b"x = " + b"{a=" * 50_000,
        b"x = " + b"9" * 100_000,
        b"x = nan",
        b"\xff\xfe",
        b"x = 1\nx = 2",
        b"x = 1\0",
    ],
    ids=range(9),
)
def test_toml_that_would_stall_or_end_the_reader_is_refused(read, content):
    before = time.process_time()
    with pytest.raises(ConfigError, match=r"not valid|can't be used"):
        read(content)
    assert time.process_time() - before < 5


@pytest.mark.slow
def test_a_long_key_stalls_the_parser_itself():
    """Why the key is looked at first: the time grows with the square of its parts."""

    def took(parts):
        text = "a" + ".a" * parts + " = 1"
        before = time.process_time()
        tomllib.loads(text)
        return time.process_time() - before

    took(500)
    assert took(8000) > 40 * min(took(500) for _ in range(5)), "16 times the parts"


@pytest.mark.parametrize(
    "make",
    [
        lambda path: os.mkfifo(path, 0o600),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.mkdir(),
    ],
    ids=["pipe", "link", "folder"],
)
def test_what_is_no_plain_file_is_refused_and_holds_nobody_up(read, make):
    make(read.path)
    with pytest.raises(ConfigError, match="can't be read"):
        read()


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
def test_a_file_that_others_may_write_is_refused(read, mode):
    read.path.write_bytes(b"")
    read.path.chmod(mode)
    with pytest.raises(ConfigError, match="others may"):
        read()
