"""The parts of a problem's file that a ``ModelNew`` takes over: the construction of ``Model``, and what that needs."""

from __future__ import annotations

import ast
import re
import textwrap
from functools import cached_property, lru_cache

from kgen.errors import CaptureError
from kgen.problems import syntax
from kgen.problems.definitions import Definitions, first_line, given, names_in

#: Names at the top of a ModelNew's file; a definition of the problem may not have one of them.
FILE_NAMES = frozenset(
    "launch fill dense typed check expect on_device untraced alone Kept Graphs ForwardOnly CUDA_SOURCE CUDA_FLAGS "
    "CPP_SOURCE CFLAGS NAME "
    "ModelNew".split()
)


class ModuleSource:
    """The source of a ``ModelNew`` but for its forward.

    ``bases`` and ``class_body`` are those of the class; ``definitions`` and ``imports`` stand before it.
    """

    def __init__(self, source: str, path: str) -> None:
        self.module = Definitions(source)
        self.lines = source.splitlines()
        self.model = self.module.class_named("Model")
        self.class_body: list[str] = []
        if self.model is not None:
            kept = self._kept_methods()
            self.class_body = [self._text(n, "    ") for n in self.model.body if self._is_kept(n, kept)]
            self.bases = ", ".join(ast.unparse(b) for b in self.model.bases) or "nn.Module"
            needed = self.module.globals_of(self.module.scopes["Model"], kept)
            for base in (*self.model.bases, *self.model.decorator_list):
                needed |= names_in(base)
        else:
            self.bases = self._made_elsewhere(path)
            needed = names_in(syntax.parse(self.bases))
        imports, statements = self.module.closure(needed, without=self.model)
        self.imports = [ast.unparse(n) for n in imports]
        self.definitions = [self._text(n, "") for n in statements]
        hidden = sorted(FILE_NAMES & set().union(*map(given, statements)))
        if hidden:
            raise CaptureError(f"{path}: {hidden[0]} is a name that ModelNew needs for itself: rename it")

    @cached_property
    def signature(self) -> str | None:
        """Parameters of ``forward`` as the file has them, without annotations; ``None`` where another file has them."""
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
        found = self.module.class_named(name)
        if found is None or name in seen:
            return None
        own = next((n for n in found.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
        bases = (self._forward(b.id, seen | {name}) for b in found.bases if isinstance(b, ast.Name))
        return own or next((f for f in bases if f is not None), None)

    def _made_elsewhere(self, path: str) -> str:
        """Python source of the class that the file calls ``Model`` without defining it."""
        if "Model" in self.module.imports:
            return "Model"
        for node in reversed(self.module.tree.body):
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "Model" for t in node.targets):
                return ast.unparse(node.value)
        raise CaptureError(f"{path}: Model is not a class: define it with `class Model(nn.Module)`")

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
        return not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) and not isinstance(
            node, ast.Pass
        )

    def _text(self, node: ast.stmt, indent: str) -> str:
        first = first_line(node)
        # A comment right above belongs to the statement.
        while first > 1 and self.lines[first - 2].strip().startswith("#"):
            first -= 1
        text = textwrap.dedent("\n".join(self.lines[first - 1 : node.end_lineno]))
        return textwrap.indent(re.sub(r"\bModel\b", "ModelNew", text), indent)


@lru_cache(maxsize=8)
def module_source(source: str, path: str) -> ModuleSource:
    """The parts of a problem's ``source``, read once for all of its candidates. Raises :class:`CaptureError`."""
    return ModuleSource(source, path)
