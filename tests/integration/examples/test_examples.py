"""The examples, each the whole way: lint, own tests natively and in a cell, build, sign, publish,
and real work through `Runtime` under the policy that it ships with."""

import base64
import http.server
import threading

import pytest
from installation import EXAMPLES, Installation
from pictures import opened, picture

from toolcell.artifact.open import read_contents
from toolcell.cell_runner import RUNNER
from toolcell.policy.book import PolicyBook
from toolcell.policy.envelope import CapabilityPolicies, HttpPolicy, PolicyEnvelope
from toolcell.runtime import Runtime
from toolcell_sdk.lint import lint
from toolcell_sdk.testing import run_tests

pytestmark = pytest.mark.slow

NAMES = ("csv-profile", "notebook", "regex-grep", "thumbnail", "web-digest")
PAGE = b"""<!doctype html><html><head><title>A page</title></head><body><nav>menu</nav>
<main><p>The main text.</p><a href="/next">onwards</a></main></body></html>"""


@pytest.fixture(scope="module")
def runtime(new_home, archive_of):
    installation = Installation(new_home())
    for name in NAMES:
        installation.publish(archive_of(name))
    with Runtime(installation.home.root) as made:
        yield made


def call(runtime, name, method, value, policy=None):
    policy = policy or str(EXAMPLES / name / "policy.toml")
    return runtime.invoke(name, method, value, policy=policy)


def test_these_are_all_the_examples():
    assert sorted(path.parent.name for path in EXAMPLES.glob("*/tool.toml")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_lint_finds_nothing(name):
    assert lint(EXAMPLES / name) == []


@pytest.mark.parametrize("name", NAMES)
def test_its_own_tests_pass_natively(name):
    assert run_tests(EXAMPLES / name, arguments=("-q",)) == 0


@pytest.mark.parametrize("name", NAMES)
def test_its_own_tests_pass_in_the_cell(name):
    assert run_tests(EXAMPLES / name, runner=RUNNER, arguments=("-q",)) == 0


@pytest.mark.parametrize("name", NAMES)
def test_its_policy_grants_what_it_asks_for_and_no_capability_more(name, archive_of):
    asked = set(read_contents(archive_of(name)).manifest.capabilities)
    grant = PolicyBook().grant(EXAMPLES / name / "policy.toml").envelope
    assert set(grant.allowed_host_apis) == asked
    assert grant.allow_network_egress == ("http.fetch" in asked)
    assert grant.allow_file_io == any(capability.startswith("fs.") for capability in asked)


def test_csv_profile_reads_a_real_table_of_ten_thousand_rows(runtime):
    text = (EXAMPLES / "data" / "bird-strikes.csv").read_text()
    profile = call(runtime, "csv-profile", "profile", {"csv": text}).value()
    assert profile["rows"] == 10_000
    assert len(profile["columns"]) == 14
    date = next(column for column in profile["columns"] if column["name"] == "Flight Date")
    assert (date["type"], date["distinct"], date["missing"]) == ("date", 3625, 0)


def test_notebook_keeps_notes_between_calls_and_exports_them(runtime):
    note = call(runtime, "notebook", "add", {"title": "Milk", "text": "Two litres"}).value()
    found = call(runtime, "notebook", "search", {"query": "litres"}).value()
    assert [each["note"]["id"] for each in found] == [note["id"]]
    assert "Two litres" in call(runtime, "notebook", "export", {}).value()["content"]
    call(runtime, "notebook", "remove", {"id": note["id"]}).value()
    assert call(runtime, "notebook", "list_notes", {}).value() == []


def test_regex_grep_finds_lines_and_ends_a_catastrophic_pattern(runtime):
    text = "alpha\nbeta\ngamma\n"
    found = call(runtime, "regex-grep", "grep", {"pattern": "^b", "text": text}).value()
    assert [match["line"] for match in found["matches"]] == [{"number": 2, "text": "beta"}]
    bomb = call(runtime, "regex-grep", "grep", {"pattern": "(a+)+$", "text": "a" * 64 + "!"})
    assert bomb.status == 408
    assert bomb.error.details["limit"] == "cpu_time_ms"


def test_thumbnail_scales_a_real_picture(runtime):
    image = base64.b64encode(picture((640, 320))).decode()
    made = call(runtime, "thumbnail", "make", {"image": image, "sizes": [64]}).value()
    small = made[0] if isinstance(made, list) else made["thumbnails"][0]
    assert max(opened(base64.b64decode(small["data"])).size) == 64


def test_web_digest_reads_a_page_from_a_real_server(runtime, page_server):
    policy = PolicyEnvelope(
        allow_network_egress=True,
        allowed_host_apis=("http.fetch",),
        capabilities=CapabilityPolicies(
            http=HttpPolicy(
                domains=("localhost",),
                schemes=("http",),
                ports=(page_server,),
                addresses=("127.0.0.0/8", "::1/128"),
            )
        ),
    )
    url = f"http://localhost:{page_server}/"
    digest = call(runtime, "web-digest", "digest", {"url": url}, policy).value()
    assert digest["title"] == "A page"
    assert "The main text." in digest["text"]
    assert "menu" not in digest["text"]


def test_web_digest_may_not_leave_the_domains_of_its_policy(runtime, page_server):
    url = f"http://localhost:{page_server}/"
    result = call(runtime, "web-digest", "digest", {"url": url})
    assert result.status == 403
    assert "http.fetch" in result.error.message


@pytest.fixture
def page_server():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()
