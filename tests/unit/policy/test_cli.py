"""`toolcell policy`: what it prints, and its exit statuses."""

import json

import click
import msgspec
import pytest
from click.testing import CliRunner

from toolcell.artifact.build import build_artifact, sign_artifact
from toolcell.cli import main
from toolcell.policy.fields import FIELDS
from toolcell.registry import Registry
from toolcell.trust.edit import add_key
from toolcell.trust.keys import SigningKey


@pytest.fixture
def run(capsys):
    """Runs the command as the shell does; gives exit status, stdout and stderr."""

    def call(*arguments: str):
        try:
            main(["policy", *arguments])
            status = 0
        except SystemExit as exit_:
            status = exit_.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def manifest_file(make_manifest, tmp_path):
    path = tmp_path / "manifest.json"
    manifest = make_manifest(
        name="web-digest", capabilities=("http.fetch", "kv.get"), policy_class="fetcher"
    )
    path.write_bytes(manifest.to_bytes())
    return str(path)


def test_show_lists_shipped_and_own_classes_with_their_origin(run, write_policy):
    write_policy("own.toml", "[classes.own]\ndescription = 'Ours.'\n[masks.small]\nfuel = 1\n")
    status, out, _ = run("show")
    assert status == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "shipped" in rows["compute"]
    assert "policies/own.toml" in rows["own"]
    assert "Ours." in rows["own"]
    assert "policies/own.toml" in rows["small"]


def test_show_prints_every_field_of_a_class(run):
    status, out, _ = run("show", "fetcher")
    assert status == 0
    shown = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert set(FIELDS) <= shown


def test_show_json_is_the_envelope(run):
    status, out, _ = run("show", "compute", "--json")
    assert status == 0
    shown = json.loads(out)
    assert shown["name"] == "compute"
    assert shown["envelope"]["memory_mb"] == 512


def test_show_prints_what_a_mask_names(run):
    status, out, _ = run("show", "no-network", "--json")
    assert (status, json.loads(out)["mask"]) == (0, {"allow_network_egress": False})


def test_show_of_an_unknown_name_is_wrong_usage_with_the_nearest_name(run):
    status, _, err = run("show", "fetchr")
    assert status == 2
    assert "did you mean `fetcher`?" in err


def test_check_lists_every_problem_and_exits_with_2(run, tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(
        "[classes.x]\nfule = 1\nmemory_mb = 0\n[classes.y]\nnetwork = 'full'\n"
        "allow_network_egress = true\nallowed_host_apis = ['http.fetch']\n"
    )
    status, out, _ = run("check", str(path))
    assert status == 2
    assert "3 problems" in out
    assert "did you mean `fuel`?" in out
    assert "`memory_mb` = 0" in out
    assert "network=full has no approval" in out
    assert "note: class `y`: `http.fetch` is granted, and `domains` is empty" in out
    status, out, _ = run("check", str(path), "--json")
    assert (status, len(json.loads(out)["files"][0]["problems"])) == (2, 3)


def test_check_of_a_good_file_exits_with_0(run, tmp_path):
    path = tmp_path / "p.toml"
    path.write_text("memory_mb = 5\n")
    status, out, _ = run("check", str(path))
    assert (status, "ok (1 class, 0 masks)" in out) == (0, True)


def test_check_without_a_file_looks_at_the_homes_own_even_where_they_are_broken(run, write_policy):
    write_policy("a.toml", "[classes.a]\nfule = 1\n")
    write_policy("b.toml", "[classes.b]\nextends = 'a'\n")
    status, out, _ = run("check")
    assert status == 2
    assert "a.toml: 1 problem (1 class, 0 masks)" in out
    assert "b.toml: ok" in out


def test_check_of_a_file_that_is_not_there_is_a_problem(run, tmp_path):
    status, out, _ = run("check", str(tmp_path / "gone.toml"))
    assert status == 2
    assert "No such file" in out


def test_explain_says_for_each_field_what_was_asked_granted_and_given_and_why(run, manifest_file):
    status, out, _ = run("explain", manifest_file, "--mask", "no-network", "--json")
    assert status == 0
    found = json.loads(out)
    rows = {row["field"]: row for row in found["fields"]}
    assert rows["allow_network_egress"] == {
        "field": "allow_network_egress",
        "requested": True,
        "granted": True,
        "effective": False,
        "why": "mask `no-network`",
    }
    assert [denial["grant"] for denial in found["denied"]] == ["http.fetch", "kv.get"]
    assert found["denied"][0]["why"] == "mask `no-network`: `allow_network_egress` is false"
    assert found["policy_digest"].startswith("hmac-sha256:")


def test_explain_shows_a_sub_policy_only_where_it_matters(run, manifest_file):
    _, out, _ = run("explain", manifest_file)
    assert "capabilities.http.domains" in out
    assert "capabilities.kv.max_keys" not in out
    assert 'denied: kv.get: policy `fetcher`: `allowed_host_apis` lacks "kv.get"' in out
    assert 'remedy: write a policy file with `extends = "fetcher"` that does this, and name' in out
    assert '--policy FILE: add "kv.get" to `allowed_host_apis`\n' in out
    _, out, _ = run("explain", manifest_file, "--all")
    assert "capabilities.kv.max_keys" in out


def test_the_remedy_that_explain_gives_can_be_followed(run, manifest_file, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = "fetcher"\n')
    _, out, _ = run("explain", manifest_file, "--policy", str(path))
    assert 'remedy: add "kv.get" to `allowed_host_apis` in the policy `mine`' in out
    path.write_text('extends = "fetcher"\nallowed_host_apis = ["http.fetch", "kv.get"]\n')
    _, out, _ = run("explain", manifest_file, "--policy", str(path), "--mask", "no-network")
    assert "denied: kv.get" not in out
    assert "remedy: leave out the mask `no-network`\n" in out
    path.write_text(path.read_text() + "[masks.offline]\nallow_network_egress = false\n")
    _, out, _ = run("explain", manifest_file, "--policy", str(path), "--mask", "offline")
    assert "set `allow_network_egress = true` in the mask `offline`, or leave it out\n" in out


def test_explain_uses_the_policy_that_is_named(run, manifest_file, tmp_path):
    path = tmp_path / "p.toml"
    path.write_text('name = "mine"\nallowed_host_apis = ["kv.get"]\n')
    status, out, _ = run("explain", manifest_file, "--policy", str(path))
    assert status == 0
    assert "under policy `mine`" in out


@pytest.fixture
def signed(home, make_manifest):
    """A signed artifact of a publisher whom the home trusts."""
    key = SigningKey.generate()
    add_key(home.trust, "tester", key.public)
    fields = msgspec.to_builtins(make_manifest(capabilities=("kv.get",), policy_class="scratch"))
    del fields["files"]
    return sign_artifact(build_artifact(fields, {"tool.wasm": b"not run"}), key)


def test_explain_reads_an_artifact_that_nobody_has_published(run, signed, tmp_path):
    path = tmp_path / "sample-1.0.0.tool"
    path.write_bytes(signed)
    status, out, err = run("explain", str(path))
    assert (status, err) == (0, "")
    assert "sample 1.0.0 under policy `scratch`" in out


def test_explain_of_a_tool_takes_the_policy_that_the_registry_binds_to_it(run, signed, home):
    with Registry.open(home) as registry:
        registry.publish(signed, policy="observer")
    status, out, err = run("explain", "sample@^1.0")
    assert (status, err) == (0, "")
    assert "sample 1.0.0 under policy `observer`" in out
    _, out, _ = run("explain", "sample", "--policy", "compute")
    assert "under policy `compute`" in out


def test_explain_of_what_is_no_manifest_is_wrong_usage(run, tmp_path):
    path = tmp_path / "m.json"
    path.write_text("{}")
    status, _, err = run("explain", str(path))
    assert (status, "is not a manifest" in err) == (2, True)


def test_the_group_has_help_for_each_command():
    from toolcell.cli.policy import policy_command

    assert isinstance(policy_command, click.Group)
    out = CliRunner().invoke(policy_command, ["--help"]).output
    assert all(name in out for name in ("show", "check", "explain"))


def test_json_of_every_shipped_class_is_a_valid_envelope(run):
    from toolcell.policy.classes import shipped
    from toolcell.policy.envelope import PolicyEnvelope

    for name, grant in shipped().grants.items():
        _, out, _ = run("show", name, "--json")
        assert msgspec.convert(json.loads(out)["envelope"], PolicyEnvelope) == grant.envelope
