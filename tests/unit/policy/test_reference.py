"""`docs/policy.md` is in step with the code, and what it shows works."""

import re
import tomllib
from pathlib import Path

import pytest

from toolcell.policy.approvals import missing_approvals
from toolcell.policy.classes import extend, shipped
from toolcell.policy.document import parse
from toolcell.policy.fields import FIELDS
from toolcell.policy.reference import update

PAGE = Path(__file__).parents[3] / "docs" / "policy.md"
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_the_reference_is_what_the_code_says():
    """Bring it up to date with `python -m toolcell.policy.reference docs/policy.md`."""
    page = PAGE.read_text("utf-8")
    assert page == update(page)


def test_the_reference_has_every_field():
    page = PAGE.read_text("utf-8")
    for path in FIELDS:
        assert f"| `{path.rpartition('.')[2]}` |" in page
    for part in ("envelope", "sub-policies", "capabilities", "classes", "masks"):
        assert f"<!-- generated: {part} -->" in page


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_of_the_page_is_a_valid_policy_file(text):
    document, problems = parse(tomllib.loads(text), "policy.md", "example")
    catalog, more = extend(shipped(), document)
    assert [*problems, *more] == []
    for spec in document.classes:
        assert missing_approvals(catalog.grants[spec.name].envelope) == []


def test_the_page_has_examples():
    assert len(EXAMPLES) == 2
