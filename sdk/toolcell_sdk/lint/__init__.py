"""Finds, before a build, what the sandbox would refuse at run time.

It reads the syntax tree of the tool's own modules (not of what it vendors) and says for each place
what to use instead. It is a help for the author and no boundary: what it misses, the cell stops.
Called by `toolcell lint` and by every build.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from toolcell_sdk.lint.checker import Checker
from toolcell_sdk.lint.finding import Finding, LintError
from toolcell_sdk.lint.signatures import SignatureChecker
from toolcell_sdk.module_names import name_problem
from toolcell_sdk.project import PROJECT_FILE, Project, load_project
from toolcell_sdk.sources import author_files

__all__ = ["Finding", "LintError", "lint", "lint_project"]

MAX_MODULE_BYTES = 1024 * 1024


def lint(path: Path | str) -> list[Finding]:
    """The findings for the tool in the folder `path`, by file and line. Raises `ProjectError`."""
    return lint_project(load_project(path))


def lint_project(project: Project) -> list[Finding]:
    """The findings for a project that was read already."""
    findings: set[Finding] = set()
    used: set[str] = set()
    # Vendored code may bring methods along, and what can't be read may have them.
    may_have_methods = bool(project.python_path)
    files = author_files(project)
    findings.update(_names(project, files))
    for file in files:
        if file.suffix != ".py":
            continue
        name = str(file.relative_to(project.folder))
        if file.stat().st_size > MAX_MODULE_BYTES:
            message = f"the module has more than {MAX_MODULE_BYTES} bytes"
            findings.add(Finding(name, 1, 1, "size", message, "split it"))
            continue
        try:
            tree = ast.parse(file.read_bytes(), filename=name)
            checker = Checker(name, tree, project.capabilities)
            signatures = SignatureChecker(name, tree)
        except SyntaxError as error:
            line, column = error.lineno or 1, error.offset or 1
            findings.add(
                Finding(name, line, column, "syntax", f"not valid Python: {error.msg}", "mend it")
            )
            continue
        except (ValueError, RecursionError, MemoryError) as error:
            message = f"the module can't be parsed: {type(error).__name__}"
            findings.add(Finding(name, 1, 1, "syntax", message, "write it less deeply nested"))
            continue
        findings |= checker.findings | signatures.findings
        may_have_methods |= signatures.uses_method
        used |= checker.used
    if not may_have_methods and not any(one.rule in {"size", "syntax"} for one in findings):
        remedy = "put @method on a function of its module"
        findings.add(Finding(PROJECT_FILE, 1, 1, "method", "the tool has no method", remedy))
    for capability in set(project.capabilities) - used:
        message = f"`{capability}` is declared and not used"
        remedy = "take it out of `capabilities`: an operator has to grant it"
        findings.add(Finding(PROJECT_FILE, 1, 1, "capability", message, remedy, "warning"))
    return sorted(findings)


def _names(project: Project, files: Iterable[Path]) -> Iterator[Finding]:
    """Modules and packages in whose place something else in a component is imported."""
    for file in files:
        path = str(file.relative_to(project.folder))
        module = path.partition("/")[0].removesuffix(".py")
        problem = name_problem(module)
        if problem and path in {f"{module}.py", f"{module}/__init__.py"}:
            remedy = f"rename it, to `tool_{module}` for example"
            if module == project.module:
                remedy += ", and write that as `module` in tool.toml"
            yield Finding(path, 1, 1, "module-name", f"`{module}` {problem}", remedy)
