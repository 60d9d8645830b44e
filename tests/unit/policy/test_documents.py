"""Policy files as written: what they mean, and every way in which one can be wrong."""

import tomllib
from datetime import UTC, datetime

import pytest

from toolcell.errors import ConfigError
from toolcell.policy.approvals import missing_approvals
from toolcell.policy.classes import extend, shipped
from toolcell.policy.compose import derive, within
from toolcell.policy.document import parse, parse_mask, refuse
from toolcell.policy.envelope import PolicyEnvelope
from toolcell.policy.fields import FIELDS


def load(text: str):
    """The catalog with this file's text added, and everything that is wrong with it."""
    document, problems = parse(tomllib.loads(text), "p.toml", "p")
    catalog, more = extend(shipped(), document)
    return catalog, [*problems, *more]


def good(text: str):
    catalog, problems = load(text)
    assert problems == []
    return catalog


def only_problem(text: str):
    _, problems = load(text)
    assert len(problems) == 1, problems
    return problems[0]


def test_a_class_starts_from_safe_default_and_changes_what_it_names():
    catalog = good("[classes.x]\ncpu_time_ms = 7\n")
    assert catalog.grants["x"].envelope == PolicyEnvelope(cpu_time_ms=7)


def test_a_class_extends_another_and_may_widen_it():
    catalog = good(
        """
        [classes.b]
        extends = "a"
        memory_mb = 4096
        [classes.a]
        extends = "fetcher"
        [classes.a.capabilities.http]
        domains = ["example.org"]
        """
    )
    envelope = catalog.grants["b"].envelope
    assert envelope.memory_mb == 4096
    assert envelope.capabilities.http.domains == ("example.org",)
    assert envelope.capabilities.http.max_requests == 20
    assert envelope.grants("http.fetch")


def test_a_file_with_one_policy_at_its_top_level_is_named_by_itself_or_by_the_file():
    document, problems = parse(tomllib.loads('name = "mine"\nfuel = 5'), "p.toml", "p")
    assert (document.policy, problems) == ("mine", [])
    document, problems = parse(tomllib.loads("fuel = 5"), "p.toml", "p")
    assert (document.policy, problems) == ("p", [])


def test_a_mask_holds_only_what_it_names():
    catalog = good("[masks.m]\nfuel = 5\n[masks.m.capabilities.http]\nports = [443]\n")
    assert catalog.masks["m"].values == {"fuel": 5, "capabilities.http.ports": (443,)}


def test_a_toml_date_is_an_approvals_date():
    catalog = good(
        """
        [classes.x]
        network = "full"
        [[classes.x.approvals]]
        grants = "network=full"
        who = "Ada"
        when = 2026-01-02
        why = "tested"
        """
    )
    assert catalog.grants["x"].envelope.approvals[0].when == "2026-01-02"


def test_an_approval_is_not_inherited():
    catalog = good(
        """
        [classes.x]
        network = "full"
        approvals = [{grants = "network=full", who = "Ada", when = "2026-01-02", why = "tested"}]
        [classes.y]
        extends = "x"
        """
    )
    assert missing_approvals(catalog.grants["x"].envelope) == []
    assert missing_approvals(catalog.grants["y"].envelope) == ["network=full has no approval"]


@pytest.mark.parametrize(
    ("when", "now", "valid"),
    [
        ("2026-11-02", "2026-11-02T00:00", True),
        ("2026-11-03", "2026-11-02T11:00", True),  # it is the 3rd already at UTC+14
        ("2026-11-03", "2026-11-02T09:00", False),
        ("2026-11-02T12:00:00", "2026-11-02T12:00", True),
        ("2026-11-02T12:00:01", "2026-11-02T12:00", False),
        ("2026-11-02T12:00:01+01:00", "2026-11-02T12:00", True),
    ],
)
def test_an_approval_counts_from_its_date_on(when, now, valid):
    approvals = [{"grants": "filesystem=host", "who": "Ada", "when": when, "why": "tested"}]
    mask = tomllib.loads("[classes.x]\nfilesystem = 'host'\n")
    mask["classes"]["x"]["approvals"] = approvals
    document, problems = parse(mask, "p.toml", "p")
    catalog, _ = extend(shipped(), document)
    assert problems == []
    envelope = catalog.grants["x"].envelope
    instant = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert (missing_approvals(envelope, instant) == []) is valid


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[classes.x]\ncpu_time = 1", "unknown field `cpu_time`; did you mean `cpu_time_ms`?"),
        ("[classes.x]\ncpu_time_ms = 0", "`cpu_time_ms` = 0: Expected `int` >= 1"),
        ("[classes.x]\ncpu_time_ms = 86400001", "Expected `int` <= 86400000"),
        ("[classes.x]\ncpu_time_ms = '5'", "Expected `int`, got `str`"),
        ("[classes.x]\nmemory_mb = true", "Expected `int`, got `bool`"),
        ("[classes.x]\nnetwork = 'on'", "`network` = 'on': Invalid enum value 'on'"),
        ("[classes.x]\nallowed_host_apis = ['kv.gte']", "did you mean `kv.get`?"),
        ("[classes.x.capabilities.http]\ndomain = []", "`capabilities.http.domains`?"),
        ("[classes.x.capabilities.http]\nports = [0]", "`capabilities.http.ports[0]`"),
        ("[classes.x.capabilities.http]\ndomains = ['*']", "domain '*' is not a host name"),
        ("[classes.x.capabilities]\nhttp = 1", "`capabilities.http` is 1; it is a table"),
        ("[classes.x.capabilities.sql]\nx = 1", "unknown field `capabilities.sql`"),
        ("[classes.x]\ncapabilities = []", "`capabilities` is []; it is a table"),
        ("[classes.x]\nextends = 'y'", "extends `y`, which does not exist"),
        ("[classes.x]\nextends = 'x'", "a circle of `extends`: x → x"),
        ("[classes.X]", "`name` = 'X'"),
        ('[classes."x\\n"]', "`name` = 'x\\n'"),
        ("[classes.compute]", "the name `compute` is taken already (by: shipped)"),
        ("[masks.compute]", "the name `compute` is taken already (by: shipped)"),
        ("[classes.x]\n[masks.x]", "the name `x` is taken already (by: p.toml)"),
        ("[masks.m]\nextends = 'compute'", "unknown field `extends`"),
        ("[masks.m]\napprovals = []", "unknown field `approvals`"),
        ("classes = 1", "`classes` is not a table"),
        ("[classes]\nx = 1", "`x` is not a table"),
        ("fuel = 1\n[classes.x]", "unknown field `fuel`"),
        ("[class.x]", "unknown field `class`; did you mean `classes`?"),
        ("[[classes.x.approvals]]\ngrants = 'root'", "`approvals[0].grants`"),
        (
            "[[classes.x.approvals]]\ngrants='network=full'\nwho=' '\nwhen='2026-01-02'\nwhy='y'",
            "an approval says who gave it and why",
        ),
        (
            "[[classes.x.approvals]]\ngrants='network=full'\nwho='A'\nwhen='yesterday!'\nwhy='y'",
            "is not an ISO 8601 date",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_table_field_and_remedy(text, message):
    problem = only_problem(text)
    assert message in str(problem)
    assert problem.where.startswith("p.toml")
    assert problem.remedy


def test_every_problem_of_a_file_is_listed():
    _, problems = load("[classes.a]\nfuel = -1\nextends = 'b'\n[classes.b]\nextends='a'\nx = 1\n")
    assert len(problems) == 3
    with pytest.raises(ConfigError, match="and 2 more problems") as caught:
        refuse(problems)
    assert len(caught.value.details["problems"]) == 3


def test_a_circle_is_one_problem_however_many_classes_are_on_it():
    problem = only_problem(
        "[classes.c]\nextends='a'\n[classes.a]\nextends='b'\n[classes.b]\nextends='c'\n"
    )
    assert "a → b → c → a" in problem.message


def test_a_chain_of_classes_has_a_limit():
    text = "\n".join(f"[classes.c{n}]\nextends = 'c{n + 1}'" for n in range(40)) + "\n[classes.c40]"
    _, problems = load(text)
    assert any("extends through more than 16 classes" in str(each) for each in problems)


def test_a_file_has_a_limit_on_classes():
    _, problems = load("\n".join(f"[classes.c{n}]" for n in range(300)))
    assert "300 entries; the limit is 256" in str(problems[0])


def test_a_mask_from_a_call_is_checked_like_a_file():
    assert parse_mask({"fuel": 3}, "mask 1").values == {"fuel": 3}
    with pytest.raises(ConfigError, match="mask 1: unknown field `fule`; did you mean `fuel`"):
        parse_mask({"fule": 3}, "mask 1")


def test_safe_default_is_the_table_of_the_specification():
    envelope = shipped().grants["safe-default"].envelope
    assert envelope == PolicyEnvelope()
    assert (envelope.cpu_time_ms, envelope.wall_time_ms, envelope.memory_mb) == (5000, 10_000, 128)
    assert (envelope.max_processes, envelope.max_open_files) == (64, 64)
    assert (envelope.max_output_bytes, envelope.max_message_bytes) == (1 << 20, 2 << 20)
    assert (envelope.max_log_bytes, envelope.log_rate, envelope.scratch_mb) == (64 << 10, 100, 16)
    assert (envelope.allow_network_egress, envelope.allow_file_io) == (False, False)
    assert (envelope.filesystem, envelope.network) == ("read-only-package", "off")
    assert (envelope.min_isolation, envelope.deterministic) == (1, False)
    assert envelope.allowed_host_apis == ()


def test_the_shipped_classes_let_nothing_out_and_keep_nothing():
    names = {"safe-default", "compute", "scratch", "fetcher", "observer", "builder"}
    assert set(shipped().grants) == names
    for grant in shipped().grants.values():
        envelope = grant.envelope
        assert envelope.capabilities.http.domains == ()
        assert envelope.capabilities.http.addresses == ()
        assert envelope.capabilities.kv.namespace == ""
        assert envelope.network == "off"
        assert envelope.filesystem != "host"
        assert envelope.min_isolation >= 1
        assert envelope.wall_time_ms <= 60_000
        if grant.name != "fetcher":
            assert not envelope.allow_network_egress


def test_a_shipped_class_says_nothing_that_its_master_switches_take_back():
    for grant in shipped().grants.values():
        plain = derive(grant.envelope)
        assert plain.allowed_host_apis == grant.envelope.allowed_host_apis, grant.name
        assert plain.filesystem == grant.envelope.filesystem, grant.name


def test_every_shipped_mask_narrows_the_widest_class():
    from toolcell.policy.compose import narrow

    for mask in shipped().masks.values():
        for grant in shipped().grants.values():
            assert within(narrow(grant.envelope, mask), grant.envelope)
        assert set(mask.values) <= set(FIELDS)
