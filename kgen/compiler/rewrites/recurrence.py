"""Rewrites of recurrent layers, which the library computes in one call.

    layers_apart     lstm(x) becomes, for each layer, one product of all steps' inputs, and the steps
    layers_as_wave   one product for the first layer, and the steps of all layers, which multiply what goes between them

Apart, the products of a layer are one large contraction. As a wave, layer l takes step t while the layer above takes
step t - 1. Layers of two directions need all steps of the layer below, so that they are no wave.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.graph.graph import FoldedWeight, Node, Operand, OpGraph, Tensor
from kgen.compiler.graph.library_call import Applied, Many, Value, X, Y, Z, functional, torch_
from kgen.compiler.loops.recurrence import OUTPUT
from kgen.compiler.operators.recurrences import CELLS

#: The library's operators by their names as nodes, which have packed sequences and projections under other names or
#: shapes.
CALLS = {f"aten.{name}.input": name for name in CELLS}


def layers_apart(graph: OpGraph) -> OpGraph:
    """Every call of recurrent layers as one product and one recurrence for each layer."""
    return _all(graph, wave=False)


def layers_as_wave(graph: OpGraph) -> OpGraph:
    """Every call of several layers of one direction as one product and one recurrence."""
    return _all(graph, wave=True)


@dataclass(frozen=True)
class Layers:
    """One call: ``params`` are the weights and biases of each layer and direction, ``states`` the initial ones, or none
    for zeros."""

    name: str
    op: str
    x: str
    states: tuple[str, ...]
    params: tuple[tuple[str, ...], ...]
    biased: bool
    depth: int
    directions: int
    batch_first: bool


def _all(graph: OpGraph, wave: bool) -> OpGraph:
    for node in graph.nodes:
        found = layers_of(graph, node) if node.op in CALLS else None
        if found and not (wave and (found.depth == 1 or found.directions == 2)):
            graph = _replaced(graph, node, found, wave)
    return graph


def layers_of(graph: OpGraph, node: Node) -> Layers | None:
    """The arguments of a call that kernels may take; ``None`` of others: of several dtypes, projections, dropout
    between layers."""
    args = node.call.args if isinstance(node.call, Applied) else ()
    if len(args) != 9 or node.call.kwargs or any(u.op != "_operator.getitem" for u in graph.users(node.name)):
        return None
    x, states, params, biased, depth, dropout, train, both, batch_first = args
    given = states.items if isinstance(states, Many) else (states,)
    if not all(isinstance(value, Value) for value in (x, *given, *params.items)) or (dropout and train and depth > 1):
        return None
    names, directions, each = (
        [node.values[value.number] for value in params.items],
        2 if both else 1,
        4 if biased else 2,
    )
    rest = [node.values[value.number] for value in (x, *given)]
    dtypes = {graph.type(name).dtype for name in (*rest, *names)}
    plain = len(dtypes) == 1 and (dtypes == {"float32"} or all(map(is_narrow, dtypes)))
    if (
        len(names) != depth * directions * each
        or not plain
        or not all(map(graph.is_weight, names))
        or graph.changed.intersection(names)
    ):
        return None
    weight, multiples = graph.type(names[1]), graph.type(rest[0]).multiples
    if (
        weight.shape[0] != CELLS[CALLS[node.op]].gates * weight.shape[1]
        or multiples[2]
        or 0 in graph.type(rest[0]).shape
    ):
        return None
    parts = tuple(tuple(names[at : at + each]) for at in range(0, len(names), each))
    zeros = all(graph.is_zero(name) for name in rest[1:])
    return Layers(
        node.name,
        CALLS[node.op],
        rest[0],
        () if zeros else tuple(rest[1:]),
        parts,
        biased,
        depth,
        directions,
        batch_first,
    )


def _replaced(graph: OpGraph, node: Node, of: Layers, wave: bool) -> OpGraph:
    """The graph with nodes for one call's results, of those that are used."""
    wanted = {user["at"]: user for user in graph.users(node.name)}
    nodes: list[Node] = []
    last: dict[int, list[str]] = {at: [] for at in wanted if at != OUTPUT}
    x = of.x
    for first in range(0, of.depth, of.depth if wave else 1):
        graph, products = _products(graph, node, of, x, first, nodes)
        depth = of.depth if wave else 1
        read = OUTPUT in wanted or first + depth < of.depth
        made = _recurrence(graph, node, of, products, first, depth, nodes, last.keys() | ({OUTPUT} if read else set()))
        x = made.get(OUTPUT, x)
        for at, names in last.items():
            names.append(made[at])
    results = {at: _joined(graph, of, names, wanted[at].type, nodes) for at, names in last.items()} | {OUTPUT: x}
    graph = graph.with_nodes_for(node.name, nodes)
    for at, user in wanted.items():
        graph = graph.without(user.name, results[at])
    return graph.pruned()


def _products(graph: OpGraph, call: Node, of: Layers, x: str, layer: int, nodes: list[Node]) -> tuple[OpGraph, str]:
    """The node of a layer's input products: of both directions, with their weights one behind the other."""
    params = of.params[layer * of.directions : (layer + 1) * of.directions]
    operands = []
    for part in (0, 2) if of.biased else (0,):
        names = tuple(p[part] for p in params)
        if len(names) == 1:
            operands.append(names[0])
            continue
        one = graph.type(names[0])
        both = FoldedWeight(
            graph.fresh(f"{names[0]}_both"),
            Tensor((2 * one.shape[0], *one.shape[1:]), one.dtype),
            torch_("cat", (X, Y)),
            names,
        )
        graph = graph.with_folded(both)
        operands.append(both.name)
    of_x = next((n.type for n in nodes if n.name == x), None) or graph.type(x)
    columns = of.directions * graph.type(params[0][0]).shape[0]
    type_ = Tensor((*of_x.shape[:2], columns), of_x.dtype, (*of_x.multiples[:2], 0))
    name = graph.fresh(f"{of.name}_products_{layer}" if of.depth > 1 else f"{of.name}_products")
    product = functional("linear", *(X, Y, Z)[: len(operands) + 1])
    nodes.append(Node(name, "linear", (x, *operands), type_, product, tf32=call.tf32, products=call.products))
    return graph, name


def _recurrence(
    graph: OpGraph, call: Node, of: Layers, products: str, first: int, depth: int, nodes: list[Node], results: set[int]
) -> dict[int, str]:
    """The nodes of the results of some layers of the library's ``call``."""
    type_ = next(n.type for n in nodes if n.name == products)
    inputs: list[Operand] = [products, *of.states]
    for number in range(first * of.directions, (first + depth) * of.directions):
        inner_weight, weight, *biases = of.params[number]
        inner = number >= (first + 1) * of.directions
        inputs += [weight, *biases[1:], *([inner_weight, *biases[:1]] if inner else [])]
    hidden = graph.type(of.params[0][1]).shape[1]
    batch = 0 if of.batch_first else 1
    attrs = {
        "hidden": hidden,
        "directions": of.directions,
        "layers": depth,
        "first": first * of.directions,
        "batch_first": of.batch_first,
        "biased": of.biased,
        "stateful": bool(of.states),
    }
    made = {}
    for result in sorted(results):
        width = hidden * of.directions
        each = Tensor((*type_.shape[:2], width), type_.dtype, (*type_.multiples[:2], 0))
        final = Tensor((depth * of.directions, type_.shape[batch], hidden), type_.dtype, (0, type_.multiples[batch], 0))
        stem = ("output", "hidden", "cell")[result]
        made[result] = graph.fresh(f"{of.name}_{stem}" if depth == of.depth else f"{of.name}_{stem}_{first}")
        nodes.append(
            Node(
                made[result],
                of.op,
                tuple(inputs),
                each if result == OUTPUT else final,
                None,
                (*attrs.items(), ("result", result)),
                tf32=call.tf32,
                products=call.products,
            )
        )
    return made


def _joined(graph: OpGraph, of: Layers, names: list[str], type_: Tensor, nodes: list[Node]) -> str:
    """The last states of all layers as one value."""
    if len(names) == 1:
        return names[0]
    made = graph.fresh(f"{names[0]}_joined")
    nodes.append(
        Node(made, "cat", tuple(names), type_, torch_("cat", Many(tuple(map(Value, range(len(names)))))), (("dim", 0),))
    )
    return made
