"""Definitions: the statements of a module by the names that they give, and what a part of a module needs of the
rest."""

from __future__ import annotations

import ast
import symtable
from dataclasses import dataclass
from functools import cached_property
from typing import Iterable, Iterator

from kgen.problems import syntax


@dataclass(frozen=True)
class Definitions:
    """The source of a module, its top-level statements read as definitions."""

    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return syntax.parse(self.source)

    @cached_property
    def scopes(self) -> dict[str, symtable.SymbolTable]:
        """The functions and classes at the top of the module by name."""
        return {t.get_name(): t for t in symtable.symtable(self.source, "module", "exec").get_children()}

    @cached_property
    def imports(self) -> dict[str, ast.stmt]:
        """The imports at the top of the module, one statement for each name that they give."""
        return {
            _bound(alias): type(node)(**{**vars(node), "names": [alias]})
            for node in self.tree.body
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }

    def class_named(self, name: str) -> ast.ClassDef | None:
        """The class at the top of the module, or ``None``."""
        return next((n for n in reversed(self.tree.body) if isinstance(n, ast.ClassDef) and n.name == name), None)

    def closure(self, names: Iterable[str], without: ast.stmt | None = None) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """The imports and the other statements that give the names, with all that those need, each in the file's
        order."""
        givers: dict[str, list[ast.stmt]] = {}
        for node in self.tree.body:
            if node is not without and not isinstance(node, (ast.Import, ast.ImportFrom)):
                for name in given(node) | changed(node) - self.imports.keys():
                    givers.setdefault(name, []).append(node)
        wanted: list[ast.stmt] = []
        seen: set[str] = set()
        waiting = sorted(names)
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            for node in givers.get(name, ()):
                if node not in wanted:
                    wanted.append(node)
                    waiting += sorted(self._needs(node))
        imports = [node for name, node in self.imports.items() if name in seen]
        return imports, [n for n in self.tree.body if n in wanted]

    def globals_of(self, scope: symtable.SymbolTable, methods: set[str] | None = None) -> set[str]:
        """Names of the module that a function or class refers to; of a class, in its own statements and ``methods``
        alone."""
        found = {s.get_name() for s in scope.get_symbols() if s.is_referenced() and (s.is_global() or s.is_free())}
        if methods is not None:
            found |= {s.get_name() for s in scope.get_symbols() if s.is_referenced()}
        for child in scope.get_children():
            if methods is None or child.get_name() in methods:
                found |= self.globals_of(child)
        return found

    def _needs(self, node: ast.stmt) -> set[str]:
        """Names of the module that a statement refers to."""
        scope = self.scopes.get(getattr(node, "name", ""))
        return names_in(node) if scope is None else self.globals_of(scope) | _outer_names(node)


def first_line(node: ast.stmt) -> int:
    """The line where a statement begins, its decorators included."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def names_in(node: ast.AST) -> set[str]:
    """All names that stand in a piece of source."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def given(node: ast.stmt) -> set[str]:
    """Names that a statement gives to its module."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for part in ast.walk(node):
        if isinstance(part, (ast.Import, ast.ImportFrom)):
            found |= {_bound(alias) for alias in part.names}
    return found


def changed(node: ast.stmt) -> set[str]:
    """Names whose values a statement changes: of ``table`` in ``table.append(1)``, ``table[0] = 1`` and ``table.size =
    2``."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        parts.append(node.value.func)
    parts += [t for t in _targets(node) if not isinstance(t, ast.Name)]
    return {name for part in parts for name in [_root(part)] if name}


def _targets(node: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        yield from node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        yield node.target


def _root(part: ast.expr) -> str | None:
    """The name that a chain of attributes and subscripts begins with; ``None`` for a name alone."""
    inner = part
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        inner = inner.value
    return inner.id if isinstance(inner, ast.Name) and inner is not part else None


def _bound(alias: ast.alias) -> str:
    """The name that an import gives."""
    return (alias.asname or alias.name).split(".")[0]


def _outer_names(node: ast.AST) -> set[str]:
    """Names that a definition needs where it stands: bases, decorators, defaults."""
    found: set[str] = set()
    for field in ("bases", "decorator_list"):
        for part in getattr(node, field, []):
            found |= names_in(part)
    for part in ast.walk(node):
        if isinstance(part, ast.arguments):
            for default in (*part.defaults, *(d for d in part.kw_defaults if d is not None)):
                found |= names_in(default)
    return found
