"""web-digest against pages that a fake broker serves."""

import pytest

from toolcell_sdk.testing import FakeBroker, ToolTest

pytest_plugins = ["toolcell_sdk.testing.plugin"]

URL = "https://example.com/a/page"
HTML = {"content-type": "text/html; charset=utf-8"}
PAGE = """<!doctype html>
<html><head><title> A
 page </title><meta name="description" content="What it  is.">
<style>p { color: red }</style></head>
<body><nav><a href="/home">Home</a></nav>
<main><h1>Head</h1><p>First <b>bold</b> &amp; more.</p>
<p>See <a href="b?x=1#part">the other
page</a>, <a href="mailto:a@b.c">mail</a> or <a href="https://example.org/">that</a>.</p>
<script>alert("no")</script></main><footer>Imprint</footer></body></html>"""


def digest(tool: ToolTest, broker: FakeBroker, page: str, **arguments: object) -> dict:
    """The digest of `page`."""
    broker.http.respond(URL, page, headers=HTML)
    return tool.call("digest", url=URL, **arguments)


def test_a_page_in_short(tool, broker):
    assert digest(tool, broker, PAGE) == {
        "url": URL,
        "title": "A page",
        "description": "What it is.",
        "text": "Head\nFirst bold & more.\nSee the other\npage, mail or that.",
        "truncated": False,
        "links": [
            {"url": "https://example.com/home", "text": "Home"},
            {"url": "https://example.com/a/b?x=1", "text": "the other page"},
            {"url": "https://example.org/", "text": "that"},
        ],
    }
    broker.assert_called("http.fetch", times=1, url=URL, method="GET")


def test_without_a_main_element_the_frame_is_left_out(tool, broker):
    page = "<nav>Menu</nav><div>Text</div><footer>Imprint</footer>"
    assert digest(tool, broker, page)["text"] == "Text"


def test_links_are_resolved_against_where_the_page_was_found(tool, broker):
    final = "https://www.example.com/moved/"
    broker.http.respond(URL, '<a href="x">x</a>', headers=HTML, final_url=final)
    result = tool.call("digest", url=URL)
    assert result["url"] == final
    assert result["links"][0]["url"] == "https://www.example.com/moved/x"


def test_a_base_element_moves_the_links(tool, broker):
    page = '<base href="https://example.net/d/"><a href="x">x</a>'
    assert digest(tool, broker, page)["links"][0]["url"] == "https://example.net/d/x"


@pytest.mark.parametrize("href", ["javascript:alert(1)", "data:text/html,x", "http://[bad", ""])
def test_links_that_lead_nowhere_are_left_out(tool, broker, href):
    assert digest(tool, broker, f'<a href="{href}">x</a>')["links"] == []


def test_text_and_links_have_limits(tool, broker):
    page = "<main>" + "".join(f'<a href="/{i}">word</a> ' for i in range(100)) + "</main>"
    result = digest(tool, broker, page, max_text_characters=9, max_links=3)
    assert (result["text"], result["truncated"], len(result["links"])) == ("word word", True, 3)


@pytest.mark.parametrize(
    "page",
    ["", "<", "<a href=", "</p></main></nav>" * 50, "<div>" * 5000, "<!--", "<a href='x'>open"],
)
def test_broken_pages_are_read_all_the_same(tool, broker, page):
    assert digest(tool, broker, page)["title"] == ""


def test_the_charset_of_the_answer_is_used(tool, broker):
    headers = {"Content-Type": "text/html; charset=iso-8859-1"}
    broker.http.respond(URL, "<title>Größe</title>".encode("latin-1"), headers=headers)
    assert tool.call("digest", url=URL)["title"] == "Größe"


def test_something_else_than_a_page_is_refused(tool, broker):
    broker.http.respond(URL, b"%PDF", headers={"content-type": "application/pdf"})
    failed = tool.fails("digest", url=URL)
    assert (failed.status, failed.message) == (422, f"{URL} is application/pdf, not a web page")


def test_an_error_page_is_an_upstream_fault(tool, broker):
    broker.http.respond(URL, status=404)
    assert tool.fails("digest", url=URL).status == 502


def test_a_domain_that_is_not_granted_stays_a_403(tool):
    assert tool.fails("digest", url="https://elsewhere.example/").status == 403


def test_a_broken_upstream_and_a_slow_one_keep_their_status(tool, broker):
    broker.http.respond(URL, PAGE, headers=HTML)
    broker.fail("http.fetch", status=502, on_call=1)
    broker.delay("http.fetch", ms=60_000, on_call=2)
    assert [tool.fails("digest", url=URL).status for _ in range(2)] == [502, 408]
    assert tool.call("digest", url=URL)["title"] == "A page"
    assert broker.clock_ms == broker.timeout_ms


def test_a_file_url_is_refused_before_anything_is_fetched(tool, broker):
    assert tool.fails("digest", url="file:///etc/passwd").status == 422
    broker.assert_not_called("http.fetch")
