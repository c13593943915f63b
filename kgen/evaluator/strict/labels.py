"""Labels of foreign candidates: what a reader of the result should know. They decide nothing."""

from __future__ import annotations

import ast
import re
from typing import Any, Iterator, Mapping

from kgen import syntax

NO_KERNEL = "no kernel of its own: calls the library only"
#: Imports and names through which a file can run code that is neither Python nor the library's.
_NATIVE = re.compile(
    r"(ctypes|cffi|_cffi_backend|triton|numba|cupy|cuda|pybind11|cython|pycuda|jax|tvm|cutlass|tilelang)\b.*|"
    r"torch\.utils\.cpp_extension.*|torch\.(ops|classes)\.load_library|torch\.(compile|jit|_inductor|cuda\._compile_kernel).*|"
    r"importlib.*|__import__|exec|eval|runpy.*")


def static_labels(source: str) -> list[str]:
    """The label of a file that cannot have a kernel of its own."""
    return [] if has_native_code(source) else [NO_KERNEL]


def has_native_code(source: str) -> bool:
    """Whether a file may run native code of its own; assumed where the file cannot be parsed."""
    try:
        return any(_NATIVE.fullmatch(name) for name in _names(syntax.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def _names(tree: ast.AST) -> Iterator[str]:
    """The modules that a file imports and the dotted names that it uses; ``F.linear`` is spelled in full."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            aliases |= found
            yield from (node.module or "", *found.values())

    def spell(node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return aliases.get(node.id, node.id)
        return f"{spell(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"

    yield from (spell(node) for node in ast.walk(tree) if isinstance(node, (ast.Name, ast.Attribute)))


def profile_labels(found: Mapping[str, Any], *, native: bool, cuda: bool) -> list[str]:
    """The share of time in own kernels, from a worker's answer, which may hold anything. On the CPU, Python's time
    counts as the kernels'."""
    own, total = (found.get(name) for name in ("own_ns", "all_ns"))
    if type(own) is not int or type(total) is not int or total <= 0 or own < 0:
        return ["share of own kernels not known: the profiler sees no kernel here"]
    if not native or own == 0:
        return [NO_KERNEL]
    percent = 100 * min(own / total, 1.0)
    what = "own kernels" if cuda else "own kernels and Python"
    return [f"{what} {percent:.0f}% of the time" if percent >= 1 else f"{what} less than 1% of the time"]
