"""What the policy costs a call: a remembered ruling, a new one, and the choice of the lane."""

import itertools

import pytest

from toolcell.artifact.manifest import Manifest, Method
from toolcell.isolation import FEATURES, select_isolation
from toolcell.lane import Probe
from toolcell.policy.book import PolicyBook

DIGEST = "sha256:" + "0" * 64
MANIFEST = Manifest(
    id="00000000-0000-4000-8000-000000000000",
    name="sample",
    version="1.0.0",
    entry_point="tool.wasm",
    methods={"run": Method(input={}, output={})},
    files={"tool.wasm": "0" * 64},
    capabilities=("kv.get", "log.emit"),
)


@pytest.fixture
def book(private_home):
    from toolcell.home import Home

    return PolicyBook(Home(private_home))


@pytest.mark.parametrize("masks", [(), ("no-network",), ({"memory_mb": 32},)], ids=str)
def test_a_remembered_ruling(benchmark, book, masks):
    book.ruling(MANIFEST, DIGEST, "scratch", masks)
    benchmark(book.ruling, MANIFEST, DIGEST, "scratch", masks)


def test_a_new_ruling(benchmark, book):
    number = itertools.count()
    benchmark(lambda: book.ruling(MANIFEST, str(next(number)), "scratch", ("no-network",)))


def test_a_look_at_the_policy_files(benchmark, book, private_home):
    folder = private_home / "policies"
    folder.mkdir(mode=0o700)
    for name in ("a", "b", "c"):
        (folder / f"{name}.toml").write_text(f"[classes.{name}]\n")
        (folder / f"{name}.toml").chmod(0o600)
    book.reload()
    benchmark(book.reload)


def test_the_choice_of_a_lane(benchmark, book):
    envelope = book.ruling(MANIFEST, DIGEST, "scratch").envelope
    lanes = {"wasi": (1, Probe(available=True, features=dict.fromkeys(FEATURES, "")))}
    benchmark(select_isolation, MANIFEST, "untrusted", envelope, lanes)
