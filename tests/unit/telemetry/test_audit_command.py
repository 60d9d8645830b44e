"""`toolcell audit`: what it prints, and its exit status."""

import json

import msgspec
import pytest
from audit_logs import CONTEXT, KEY, capability, head_of, invocation, lines_of

from toolcell.cli import main
from toolcell.events import AuditOpened, EventContext, SandboxViolation
from toolcell.home import Home, owner_only_key
from toolcell.telemetry.chain import GENESIS, ChainKey, seal_line
from toolcell.telemetry.jsonl import JsonlSink


@pytest.fixture
def log(private_home):
    """The home's log, under the home's key: an opening line and three events."""
    home = Home()
    sink = JsonlSink(home.audit, owner_only_key(home.audit_key))
    sink.write(capability("notes/a"))
    sink.write(
        SandboxViolation.of(CONTEXT, type="fs", detail="opened a file\x1b[2J", severity="soft")
    )
    sink.write(msgspec.structs.replace(invocation(), tool="other", correlation_id="second"))
    sink.close()
    return home.audit


@pytest.fixture
def audit(capsys):
    """Runs `toolcell audit …`: exit status, standard output, standard error."""

    def run(*arguments):
        status = 0
        try:
            main(["audit", *map(str, arguments)])
        except SystemExit as exit_:
            status = exit_.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_a_whole_log_is_said_to_be_whole(audit, log):
    status, out, _ = audit("verify")
    assert status == 0
    assert out.startswith("whole: 4 lines (1 to 4) in 1 file\nend: 4:")


def test_a_changed_line_is_named_with_what_it_means(audit, log):
    log.write_bytes(log.read_bytes().replace(b"notes/a", b"notes/b"))
    status, out, _ = audit("verify", log)
    assert status == 1
    assert out.startswith("NOT WHOLE: audit.jsonl:2: (line 2) is altered\n  that means: a byte of")


def test_one_line_that_is_gone_is_told_in_the_singular(audit, log):
    log.write_bytes(b"".join(lines_of(log)[:-1]))
    assert "line 4 was written and is not there" in audit("verify")[1]
    log.write_bytes(b"".join(lines_of(log)[:1]))
    assert "lines 2 to 4 were written and are not there" in audit("verify")[1]
    log.write_bytes(log.read_bytes() + b"hello\n")
    assert "is not a line of an audit log" in audit("verify")[1]


def test_a_key_file_that_is_no_key_is_not_to_be_deleted(audit, log, tmp_path):
    path = tmp_path / "pol.toml"
    path.write_text("memory_mb = 5\n")
    for mode in (0o644, 0o600):
        path.chmod(mode)
        status, _, err = audit("verify", "--key-file", path)
        assert status == 2
        assert "name the file of the right key" in err
        assert "delete" not in err


def test_a_file_that_can_not_be_read_is_named_as_it_was_typed(audit, log, tmp_path):
    for command in ("verify", "show"):
        assert f"{tmp_path}/gone.jsonl can't be read" in audit(command, tmp_path / "gone.jsonl")[2]


def test_show_rounds_figures_for_people_and_not_for_machines(audit, log):
    with log.open("ab") as file:
        file.write(b'{"event":"x","duration_ms":220.10769799999252}\n')
    assert "duration_ms=220.108" in audit("show")[1]
    assert "220.10769799999252" in audit("show", "--json")[1]


def test_json_has_every_problem(audit, log):
    lines = lines_of(log)
    log.write_bytes(b"".join([lines[0], *lines[2:]]))
    status, out, _ = audit("verify", "--json")
    report = json.loads(out)
    assert (status, report["whole"], report["authenticated"]) == (1, False, True)
    assert [(p["line"], p["kind"]) for p in report["problems"]] == [(2, "missing")]


def test_the_end_of_a_check_is_an_anchor_for_the_next(audit, log):
    anchor = audit("verify")[1].split("end: ")[1].split()[0]
    assert audit("verify", "--anchor", anchor)[0] == 0
    status, out, _ = audit("verify", "--anchor", f"4:{'0' * 64}")
    assert status == 1
    assert "line 4 is not there as it was noted" in out
    assert audit("verify", "--anchor", "4")[0] == 2


def test_another_key_is_named_and_no_key_is_made(audit, log, tmp_path):
    status, _, err = audit("verify", log, "--key-file", tmp_path / "missing.key")
    assert status == 2
    assert "there is no audit key" in err
    assert "--without-key" in err
    assert not (tmp_path / "missing.key").exists()
    other = tmp_path / "other.key"
    other.write_bytes(KEY)
    other.chmod(0o600)
    status, out, _ = audit("verify", log, "--key-file", other)
    assert status == 1
    assert "made with another key" in out


def test_a_check_without_the_key_says_what_it_is_worth(audit, log):
    status, out, _ = audit("verify", "--without-key")
    assert status == 0
    assert "checked without the key" in out


def test_the_homes_full_files_are_checked_with_it(audit, log):
    key = owner_only_key(Home().audit_key)
    sink = JsonlSink(log, key, max_bytes=4096)
    for _ in range(20):
        sink.write(capability())
    sink.close()
    files = [log, *log.parent.glob("audit.jsonl.0*")]
    assert len(files) > 2
    assert f" in {len(files)} files" in audit("verify")[1]
    status, out, _ = audit("verify", *sorted(log.parent.glob("audit.jsonl*")))
    assert (status, out.split(" lines")[0]) == (0, audit("verify")[1].split(" lines")[0])


def test_without_a_log_there_is_a_remedy(audit, private_home):
    owner_only_key(Home().audit_key)
    status, _, err = audit("verify")
    assert status == 2
    assert "there is no audit log yet" in err
    assert audit("show")[0] == 2
    assert audit("verify", "/nowhere/audit.jsonl")[0] == 2
    assert audit("show", "/nowhere/audit.jsonl")[0] == 2


def test_show_prints_each_event_on_a_line_of_its_own(audit, log):
    status, out, _ = audit("show")
    lines = out.splitlines()
    assert (status, len(lines)) == (0, 4)
    assert lines[1].split("  ")[1:4] == [
        "tool.capability",
        "csv-profile@1.2.3",
        CONTEXT.correlation_id,
    ]
    assert "target=notes/a" in lines[1]


@pytest.mark.parametrize(
    ("options", "events"),
    [
        (["--tool", "other"], ["tool.invocation"]),
        (["--tool", "csv-profile@1.2.3"], ["tool.capability", "tool.sandbox.violation"]),
        (["--tool", "csv-profile@2"], []),
        (["--correlation-id", "second"], ["tool.invocation"]),
        (["--type", "tool.sandbox"], ["tool.sandbox.violation"]),
        (["--tail", "1"], ["tool.invocation"]),
        (["--type", "tool.", "--tail", "2"], ["tool.sandbox.violation", "tool.invocation"]),
    ],
)
def test_show_filters(audit, log, options, events):
    _, out, _ = audit("show", "--json", *options)
    assert [json.loads(line)["event"] for line in out.splitlines()] == events


def test_show_prints_nothing_that_steers_a_terminal(audit, log):
    with log.open("ab") as file:
        file.write(b"\x1b[2J not a line\n")
        file.write(b'{"event":"x\\u001b[2J","a":"\\u202e"}\n' + b"[" * 100_000 + b"\n")
    for options in ([], ["--json"]):
        out = audit("show", *options)[1]
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "(unreadable)" in out


def test_verify_prints_nothing_that_steers_a_terminal(audit, tmp_path):
    opened = AuditOpened.of(EventContext(), format=1, key_id="", previous="\x1b[2J")
    line, _ = seal_line(2, GENESIS, msgspec.json.encode(opened), ChainKey(KEY))
    (tmp_path / "evil.jsonl").write_bytes(line)
    out = audit("verify", "--without-key", tmp_path / "evil.jsonl")[1]
    assert "\\x1b[2J" in out
    assert "\x1b" not in out


def test_a_killed_writer_is_told_of_in_a_note(audit, log):
    key = owner_only_key(Home().audit_key)
    before, head = log.read_bytes(), head_of(log).read_bytes()
    sink = JsonlSink(log, key)
    sink.write(capability())
    sink.close()
    log.write_bytes(log.read_bytes()[: len(before) + 100])
    head_of(log).write_bytes(head)
    sink = JsonlSink(log, key)
    sink.close()
    status, out, _ = audit("verify")
    assert status == 0
    assert "note: audit.jsonl:6: before this line stand 101 bytes of a line whose writer was" in out
