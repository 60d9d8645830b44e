"""The command as a shell has it: exit statuses, JSON on every way out, signals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOLCELL = str(Path(sys.executable).with_name("toolcell"))


def run(*arguments, **options):
    return subprocess.run([TOOLCELL, *arguments], capture_output=True, text=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (("run", "nobody", "go"), 1, "not_found"),
        (("run", "nobody"), 2, "config"),
        (("run", "nobody", "go", "--input", "@/nowhere"), 2, "config"),
        (("nonsense",), 2, "config"),
        (("publish", "/nowhere.tool"), 1, "artifact_rejected"),
        (("policy", "show", "nosuch"), 2, "config"),
        (("policy", "explain", "nobody"), 1, "not_found"),
        (("list", "--scope", "nosuch"), 1, "not_found"),
        (("--home", "/proc/nowhere", "list"), 2, "config"),
    ],
)
def test_an_error_is_one_json_object_and_a_status(arguments, status, code):
    done = run(*arguments, "--json")
    assert "Traceback" not in done.stderr
    answer = json.loads(done.stdout)
    assert answer["error"]["code"] == code
    assert answer["status"] >= 400
    assert done.returncode == status


@pytest.mark.slow
def test_without_json_an_error_is_a_sentence_on_stderr_with_a_remedy():
    done = run("run", "nobody", "go")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error 404 (not_found): ")
    assert "remedy: " in done.stderr


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_traceback(installation, archive_of):
    done = subprocess.run(
        ["bash", "-c", f"{TOOLCELL} policy show safe-default --json | head -c 1"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_call_and_its_end_is_in_the_audit_log(installation, archive_of, number):
    installation.publish(archive_of("contract"))
    policy = installation.home.root / "policy.toml"
    policy.write_text('allowed_host_apis = ["kv.get", "kv.set", "log.emit"]\ncpu_time_ms = 60000\n')
    with policy.open("a") as file:
        file.write("wall_time_ms = 60000\n")
    command = [TOOLCELL, "run", "contract", "spin", "--policy", str(policy), "--json"]
    audit = installation.home.audit
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 60
        while not audit.exists() or "tool.sandbox.spawned" not in audit.read_text():
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.01)
        os.kill(child.pid, number)
        out, _ = child.communicate(timeout=10)
    assert child.returncode == 130
    assert json.loads(out)["error"]["code"] == "cancelled"
    assert audit.read_text().count('"event":"tool.sandbox.terminated"') == 1


@pytest.mark.slow
def test_a_build_says_nothing_of_being_done_before_the_artifact_is_written(tmp_path):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "out"
    done = run("build", str(Path(__file__).parents[2] / "guests" / "contract"), "--out", str(out))
    assert (done.returncode, done.stdout) == (2, "")
    *stages, error, remedy = done.stderr.splitlines()
    assert stages == ["  lint …", "  stage …", "  compile …", "  pack …"]
    assert "can't be written" in error
    assert remedy == "  remedy: name another --out"


@pytest.mark.slow
@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_output_that_is_lost_is_no_success(where):
    assert subprocess.run(["bash", "-c", f"{TOOLCELL} list"], capture_output=True).returncode == 0
    lost = subprocess.run(["bash", "-c", f"{TOOLCELL} list {where}"], capture_output=True)
    assert lost.returncode == 1
    assert b"Traceback" not in lost.stderr
