"""Finds, without running a module, what a build would refuse in the signatures of its methods.

Owns the reading of type hints as syntax: it names the same faults, in the same words, as
`toolcell_sdk.methods` does when the component describes itself, as far as they can be seen in one
module. What it can't look up (a type of another module of the tool) it leaves to the build.
Called by `lint`.
"""

import ast
import importlib
from collections.abc import Iterator
from typing import Any, Final

from toolcell_sdk.errors import SchemaError
from toolcell_sdk.lint.finding import Finding
from toolcell_sdk.lint.names import Names, imported
from toolcell_sdk.methods import check_name
from toolcell_sdk.shapes.resolve import Resolver, unsupported

__all__ = ["SignatureChecker"]

_METHOD: Final = {"toolcell_sdk.method", "toolcell_sdk.methods.method"}
_STAR: Final = {"toolcell_sdk.*", "toolcell_sdk.methods.*"}

_KNOWN_MODULES: Final = frozenset(
    {
        *("builtins", "collections", "collections.abc", "datetime", "decimal", "fractions"),
        *("ipaddress", "pathlib", "re", "typing", "uuid"),
    }
)
"""Whose types are looked up for a judgement: importing one of these does nothing else."""

_ELEMENTS: Final = {
    *("typing.Optional", "typing.Union", "typing.Required", "typing.NotRequired"),
    *("typing.List", "typing.Dict", "typing.Tuple", "typing.Set", "typing.FrozenSet"),
}
"""Forms that hold what their elements hold."""
_NO_FIELD: Final = {"typing.ClassVar", "dataclasses.KW_ONLY"}
_GENERATORS = (ast.Yield, ast.YieldFrom)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class SignatureChecker:
    """Checks one module. `findings` holds what was found, `uses_method` whether it has any."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.findings: set[Finding] = set()
        self._path = path
        self._names = Names(tree)
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self._seen: set[str] = set()
        self._methods: dict[str, int] = {}
        nodes = list(ast.walk(tree))
        self.uses_method = any(map(self._uses_method, nodes))
        for node in nodes:
            if isinstance(node, _Function):
                self._function(node)

    def _uses_method(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(ctx=ast.Load()) | ast.Attribute():
                return bool(self._names.meanings(node) & _METHOD)
            case ast.ImportFrom():
                return bool(_STAR & set(imported(node)))
        return False

    def _function(self, node: _Function) -> None:
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(func=function, keywords=keywords):
                    name = _given_name(keywords) or node.name
                case function:
                    name = node.name
            if self._names.meanings(function) & _METHOD:
                self._method(node, name)
                return

    def _method(self, node: _Function, name: str) -> None:
        self._seen.clear()
        try:
            check_name(name)
        except SchemaError as error:
            self._add(node, str(error))
        first = self._methods.setdefault(name, node.lineno)
        if first != node.lineno:
            self._add(node, f"the method `{name}` is defined twice; first in line {first}")
        if isinstance(node, ast.AsyncFunctionDef) or any(_yields(node)):
            self._add(node, f"{name}(): a method returns its result; write a plain `def`")
        arguments = node.args
        unnamed = [*arguments.posonlyargs, arguments.vararg, arguments.kwarg]
        for argument in filter(None, unnamed):
            where = f"{name}(), parameter `{argument.arg}`"
            text = "arguments come by name, so `*`, `**` and `/` can't be filled"
            self._add(argument, f"{where}: {text}; give each parameter a name of its own")
        for argument in (*arguments.args, *arguments.kwonlyargs):
            where = f"{name}(), parameter `{argument.arg}`"
            if argument.annotation is None:
                text = "the type hint is missing"
                self._add(argument, f"{where}: {text}; write `{argument.arg}: TYPE`")
            else:
                self._type(argument.annotation, argument, where)
        if node.returns is None:
            text = "the return type is missing"
            self._add(node, f"{name}(): {text}; write `-> None` if it returns nothing")
        else:
            self._type(node.returns, node.returns, f"{name}(), return type")

    def _type(self, hint: ast.expr, place: ast.AST, where: str) -> None:
        """Reports at `place` what in `hint` has no JSON form."""
        match hint:
            case ast.Constant(value=str(text)):
                try:
                    inner = ast.parse(text, mode="eval").body
                except (SyntaxError, ValueError):
                    self._add(place, f"{where}: the hint {text!r:.80} is no type; mend it")
                else:
                    self._type(inner, place, where)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                self._type(left, place, where)
                self._type(right, place, where)
            case ast.Subscript(value=head, slice=inside):
                elements = inside.elts if isinstance(inside, ast.Tuple) else [inside]
                self._generic(head, elements, place, where)
            case ast.Name(id=name) if name in self._classes:
                self._class(self._classes[name], place, where)
            case ast.Name() | ast.Attribute():
                self._judge(hint, place, where)

    def _generic(
        self, head: ast.expr, elements: list[ast.expr], place: ast.AST, where: str
    ) -> None:
        meanings = self._names.meanings(head)
        if "typing.Literal" in meanings:
            return
        if "typing.Annotated" in meanings:
            elements = elements[:1]
        elif not meanings & _ELEMENTS and self._judge(head, place, where):
            return
        if meanings & {"builtins.dict", "typing.Dict"}:
            key = self._names.meanings(elements[0])
            if key and "builtins.str" not in key:
                text = "the keys of a dict must be `str`: JSON has no others"
                self._add(place, f"{where}: {text}; write the keys as text")
                elements = elements[1:]
        for element in elements:
            self._type(element, place, where)

    def _class(self, node: ast.ClassDef, place: ast.AST, where: str) -> None:
        """A class of this module: its fields, where it is a record."""
        if node.name in self._seen:
            return
        self._seen.add(node.name)
        decorators = [
            decorator.func if isinstance(decorator, ast.Call) else decorator
            for decorator in node.decorator_list
        ]
        kinds = {name for part in (*decorators, *node.bases) for name in self._names.meanings(part)}
        if kinds & {"dataclasses.dataclass", "typing.TypedDict"}:
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    self._field(field, f"{where}: {node.name}.{field.target.id}")
        elif "typing.NamedTuple" in kinds or not (decorators or node.bases):
            self._add(place, f"{where}: {unsupported(node.name)}")

    def _field(self, field: ast.AnnAssign, where: str) -> None:
        hint = field.annotation
        head = hint.value if isinstance(hint, ast.Subscript) else hint
        match field.value:
            case ast.Call(keywords=keywords) if any(
                keyword.arg == "init" and getattr(keyword.value, "value", True) is False
                for keyword in keywords
            ):
                return  # not part of what is taken or given
        if not self._names.meanings(head) & _NO_FIELD:
            self._type(hint, field, where)

    def _judge(self, hint: ast.expr, place: ast.AST, where: str) -> bool:
        """Whether a name stands for a type that is known to have no JSON form. Reports it."""
        found = [_problem(name) for name in self._names.meanings(hint)]
        if not found or not all(found):  # something that a name may stand for will do
            return False
        self._add(place, f"{where}: {min(found)}")
        return True

    def _add(self, node: ast.AST, text: str) -> None:
        message, _, remedy = text.partition("; ")
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        self.findings.add(Finding(self._path, line, column, "method", message, remedy))


def _problem(name: str) -> str:
    """What is wrong with the type that goes by this dotted name; empty where it is not known."""
    module, _, attribute = name.rpartition(".")
    if module not in _KNOWN_MODULES:
        return ""
    kind: Any = getattr(importlib.import_module(module), attribute, Any)
    try:
        Resolver().resolve(kind)
    except SchemaError as error:
        return str(error)
    return ""


def _given_name(keywords: list[ast.keyword]) -> str:
    for keyword in keywords:
        match keyword:
            case ast.keyword(arg="name", value=ast.Constant(value=str(name))):
                return name
    return ""


def _yields(function: _Function) -> Iterator[bool]:
    """True for each `yield` of the function itself."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        if isinstance(node, _GENERATORS):
            yield True
        if not isinstance(node, _INNER):
            pending += ast.iter_child_nodes(node)
