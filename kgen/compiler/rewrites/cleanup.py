"""Rewrites that every graph is better with, and the decomposition of operators that the table lacks."""

from __future__ import annotations

import math
from dataclasses import replace

from kgen.compiler.graph import complex_numbers
from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.graph.graph import FoldedWeight, Node, Operand, OpGraph, Tensor
from kgen.compiler.graph.library_call import Value, X, Y, aten, dtype_named, functional, rounded, torch_, widened
from kgen.compiler.graph.source import reshape_call
from kgen.compiler.operators.facts import is_view
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS


def decompose(graph: OpGraph, whole: frozenset[str] = frozenset()) -> OpGraph:
    """Nodes that have a decomposition as its operators, but for those in ``whole``.

    Parts compute with pairs of real numbers where nodes compute with complex ones.
    """
    pairs: dict[str, str] = {}
    for name in [n.name for n in graph.nodes if n.parts and n.name not in whole]:
        node, users = (
            graph.node(name),
            graph.users(name),
        )  # as it reads now: an operand may have been taken apart before
        found = node.parts
        if any(_is_complex(graph, v) and _memory(graph, v) in graph.changed for v in node.values):
            continue  # the pairs would be read after a write, too
        several = node.type is None  # of a list of one result, too
        if several and any(u.op != "_operator.getitem" for u in users):
            continue
        is_complex = _is_complex(graph, node.name)
        nodes = _paired_operands(graph, node, pairs)
        names: dict[str, Operand] = {f"@{number}": pairs.get(value, value) for number, value in enumerate(node.inputs)}
        for part in found.nodes:
            is_result = not several and not is_complex and part.name == found.results[0]
            names[part.name] = node.name if is_result else graph.fresh(f"{node.name}_{part.name}")
            inputs = tuple(names[i] if isinstance(i, str) else i for i in part.inputs)
            nodes.append(replace(part, name=names[part.name], inputs=inputs, origin=node.name))
        results = [names[r] for r in found.results]
        if is_complex:
            pairs[node.name] = results[0]
            nodes.append(
                replace(
                    node,
                    op=complex_numbers.TO_COMPLEX,
                    inputs=(results[0],),
                    call=complex_numbers.TO_COMPLEX_CALL,
                    parts=None,
                )
            )
        graph = graph.with_nodes_for(node.name, nodes)
        if several:
            for user in users:
                graph = graph.without(user.name, results[user["at"]])
        elif not is_complex and results[0] != node.name:
            graph = graph.without(node.name, results[0])
    return graph.pruned()


def _is_complex(graph: OpGraph, value: str) -> bool:
    type_ = graph.known_type(value)
    return type_ is not None and type_.dtype == complex_numbers.DTYPE


def _paired_operands(graph: OpGraph, node: Node, pairs: dict[str, str]) -> list[Node]:
    """Views of the node's complex operands that have no ``pairs`` yet, which are put there."""
    nodes = []
    for value in dict.fromkeys(node.values):
        if _is_complex(graph, value) and value not in pairs:
            type_ = graph.type(value)
            pairs[value] = graph.fresh(f"{value}_pairs")
            seen_as = Tensor((*type_.shape, 2), "float32", (*type_.multiples, 0))
            nodes.append(Node(pairs[value], complex_numbers.TO_PAIRS, (value,), seen_as, complex_numbers.TO_PAIRS_CALL))
    return nodes


def drop_identity(graph: OpGraph) -> OpGraph:
    """Drop nodes that return their first operand unchanged, and factors of one.

    A copy that forward returns is kept: without it, two outputs, or an output and an input, would share memory. So is
    one of a buffer that changes: it has the values of before.
    """
    changed = graph.changed
    for name in [n.name for n in graph.nodes]:
        node = graph.node(name)  # as it reads now: its operand may have been dropped before it
        source = node.inputs[0] if node.inputs else None
        if not isinstance(source, str) or (
            node.op in _COPIES and (name in graph.returns or _memory(graph, source) in changed)
        ):
            continue
        if _is_identity(graph, node) or (_factor(node) == (source, 1) and graph.type(source).dtype == node.type.dtype):
            graph = graph.without(name, source)
    return graph


#: Operators whose results may have memory of their own.
_COPIES = ("clone", "cast", "contiguous", "to_format")


def _memory(graph: OpGraph, value: str) -> str:
    """The value whose memory this one has, as far as views and writes in place tell."""
    while (node := graph.producer(value)) and node.values and (node.effect or is_view(node)):
        value = node.values[0]
    return value


def _is_identity(graph: OpGraph, node: Node) -> bool:
    """Whether the node returns its first operand as it is."""
    if node.op == "permute":
        return node["dims"] == tuple(range(len(node["dims"])))
    if node.op in ("view", "expand", "cast"):  # `x.float()` of float32, too
        return node.type == graph.type(node.inputs[0])
    return node.op in OPS and OPS[node.op].kind is Kind.IDENTITY


#: The reduction of a bag, by the number that the operator has for it.
_OF_BAGS = {0: "sum", 1: "mean", 2: "amax"}


def bags_to_sums(graph: OpGraph) -> OpGraph:
    """``embedding_bag`` of bags of one size as the rows of each bag, and their sum, mean or maximum, in float32 on the
    way."""
    for node in graph.nodes:
        parts = graph.users(node.name) if node.op == "aten.embedding_bag.padding_idx" else ()
        if (
            len(parts) != 1
            or parts[0].op != "_operator.getitem"
            or parts[0]["at"] != 0
            or len(node.values) not in (3, 4)
        ):
            continue
        table, indices, offsets, *weights = node.values
        given = dict(zip(("scale", "mode", "sparse", "weights", "last", "padding"), node.call.args[3:]))
        first, of, result = graph.producer(offsets), graph.type(indices), parts[0].type
        plain = given.get("mode", 0) in _OF_BAGS and not given.get("last") and given.get("padding", -1) in (None, -1)
        if (
            not plain
            or first is None
            or first.op != "arange"
            or first["start"] != 0
            or result.shape[0] * first["step"] != of.numel
        ):
            continue
        size, op = first["step"], _OF_BAGS[given.get("mode", 0)]
        bags = Tensor((result.shape[0], size), of.dtype, (result.multiples[0], 0))
        rows = Tensor((*bags.shape, result.shape[1]), result.dtype, (*bags.multiples, 0))
        view = Node(graph.fresh(f"{node.name}_bags"), "view", (indices,), bags, reshape_call(bags))
        looked_up = Node(
            graph.fresh(f"{node.name}_rows"),
            "embedding",
            (table, view.name),
            rows,
            functional("embedding", Y, X),
            (("dim", 0),),
        )
        found = [view, looked_up]
        for weight in weights:
            each = replace(bags, shape=(*bags.shape, 1), dtype=graph.type(weight).dtype, multiples=(*bags.multiples, 0))
            found.append(Node(graph.fresh(f"{node.name}_weights"), "view", (weight,), each, reshape_call(each)))
            found.append(
                Node(
                    graph.fresh(f"{node.name}_weighted"),
                    "mul",
                    (looked_up.name, found[-1].name),
                    rows,
                    torch_("mul", X, Y),
                )
            )
        total = Node(
            parts[0].name, op, (found[-1].name,), result, torch_(op, X, (1,)), (("dims", (1,)), ("keepdim", False))
        )
        graph = graph.with_nodes_for(parts[0].name, (*found, total)).pruned()
    return graph


def fold_casts(graph: OpGraph) -> OpGraph:
    """Keep a weight that each call casts for a contraction, as autocast does, in the other dtype."""
    known: dict[tuple[str, str], str] = {}
    for node in graph.nodes:
        if (
            node.op != "cast"
            or not graph.is_weight(node.inputs[0])
            or not any(map(_is_contraction, graph.users(node.name)))
        ):
            continue
        key = node.inputs[0], node.type.dtype
        if key not in known:
            known[key] = graph.fresh(f"{node.inputs[0]}_{node.type.dtype}")
            graph = graph.with_folded(
                FoldedWeight(known[key], node.type, X.method("to", dtype_named(node.type.dtype)), key[:1])
            )
        graph = graph.without(node.name, known[key])
    return graph


def _is_contraction(node: Node) -> bool:
    return node.op in OPS and OPS[node.op].kind is Kind.CONTRACTION


#: The calls that transpose a matrix.
_TRANSPOSES = (*(aten(f"{name}.default", X) for name in ("t", "numpy_T", "mT")),
               *(aten("transpose.int", X, *dims) for dims in ((0, 1), (1, 0), (-2, -1), (-1, -2))))  # fmt: skip


def matmul_to_linear(graph: OpGraph) -> OpGraph:
    """A contraction with the transpose of a matrix, and a bias for each column, as a linear layer."""
    for node in graph.nodes:
        if node.op not in ("matmul", "mm", "addmm"):
            continue
        x, right, *bias = node.inputs
        turned = graph.producer(right)
        if turned is None or turned.call not in _TRANSPOSES or len(turned.type.shape) != 2:
            continue
        if len(graph.type(x).shape) < 2 or any(graph.type(b).shape != node.type.shape[-1:] for b in bias):
            continue
        inputs = (x, turned.inputs[0], *bias)
        call = functional("linear", *map(Value, range(len(inputs))))
        graph = graph.with_node(replace(node, op="linear", inputs=inputs, call=call, attrs=()))
    return graph


#: Reductions of few values as maps of two of them.
_OF_TWO = {
    "sum": ("add", torch_("add", X, Y)),
    "mean": ("add", torch_("add", X, Y)),
    "prod": ("mul", torch_("mul", X, Y)),
    "amax": ("maximum", torch_("maximum", X, Y)),
    "amin": ("minimum", torch_("minimum", X, Y)),
}


MOST_STACKED = 16  # tensors; a map of more would hold too many values


def stack_to_maps(graph: OpGraph) -> OpGraph:
    """A reduction of the tensors of a stack as maps of two of them after one another, in float32 on the way."""
    for node in graph.nodes:
        stack = graph.producer(node.inputs[0]) if node.op in _OF_TWO and is_float(node.type.dtype) else None
        if (
            stack is None
            or stack.op != "cat"
            or node["dims"] != (stack["dim"],)
            or not graph.feeds_only(stack.name, node)
        ):
            continue
        types = [graph.type(part) for part in stack.inputs]
        stacked = len(types[0].shape) < len(stack.type.shape)
        if (
            len(set(types)) > 1
            or not 1 < len(types) <= MOST_STACKED
            or not (stacked or types[0].shape[stack["dim"]] == 1)
        ):
            continue
        op, call = _OF_TWO[node.op]
        found, *others = stack.inputs
        maps = []
        for other in others:
            maps.append(
                Node(
                    graph.fresh(f"{node.name}_{len(maps) + 1}"),
                    op,
                    (found, other),
                    replace(types[0], dtype="float32"),
                    widened(call, node.type.dtype),
                )
            )
            found = maps[-1].name
        if node.op == "mean":
            maps.append(
                Node(
                    graph.fresh(f"{node.name}_mean"),
                    "div",
                    (found, len(types)),
                    maps[-1].type,
                    torch_("div", X, len(types)),
                )
            )
        maps[-1] = replace(maps[-1], type=types[0], call=rounded(maps[-1].call, node.type.dtype))
        if types[0].shape != node.type.shape:
            maps.append(Node(node.name, "view", (maps[-1].name,), node.type, reshape_call(node.type)))
            graph = graph.with_nodes_for(node.name, maps)
        else:
            graph = graph.with_nodes_for(node.name, maps).without(node.name, maps[-1].name)
    return graph


_USUAL_SOFTPLUS = {"beta": 1, "threshold": 20}  # the one in mish


def softplus_to_mish(graph: OpGraph) -> OpGraph:
    """``x * tanh(softplus(x))`` as ``mish(x)``."""
    for node in graph.nodes:
        if node.op != "mul":
            continue
        for x, other in (node.inputs, node.inputs[::-1]):
            tanh = graph.producer(other)
            if tanh is None or tanh.op != "tanh" or not graph.feeds_only(other, node):
                continue
            softplus = graph.producer(tanh.inputs[0])
            if softplus is None or softplus.op != "softplus" or not graph.feeds_only(softplus.name, tanh):
                continue
            if softplus.inputs == (x,) and dict(softplus.attrs).items() >= _USUAL_SOFTPLUS.items():
                graph = graph.with_node(
                    replace(node, op="mish", inputs=(x,), call=functional("mish", X), attrs=())
                ).pruned()
                break
    return graph


def quotient_to_remainder(graph: OpGraph) -> OpGraph:
    """``x - x // y * y`` of integers as ``x % y``."""
    for node in graph.nodes:
        product = graph.producer(node.inputs[1]) if node.op == "sub" and isinstance(node.inputs[1], str) else None
        if product is None or product.op != "mul" or not graph.feeds_only(product.name, node):
            continue
        for of, y in (product.inputs, product.inputs[::-1]):
            quotient = graph.producer(of) if isinstance(of, str) else None
            if quotient is None or quotient.op != "quotient_of_integers" or quotient.inputs != (node.inputs[0], y):
                continue
            if {graph.type(node.inputs[0]).dtype, quotient.type.dtype, product.type.dtype} == {
                node.type.dtype
            } and graph.feeds_only(of, product):
                call = torch_("remainder", X, Y if isinstance(y, str) else y)
                graph = graph.with_node(
                    replace(node, op="remainder_of_integers", inputs=quotient.inputs, call=call, attrs=())
                ).pruned()
                break
    return graph


def merge_scalar_factors(graph: OpGraph) -> OpGraph:
    """Make one factor of constant factors after one another; ``x + x`` counts as a factor of two."""
    for node in graph.nodes:
        outer = _factor(node)
        if outer is None:
            continue
        source, times = outer
        inner_node = graph.producer(source)
        inner = _factor(inner_node) if inner_node is not None and graph.feeds_only(source, node) else None
        if inner is not None:
            graph = graph.without(source, inner[0])
            source, times = inner[0], times * inner[1]
        if inner is not None or node.op in ("add", "neg", "div"):
            graph = graph.with_node(
                replace(node, op="mul", inputs=(source, times), call=torch_("mul", X, times), attrs=())
            )
    return graph


def _factor(node: Node | None) -> tuple[str, float] | None:
    """``(value, factor)`` where the node is a constant multiple of one value, in float32."""
    if node is None or node.type is None or node.type.dtype != "float32":
        return None
    if node.op == "neg":
        return node.inputs[0], -1.0
    if node.op == "add" and node.inputs[0] == node.inputs[1] and isinstance(node.inputs[0], str):
        return node.inputs[0], 2.0
    if node.op == "mul":
        for value, number in (node.inputs, node.inputs[::-1]):
            if isinstance(value, str) and isinstance(number, (int, float)):
                return value, float(number)
    if node.op == "div" and isinstance(node.inputs[0], str) and isinstance(node.inputs[1], (int, float)):
        divisor = float(node.inputs[1])
        # Only a power of two has an exact reciprocal: x / 3 is not x * (1 / 3).
        if divisor and math.frexp(abs(divisor))[0] == 0.5:
            return node.inputs[0], 1.0 / divisor
    return None
