"""Which names a tool's module can't have: something else in a component answers to them.

Owns the one rule for both: `toolcell new`, which chooses a name, and the linter, which judges one.
"""

import keyword
import sys

__all__ = ["name_problem", "safe_module_name"]

_NEW_IN_3_14 = frozenset({"annotationlib", "compression"})
"""A component's Python is CPython 3.14 (componentize-py 0.25); ours may be older."""

_STANDARD = sys.stdlib_module_names | _NEW_IN_3_14

_OURS = frozenset(
    {
        *("toolcell_sdk", "toolcell_entry", "wit_world"),
        *("componentize_py_types", "componentize_py_runtime", "componentize_py_async_support"),
    }
)
"""What a build puts beside the author's modules."""


def name_problem(module: str) -> str:
    """What keeps `module` from being the name of a tool's module; empty where nothing does."""
    if keyword.iskeyword(module):
        return "is a keyword of Python, which no `import` can name"
    if module in _STANDARD:
        return "is a module of Python's own, which would be imported in its place"
    if module in _OURS:
        return "is a module that every build brings along"
    return ""


def safe_module_name(tool: str) -> str:
    """A module's name for the tool `tool`: `word-notes` gives `word_notes`, `json` `tool_json`."""
    module = tool.replace("-", "_")
    # A file `test_….py` is a test, and is left out of the tool.
    is_test = module.startswith("test_") or module == "conftest"
    return f"tool_{module}" if is_test or name_problem(module) else module
