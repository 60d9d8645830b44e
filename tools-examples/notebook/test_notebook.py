"""notebook over the fake broker's store and scratch space."""

import json

import pytest

pytest_plugins = ["toolcell_sdk.testing.plugin"]


def test_a_note_is_kept_under_a_key_of_its_own(tool, broker):
    note = tool.call("add", title="Milk", text="Two litres", tags=["shop", "shop", "a"])
    assert note["tags"] == ["a", "shop"]
    assert json.loads(broker.kv.values[f"note/{note['id']}"]) == note
    assert tool.call("list_notes") == [note]


def test_notes_are_listed_by_tag(tool):
    tool.call("add", title="One", tags=["x"])
    two = tool.call("add", title="Two", tags=["y"])
    assert tool.call("list_notes", tag="y") == [two]
    assert tool.call("list_notes", tag="z") == []


def test_search_wants_every_word_and_puts_titles_first(tool):
    tool.call("add", title="Other", text="red apples and more")
    tool.call("add", title="Apples", text="Red ones")
    tool.call("add", title="Pears", text="red")
    found = tool.call("search", query="RED apples")
    assert [one["note"]["title"] for one in found] == ["Apples", "Other"]
    assert found[0]["score"] == 4


def test_search_has_a_limit(tool):
    for number in range(5):
        tool.call("add", title=f"word {number}")
    assert len(tool.call("search", query="word", limit=2)) == 2


def test_a_note_is_removed_once(tool):
    note = tool.call("add", title="Gone")
    assert tool.call("remove", id=note["id"]) is None
    failed = tool.fails("remove", id=note["id"])
    assert (failed.status, failed.message) == (404, f"no note {note['id']}")


def test_an_export_is_a_file_and_a_result(tool, broker):
    tool.call("add", title="Größe", text="ä", tags=["t"])
    exported = tool.call("export")
    assert exported["notes"] == 1
    assert exported["content"].startswith("## Größe (t)\n")
    assert broker.files.contents["/scratch/notebook.md"].decode() == exported["content"]


def test_a_json_export_can_be_read_again(tool):
    note = tool.call("add", title="One")
    assert json.loads(tool.call("export", format="json")["content"]) == [note]


def test_a_note_that_vanishes_meanwhile_is_left_out(tool, broker):
    tool.call("add", title="One")
    broker.kv.list = lambda prefix: [f"{prefix}gone", *sorted(broker.kv.values)]
    assert len(tool.call("list_notes")) == 1


@pytest.mark.parametrize(
    "arguments",
    [{"title": ""}, {"title": "x" * 201}, {"title": "x", "tags": ["A b"]}, {"title": "x", "t": 1}],
)
def test_malformed_notes_are_refused(tool, broker, arguments):
    assert tool.fails("add", **arguments).status == 422
    assert broker.kv.values == {}


def test_a_full_store_keeps_its_status(tool, broker):
    broker.kv.max_total_bytes = 100
    assert tool.fails("add", title="x", text="y" * 200).status == 413


def test_without_files_everything_but_the_export_works(tool, broker):
    broker.granted -= {"fs.writeText", "fs.readText"}
    tool.call("add", title="One")
    assert len(tool.call("list_notes")) == 1
    assert tool.fails("export").status == 403
