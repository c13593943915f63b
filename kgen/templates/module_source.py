"""The parts of a problem's source that a ``ModelNew`` takes over."""

from __future__ import annotations

import ast
import re
import symtable
import textwrap
from functools import cached_property

from kgen import syntax
from kgen.errors import CaptureError
from kgen.problem import Problem


#: Names at the top of a ModelNew's file; a definition of the problem may not have one of them.
FILE_NAMES = frozenset(
    "launch dense check expect on_device alone ForwardOnly CUDA_SOURCE CUDA_FLAGS CPP_SOURCE CFLAGS NAME ModelNew".split()
)


class ModuleSource:
    """The parts of a problem's file that a ``ModelNew`` takes over: the construction of ``Model``, and its needs."""

    def __init__(self, problem: Problem) -> None:
        self.source = problem.source
        self.tree = syntax.parse(self.source)
        self.lines = self.source.splitlines()
        self.scopes = {t.get_name(): t for t in symtable.symtable(self.source, "problem", "exec").get_children()}
        self.model = self._class("Model")
        self.class_body: list[str] = []
        if self.model is not None:
            kept = self._kept_methods()
            self.class_body = [self._text(n, "    ") for n in self.model.body if self._is_kept(n, kept)]
            self.bases = ", ".join(ast.unparse(b) for b in self.model.bases) or "nn.Module"
            needed = self._globals(self.scopes["Model"], kept)
            for base in (*self.model.bases, *self.model.decorator_list):
                needed |= _names(base)
        else:
            self.bases = self._made_elsewhere(problem)
            needed = _names(ast.parse(self.bases))
        self.definitions, self.imports = self._outside(needed)
        hidden = sorted(FILE_NAMES & self.defined)
        if hidden:
            raise CaptureError(f"{problem.path}: {hidden[0]} is a name that ModelNew needs for itself: rename it")

    @cached_property
    def signature(self) -> str | None:
        """Parameters of ``forward`` as the file has them, without annotations; ``None`` where it inherits them from elsewhere."""
        forward = self._forward("Model", frozenset())
        if forward is None:
            return None
        arguments = forward.args
        every = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
        for a in every:
            if a is not None:
                a.annotation = None
        every[0].arg = "self"
        return ast.unparse(arguments)

    def _forward(self, name: str, seen: frozenset[str]) -> ast.FunctionDef | None:
        """The definition of ``forward`` that a class of the file has or inherits from another of the file."""
        found = self._class(name)
        if found is None or name in seen:
            return None
        own = next((n for n in found.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
        bases = (self._forward(b.id, seen | {name}) for b in found.bases if isinstance(b, ast.Name))
        return own or next((f for f in bases if f is not None), None)

    def _class(self, name: str) -> ast.ClassDef | None:
        return next((n for n in reversed(self.tree.body) if isinstance(n, ast.ClassDef) and n.name == name), None)

    def _made_elsewhere(self, problem: Problem) -> str:
        """Python source of the class that the file calls ``Model`` without defining it."""
        for node in reversed(self.tree.body):
            if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == "Model" for a in node.names):
                return "Model"
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "Model" for t in node.targets):
                return ast.unparse(node.value)
        raise CaptureError(f"{problem.path}: Model is not a class: define it with `class Model(nn.Module)`")

    def _kept_methods(self) -> set[str]:
        """Methods that constructing the model calls, directly or not, and those of Python's own protocols."""
        methods = {n.name: n for n in self.model.body if isinstance(n, ast.FunctionDef) and n.name != "forward"}
        kept = {n for n in methods if n.startswith("__") or n == "extra_repr"}
        waiting = list(kept)
        while waiting:
            for node in ast.walk(methods[waiting.pop()]):
                called = node.attr if isinstance(node, ast.Attribute) else None
                if called in methods and called not in kept:
                    kept.add(called)
                    waiting.append(called)
        return kept

    def _is_kept(self, node: ast.stmt, kept: set[str]) -> bool:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return node.name in kept
        return not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) and not isinstance(node, ast.Pass)

    def _globals(self, scope: symtable.SymbolTable, children: set[str] | None = None) -> set[str]:
        """Names of the module that a class or function refers to; of a class, in these of its methods alone."""
        found = {s.get_name() for s in scope.get_symbols() if s.is_referenced() and (s.is_global() or s.is_free())}
        if children is not None:
            # Names in the class's own statements, which may be the module's.
            found |= {s.get_name() for s in scope.get_symbols() if s.is_referenced()}
        for child in scope.get_children():
            if children is None or child.get_name() in children:
                found |= self._globals(child)
        return found

    def _outside(self, needed: set[str]) -> tuple[list[str], list[str]]:
        """Definitions and imports of the module that the names need, each after what it needs itself."""
        owners: dict[str, ast.stmt] = {}
        imports: dict[str, str] = {}
        for node in self.tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for alias in node.names:
                    single = ast.unparse(type(node)(**{**vars(node), "names": [alias]}))
                    imports[(alias.asname or alias.name).split(".")[0]] = single
            elif node is not self.model:
                for name in _defined(node):
                    owners[name] = node
        wanted: list[ast.stmt] = []
        used_imports: dict[str, str] = {}

        def need(names: set[str]) -> None:
            for name in sorted(names):
                if name in imports:
                    used_imports[name] = imports[name]
                node = owners.get(name)
                if node is not None and node not in wanted:
                    wanted.append(node)
                    scope = self.scopes.get(name)
                    need(_names(node) if scope is None else self._globals(scope) | _outer_names(node))

        need(needed)
        ordered = [n for n in self.tree.body if n in wanted]
        self.defined = set().union(*map(_defined, ordered))
        return [self._text(n, "") for n in ordered], list(dict.fromkeys(used_imports.values()))

    def _text(self, node: ast.stmt, indent: str) -> str:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        # A comment right above belongs to what it stands above.
        while first > 1 and self.lines[first - 2].strip().startswith("#"):
            first -= 1
        text = textwrap.dedent("\n".join(self.lines[first - 1 : node.end_lineno]))
        return textwrap.indent(re.sub(r"\bModel\b", "ModelNew", text), indent)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _outer_names(node: ast.AST) -> set[str]:
    """Names that a definition needs where it stands: bases, decorators, defaults."""
    found: set[str] = set()
    for field in ("bases", "decorator_list"):
        for part in getattr(node, field, []):
            found |= _names(part)
    for part in ast.walk(node):
        if isinstance(part, ast.arguments):
            for default in (*part.defaults, *(d for d in part.kw_defaults if d is not None)):
                found |= _names(default)
    return found


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
