"""The policy book: names and files, memory, freshness, threads."""

import os
import threading

import pytest

from toolcell.errors import ConfigError, PolicyDenied
from toolcell.policy.book import PolicyBook
from toolcell.policy.compose import within
from toolcell.policy.envelope import PolicyEnvelope

DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(capabilities=("log.emit", "kv.get"), policy_class="compute")


def test_without_a_policy_a_tool_gets_the_shipped_class_that_it_names(home, manifest):
    ruling = PolicyBook(home).ruling(manifest, DIGEST)
    assert (ruling.policy, ruling.origin) == ("compute", "shipped")
    assert ruling.envelope.allowed_host_apis == ("log.emit",)
    assert [denial.grant for denial in ruling.denied] == ["kv.get"]


def test_a_tool_does_not_get_an_operators_class_by_naming_it(home, make_manifest, write_policy):
    write_policy("own.toml", "[classes.own]\nmemory_mb = 999\n")
    book = PolicyBook(home)
    manifest = make_manifest(policy_class="own")
    with pytest.raises(PolicyDenied, match="an operator did not let manifests choose it") as caught:
        book.ruling(manifest, DIGEST)
    assert "manifest_may_choose" in caught.value.remedy
    assert book.ruling(manifest, DIGEST, "own").envelope.memory_mb == 999


def test_an_operator_may_offer_a_class_to_manifests(home, make_manifest, write_policy):
    write_policy("own.toml", "[classes.own]\nmemory_mb = 999\nmanifest_may_choose = true\n")
    ruling = PolicyBook(home).ruling(make_manifest(policy_class="own"), DIGEST)
    assert (ruling.envelope.memory_mb, ruling.origin) == (999, "policies/own.toml")


def test_a_class_that_does_not_exist_is_refused_and_nothing_takes_its_place(home, make_manifest):
    book = PolicyBook(home)
    with pytest.raises(PolicyDenied, match="`gone`; it does not exist here"):
        book.ruling(make_manifest(policy_class="gone"), DIGEST)
    with pytest.raises(ConfigError, match="no policy class `comptue`") as caught:
        book.ruling(make_manifest(), DIGEST, "comptue")
    assert "did you mean `compute`?" in caught.value.remedy


def test_a_mask_grants_nothing(home, manifest):
    with pytest.raises(ConfigError, match="`no-network` is a mask"):
        PolicyBook(home).ruling(manifest, DIGEST, "no-network")


def test_a_file_is_a_policy_by_its_path(home, manifest, tmp_path, monkeypatch):
    path = tmp_path / "policy.toml"
    path.write_text('name = "mine"\nmemory_mb = 77\nallowed_host_apis = ["kv.get"]\n')
    book = PolicyBook(home)
    for policy in (path, str(path)):
        ruling = book.ruling(manifest, DIGEST, policy)
        assert (ruling.policy, ruling.envelope.memory_mb) == ("mine", 77)
    monkeypatch.chdir(tmp_path)
    assert book.ruling(manifest, DIGEST, "policy.toml").envelope.memory_mb == 77
    other = tmp_path / "other"
    other.mkdir()
    (other / "policy.toml").write_text("memory_mb = 78\n")
    monkeypatch.chdir(other)
    assert book.ruling(manifest, DIGEST, "policy.toml").envelope.memory_mb == 78


def test_a_file_with_several_classes_needs_a_name(home, manifest, tmp_path):
    path = tmp_path / "two.toml"
    path.write_text("[classes.a]\nmemory_mb = 1\n[classes.b]\nextends = 'a'\ncpu_time_ms = 1\n")
    book = PolicyBook(home)
    with pytest.raises(ConfigError, match="it has 2 classes") as caught:
        book.ruling(manifest, DIGEST, path)
    assert f"{path}#a" in caught.value.remedy
    assert book.ruling(manifest, DIGEST, f"{path}#b").envelope.memory_mb == 1
    with pytest.raises(ConfigError, match="has no class `compute`"):
        book.ruling(manifest, DIGEST, f"{path}#compute")


def test_a_named_files_classes_hide_those_of_the_home_but_not_the_shipped(
    home, manifest, tmp_path, write_policy
):
    write_policy("own.toml", "[classes.own]\nmemory_mb = 1\n[masks.m]\nfuel = 1\n")
    path = tmp_path / "own.toml"
    path.write_text("[classes.own]\nmemory_mb = 2\n[masks.m]\nfuel = 2\n")
    book = PolicyBook(home)
    assert book.ruling(manifest, DIGEST, "own", ["m"]).envelope.fuel == 1
    assert book.ruling(manifest, DIGEST, path, ["m"]).envelope.fuel == 2
    assert book.ruling(manifest, DIGEST, path).envelope.memory_mb == 2
    bad = tmp_path / "bad.toml"
    bad.write_text('name = "compute"\nmemory_mb = 9999\n')
    with pytest.raises(ConfigError, match="`compute` is taken already"):
        book.ruling(manifest, DIGEST, bad)


def test_an_envelope_of_the_host_program_is_held_to_the_ranges_of_a_file(home, manifest):
    book = PolicyBook(home)
    assert book.ruling(manifest, DIGEST, PolicyEnvelope(memory_mb=5)).envelope.memory_mb == 5
    with pytest.raises(ConfigError, match="memory_mb"):
        book.ruling(manifest, DIGEST, PolicyEnvelope(memory_mb=-5))


@pytest.mark.parametrize(
    "masks",
    [
        ["no-files", "tiny", "observer"],
        ["no-files,tiny|observer"],
        "observer,tiny,no-files",
        ["observer", {"memory_mb": 32, "capabilities": {"kv": {"max_keys": 3}}}, "no-files"],
    ],
)
def test_masks_select_several_at_once_and_the_result_is_their_intersection(
    home, manifest, write_policy, masks
):
    write_policy(
        "m.toml", "[masks.tiny]\nmemory_mb = 32\n[masks.tiny.capabilities.kv]\nmax_keys = 3\n"
    )
    book = PolicyBook(home)
    wide = book.ruling(manifest, DIGEST, "scratch").envelope
    narrowed = book.ruling(manifest, DIGEST, "scratch", masks).envelope
    assert within(narrowed, wide)
    assert (narrowed.memory_mb, narrowed.capabilities.kv.max_keys) == (32, 3)
    assert narrowed.allowed_host_apis == ("kv.get", "log.emit")


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("no-netwrok", "no mask or class `no-netwrok`"),
        ("", "no mask or class ``"),
        ({"memory": 3}, "mask 1 of the call: unknown field `memory`"),
        ({"memory_mb": "3"}, "Expected `int`, got `str`"),
        ({"memory_mb": object()}, "JSON-ready"),
        ({"allowed_host_apis": ["kv.get"] * 20_000}, "the limit is 65536"),
    ],
)
def test_a_mask_that_is_wrong_is_refused_never_skipped(home, manifest, mask, message):
    with pytest.raises(ConfigError, match=message):
        PolicyBook(home).ruling(manifest, DIGEST, "scratch", [mask])


def test_the_number_of_masks_is_limited(home, manifest):
    with pytest.raises(ConfigError, match="17 masks; the limit is 16"):
        PolicyBook(home).ruling(manifest, DIGEST, "scratch", [",".join(["no-files"] * 17)])


def test_a_ruling_is_made_once_for_an_artifact_policy_and_masks(home, manifest):
    book = PolicyBook(home)
    first = book.ruling(manifest, DIGEST, "scratch", ["no-files"])
    assert book.ruling(manifest, DIGEST, "scratch", ["no-files"]) is first
    assert book.ruling(manifest, DIGEST, "scratch", "no-files") is first
    assert book.ruling(manifest, "sha256:other", "scratch", ["no-files"]) is not first


def test_the_memory_of_rulings_is_bounded(home, manifest):
    book = PolicyBook(home, max_rulings=4)
    for number in range(1, 50):
        book.ruling(manifest, DIGEST, "scratch", [{"fuel": number}])
    assert len(book._state[1]) == 4


def test_a_changed_file_is_noticed_by_the_next_due_check(home, manifest, write_policy):
    write_policy("own.toml", "[classes.own]\nmemory_mb = 100\n")
    book = PolicyBook(home, check_every_ms=0)
    before = book.ruling(manifest, DIGEST, "own")
    write_policy("own.toml", "[classes.own]\nmemory_mb = 200\n")
    after = book.ruling(manifest, DIGEST, "own")
    assert (before.envelope.memory_mb, after.envelope.memory_mb) == (100, 200)
    assert before.digest != after.digest


def test_a_change_within_one_tick_and_of_the_same_size_is_noticed(home, manifest, write_policy):
    path = write_policy("own.toml", "[classes.own]\nmemory_mb = 100\n")
    book = PolicyBook(home, check_every_ms=0)
    for figure in (200, 300, 400):
        with path.open("r+") as file:  # in place: the same inode, and maybe the same time stamp
            file.write(f"[classes.own]\nmemory_mb = {figure}\n")
        assert book.ruling(manifest, DIGEST, "own").envelope.memory_mb == figure


def test_a_change_is_not_looked_for_before_the_check_is_due(home, manifest, write_policy):
    write_policy("own.toml", "[classes.own]\nmemory_mb = 100\n")
    book = PolicyBook(home, check_every_ms=3_600_000)
    book.ruling(manifest, DIGEST, "own")
    write_policy("own.toml", "[classes.own]\nmemory_mb = 200\n")
    assert book.ruling(manifest, DIGEST, "own").envelope.memory_mb == 100
    assert book.reload()
    assert book.ruling(manifest, DIGEST, "own").envelope.memory_mb == 200


def test_a_removed_class_is_gone_and_its_rulings_too(home, manifest, write_policy):
    path = write_policy("own.toml", "[classes.own]\nmemory_mb = 100\n")
    book = PolicyBook(home, check_every_ms=0)
    book.ruling(manifest, DIGEST, "own")
    path.unlink()
    with pytest.raises(ConfigError, match="no policy class `own`"):
        book.ruling(manifest, DIGEST, "own")


def test_a_file_that_was_broken_stops_every_call_until_it_is_mended(home, manifest, write_policy):
    write_policy("own.toml", "[classes.own]\n")
    book = PolicyBook(home, check_every_ms=3_600_000)
    book.ruling(manifest, DIGEST, "compute")
    write_policy("own.toml", "[classes.own]\nmemory = 1\n")
    with pytest.raises(ConfigError, match="unknown field `memory`"):
        book.reload()
    for _ in range(2):
        with pytest.raises(ConfigError, match="unknown field `memory`"):
            book.ruling(manifest, DIGEST, "compute")
    write_policy("own.toml", "[classes.own]\nmemory_mb = 1\n")
    assert book.ruling(manifest, DIGEST, "own").envelope.memory_mb == 1


def test_a_named_file_that_changed_is_read_again(home, manifest, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("memory_mb = 10\n")
    book = PolicyBook(home, check_every_ms=0)
    assert book.ruling(manifest, DIGEST, path).envelope.memory_mb == 10
    path.write_text("memory_mb = 11\n")
    assert book.ruling(manifest, DIGEST, path).envelope.memory_mb == 11


def test_the_digest_key_belongs_to_the_home(home, manifest):
    one, other = PolicyBook(home), PolicyBook(home)
    assert one.ruling(manifest, DIGEST).digest == other.ruling(manifest, DIGEST).digest
    assert PolicyBook().ruling(manifest, DIGEST).digest != one.ruling(manifest, DIGEST).digest
    assert home.policy_key.stat().st_mode & 0o777 == 0o600


def test_threads_that_ask_while_files_change_get_one_text_or_the_other(
    home, manifest, write_policy
):
    """A ruling is never made of two texts, and the last text is the one that stays."""

    def text(figure: int) -> str:
        return f"[classes.own]\nmemory_mb = {figure}\ncpu_time_ms = {figure}\n"

    write_policy("own.toml", text(1))
    book = PolicyBook(home, check_every_ms=0)
    stop, wrong, seen = threading.Event(), [], set()

    def ask() -> None:
        while not stop.is_set():
            envelope = book.ruling(manifest, DIGEST, "own").envelope
            seen.add(envelope.memory_mb)
            if envelope.memory_mb != envelope.cpu_time_ms:
                wrong.append(envelope)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for figure in range(2, 12):
        write_policy("own.toml", text(figure))
        os.sched_yield()
    stop.set()
    for thread in threads:
        thread.join(timeout=10)
    assert wrong == []
    assert seen <= set(range(1, 12))
    assert book.ruling(manifest, DIGEST, "own").envelope.memory_mb == 11
