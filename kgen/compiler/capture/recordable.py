"""Whether a forward may be recorded as a CUDA graph and replayed on other values."""

from __future__ import annotations

from typing import Any, Iterator

from kgen.compiler.graph.contractions import RECURRENT
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.graph.library_call import Applied, LibraryCall, Literal
from kgen.compiler.operators.library import LEFT, LIBRARY

#: Operators that draw random numbers only if their argument of this number, the probability to drop a value, is above
#: 0.
_DROPPING = {"aten.scaled_dot_product_attention.default": (4, "dropout_p")}
_LEFT = frozenset(name for of in LEFT for name in of.operators)
#: By the names of torch's tags.
_NOT_REPLAYED = {
    "nondeterministic_seeded": "draws random numbers",
    "dynamic_output_shape": "has a result whose size depends on values",
    "data_dependent_output": "hands a value to Python",
}


def obstacle(graph: OpGraph) -> str | None:
    """The first reason why a replay would not do what forward does, in one line; ``None`` where there is none."""
    if len(set(graph.returns)) < len(graph.returns):
        return "forward returns one tensor twice"
    return next((found for node in graph.nodes if (found := _of_node(node)) is not None), None)


def _of_node(node: Node) -> str | None:
    if node.effect:
        return f"{node.name} changes a buffer"
    if (of := LIBRARY.get(node.op)) is not None and of.sums is RECURRENT:
        return f"{node.name} is a recurrent layer of the library"
    for part in _parts(node.call):
        if isinstance(part, Literal):
            return f"{node.name} makes a tensor on the host"
        if isinstance(part, Applied) and part.function.startswith("aten.") and (found := _of_operator(part)):
            return f"{node.name} {found}"
    return None


def _of_operator(call: Applied) -> str:
    name, _, overload = call.function.removeprefix("aten.").partition(".")
    if call.function in _DROPPING:
        place, keyword = _DROPPING[call.function]
        drops = call.args[place] if len(call.args) > place else dict(call.kwargs).get(keyword, 0.0)
        return "" if drops == 0 else "draws random numbers"
    import torch

    operator = getattr(getattr(torch.ops.aten, name, None), overload, None)
    tags = {tag.name for tag in getattr(operator, "tags", ())}
    said = next((said for tag, said in _NOT_REPLAYED.items() if tag in tags), "")
    return said or (f"calls {name}, which may ask the device for values" if name in _LEFT else "")


def _parts(value: Any) -> Iterator[Any]:
    """A call and all that is in it."""
    yield value
    if isinstance(value, tuple):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, LibraryCall) or hasattr(value, "items") and not isinstance(value, dict):
        for item in vars(value).values():
            yield from _parts(item)
