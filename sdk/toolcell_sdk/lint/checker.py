"""Walks the modules of a tool and collects findings.

Owns when a rule applies: modules where they are imported, names where they are used, baked state
at the top level, capabilities against `tool.toml`. Parses, never runs. Called by `lint`.
"""

import ast
from collections.abc import Iterable
from typing import Literal

from toolcell_sdk.lint.finding import Finding
from toolcell_sdk.lint.names import Names, imported
from toolcell_sdk.lint.rules import (
    BAKED,
    BAKED_WAIT,
    LAZY_IMPORT_REMEDY,
    MODULES,
    NAMES,
    Rule,
    rule_of,
)
from toolcell_sdk.wit import CAPABILITIES

__all__ = ["Checker"]

_CLIENTS = {
    f"{package}.{interface}.{function.replace('-', '_')}": capability
    for capability, (interface, function) in CAPABILITIES.items()
    for package in ("toolcell_sdk", "toolcell_sdk.capabilities")
} | {
    f"{package}.log.{level}": "log.emit"
    for level in ("debug", "info", "warning", "error")
    for package in ("toolcell_sdk", "toolcell_sdk.capabilities")
}
"""What a tool calls, and the capability that it needs for it."""


class Checker(ast.NodeVisitor):
    """Checks one module. `findings` and `used` (capabilities) hold what was found."""

    def __init__(self, path: str, tree: ast.Module, declared: Iterable[str]) -> None:
        self.findings: set[Finding] = set()
        self.used: set[str] = set()
        self._path = path
        self._declared = frozenset(declared)
        self._names = Names(tree)
        self._depth = 0
        self.visit(tree)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Decorators and defaults are evaluated outside; the body inside."""
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """As a function."""
        self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """As a function."""
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for outside in (*node.decorator_list, node.args):
            self.visit(outside)
        self._depth += 1
        for statement in node.body:
            self.visit(statement)
        self._depth -= 1

    def visit_If(self, node: ast.If) -> None:
        """`if TYPE_CHECKING:` never runs."""
        if self._names.meanings(node.test) & {"typing.TYPE_CHECKING"}:
            for statement in node.orelse:
                self.visit(statement)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        """A module that a cell lacks, or an import that comes too late."""
        self._import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """As `import`, and each name on its own."""
        self._import(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name in imported(node):
            rule = _module_rule(name) or rule_of(NAMES, name)
            if rule is not None:
                self._report(node, rule, name)
            if name in _CLIENTS:
                self._capability(node, _CLIENTS[name])
        if self._depth:
            module = next(imported(node), ".")
            message = f"`{module}` is imported inside a function"
            self._add(node, "lazy-import", message, LAZY_IMPORT_REMEDY)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """`os.system`, however `os` is called here."""
        if not self._use(node):
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """`vars(os)["system"]`."""
        if not self._use(node):
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """`eval`, or what an assignment made an alias of."""
        if isinstance(node.ctx, ast.Load):
            self._use(node)

    def visit_Call(self, node: ast.Call) -> None:
        """`getattr(os, "system")`, `__import__("socket")`, and baked state."""
        self._use(node)
        if not self._depth:
            for name in self._names.meanings(node.func):
                if rule := rule_of((BAKED, BAKED_WAIT), name):
                    self._report(node, rule, f"{name}()")
        self.generic_visit(node)

    def _use(self, node: ast.expr) -> bool:
        """Reports what `node` stands for. True where something was found."""
        found = False
        for name in sorted(self._names.meanings(node)):
            if name in _CLIENTS:
                self._capability(node, _CLIENTS[name])
                found = True
            rule = rule_of(NAMES, name)
            if rule is None and isinstance(node, ast.Call):
                rule = _module_rule(name)
            if rule is not None:
                self._report(node, rule, name.replace("()", "(...)").removeprefix("builtins."))
                found = True
        return found

    def _capability(self, node: ast.AST, capability: str) -> None:
        self.used.add(capability)
        if capability not in self._declared:
            message = f"`{capability}` is used and not declared"
            remedy = f'add "{capability}" to `capabilities` in tool.toml'
            self._add(node, "capability", message, remedy)

    def _report(self, node: ast.AST, rule: Rule, name: str) -> None:
        self._add(node, rule.name, f"`{name}` {rule.what}", rule.remedy, rule.severity)

    def _add(
        self,
        node: ast.AST,
        rule: str,
        message: str,
        remedy: str,
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0) + 1
        self.findings.add(Finding(self._path, line, column, rule, message, remedy, severity))


def _module_rule(name: str) -> Rule | None:
    """The rule for a module, or for a package that it lies in."""
    while name:
        rule = rule_of(MODULES, name)
        if rule is not None:
            return rule
        name = name.rpartition(".")[0]
    return None
