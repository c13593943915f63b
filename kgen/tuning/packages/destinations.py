"""The method of a winner that launches its kernels, with results in tensors that the caller gives.

y = x.new_empty(batch_size, 64)    becomes    y = _result(0, x, batch_size, 64)
"""

from __future__ import annotations

import ast

from kgen.problems.definitions import Definitions

_METHOD, _GRAPHS = "_run", "_replayed"


def run_into(source: str) -> str | None:
    """The text of a winner's launching method as a function, whose results ``_result`` allocates.

    ``None`` where results have no memory of their own there: the caller copies them then. A CUDA graph keeps the memory
    that it was captured with, so that its results are copied, too.
    """
    methods = {n.name: n for n in Definitions(source).class_named("ModelNew").body if isinstance(n, ast.FunctionDef)}
    if _METHOD not in methods or _GRAPHS in methods:
        return None
    method = methods[_METHOD]
    returned = [n.value for n in ast.walk(method) if isinstance(n, ast.Return) and n.value is not None]
    if len(returned) != 1:
        return None
    results = [ast.unparse(e) for e in (returned[0].elts if isinstance(returned[0], ast.Tuple) else returned)]
    lines, found = source.splitlines(), False
    for node in method.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(name)], value=ast.Call(func=ast.Attribute(value=like, attr="new_empty"))
            ) if results.count(name) == 1:
                of, at = ast.unparse(like), node.lineno - 1
                lines[at] = lines[at].replace(f"{of}.new_empty(", f"_result({results.index(name)}, {of}, ", 1)
                found = True
    text = [line.removeprefix("    ") for line in lines[method.lineno - 1 : method.end_lineno]]
    text[0] = text[0].replace(f"def {_METHOD}(", "def _run_into(")
    return "\n".join(text) if found else None
