"""What a name in a module stands for: `o.system` after `import os as o` is `os.system`.

Owns the tracking of imports, of aliases by assignment and of the few calls that give a known thing
(`getattr(os, "system")`, `Path(...)`). It looks at a module as a whole and runs none of it; a name
that is bound to several things stands for each of them. Called by `checker.py`.
"""

import ast
import builtins
from collections.abc import Iterator

__all__ = ["Names"]

_PATH = "pathlib.Path()"
"""Any instance of a path."""
_PATH_CLASSES = {"pathlib.Path", "pathlib.PosixPath", "pathlib.WindowsPath"}
_PATH_TO_PATH = {
    *("parent", "joinpath", "with_name", "with_suffix", "with_stem", "resolve", "absolute"),
    *("expanduser", "relative_to"),
}
_IMPORTERS = {"builtins.__import__", "importlib.import_module", "importlib.__import__"}
_ROUNDS = 4
"""Of following assignments: `a = os; b = a; c = b.system` takes two."""


class Names:
    """The names of one module."""

    def __init__(self, tree: ast.Module) -> None:
        self._meanings: dict[str, set[str]] = {}
        self._bound: set[str] = set()
        nodes = list(ast.walk(tree))
        for node in nodes:
            self._bind(node)
        for _round in range(_ROUNDS):
            before = sum(map(len, self._meanings.values()))
            for node in nodes:
                self._alias(node)
            if sum(map(len, self._meanings.values())) == before:
                break

    def meanings(self, node: ast.expr) -> set[str]:
        """The dotted names that an expression may stand for; empty where unknown."""
        match node:
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute(value=value, attr=attribute):
                return self._attributes(value, attribute)
            case ast.Call(func=function, args=arguments):
                return self._call(function, arguments)
            case ast.BinOp(left=left, op=ast.Div()):
                return self.meanings(left) & {_PATH}
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
                return self._item(value, key)
            case ast.NamedExpr(value=value):
                return self.meanings(value)
        return set()

    def _name(self, name: str) -> set[str]:
        if name in self._meanings:
            return self._meanings[name]
        if name == "__builtins__":
            return {"builtins"}
        if hasattr(builtins, name) and name not in self._bound:
            return {f"builtins.{name}"}
        return set()

    def _attributes(self, value: ast.expr, attribute: str) -> set[str]:
        found = set()
        for base in self.meanings(value):
            if base == _PATH and attribute in _PATH_TO_PATH:
                found.add(_PATH)
            else:
                found.add(f"{base}.{attribute}")
        return found

    def _call(self, function: ast.expr, arguments: list[ast.expr]) -> set[str]:
        called = self.meanings(function)
        if called & _PATH_CLASSES or called & {_PATH, "pathlib.Path.cwd", "pathlib.Path.home"}:
            return {_PATH}
        match arguments:
            case [ast.Constant(value=str(name)), *_] if called & _IMPORTERS:
                return {name}
            case [base, ast.Constant(value=str(name)), *_] if "builtins.getattr" in called:
                return self._attributes(base, name)
            case [base] if "builtins.vars" in called:
                return {f"{name}.__dict__" for name in self.meanings(base)}
        return set()

    def _item(self, value: ast.expr, key: str) -> set[str]:
        found = set()
        for base in self.meanings(value):
            if base == "sys.modules":
                found.add(key)
            elif base.endswith(".__dict__"):
                found.add(f"{base.removesuffix('.__dict__')}.{key}")
        return found

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    # `import a.b` binds `a`; `import a.b as c` binds the submodule.
                    bound = alias.asname or alias.name.partition(".")[0]
                    self._mean(bound, alias.name if alias.asname else bound)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    self._mean(alias.asname or alias.name, f"{module}.{alias.name}")
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._bound.add(node.name)
            case ast.arg(arg=name):
                self._bound.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                self._bound.add(name)

    def _alias(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._alias_to(target, value)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                self._annotated(name, annotation)
                if value is not None:
                    self._mean(name, *self.meanings(value))
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                self._mean(name, *self.meanings(value))
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                self._annotated(name, annotation)
            case ast.withitem(context_expr=value, optional_vars=ast.Name(id=name)):
                self._mean(name, *self.meanings(value))

    def _alias_to(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self._mean(name, *self.meanings(value))
            case (
                (ast.Tuple(elts=targets) | ast.List(elts=targets)),
                (ast.Tuple(elts=values) | ast.List(elts=values)),
            ) if len(targets) == len(values):
                for one, its in zip(targets, values, strict=True):
                    self._alias_to(one, its)

    def _annotated(self, name: str, annotation: ast.expr) -> None:
        if self.meanings(annotation) & _PATH_CLASSES:
            self._mean(name, _PATH)

    def _mean(self, name: str, *meanings: str) -> None:
        if meanings:
            self._meanings.setdefault(name, set()).update(meanings)


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The dotted names that an import brings in: modules, and `module.name` for each name."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif node.level == 0 and node.module:
        yield node.module
        for alias in node.names:
            yield f"{node.module}.{alias.name}"
