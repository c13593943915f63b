"""Lowering of recurrent layers: the results of one call are one program, which computes nothing else."""

from __future__ import annotations

from typing import Sequence

from kgen.compiler.graph.graph import NotFusable, OpGraph
from kgen.compiler.graph.library_call import BatchSize
from kgen.compiler.loops.program import Program
from kgen.compiler.loops.recurrence import Layer, Recurrence
from kgen.compiler.operators.recurrences import CELLS


def recurrence_of(graph: OpGraph, names: Sequence[str], outputs: Sequence[str]) -> Program:
    """The program of nodes that are results of one recurrence. Raises :class:`NotFusable` where others are among
    them."""
    nodes = [graph.node(name) for name in names]
    node = nodes[0]
    if any((n.op, n.inputs) != (node.op, node.inputs) for n in nodes) or set(outputs) != set(names):
        raise NotFusable("a kernel of recurrent layers computes nothing else, and stores each of its results")
    cell, biased = CELLS[node.op], node["biased"]
    rest = list(node.values[1:])
    states = tuple(rest.pop(0) for _ in cell.states if node["stateful"])
    layers = []
    for number in range(node["layers"] * node["directions"]):
        inner = number >= node["directions"]
        weight, bias = rest.pop(0), rest.pop(0) if biased else ""
        layers.append(Layer(weight, bias, rest.pop(0) if inner else "", rest.pop(0) if inner and biased else ""))
    products = graph.type(node.values[0]).sizes()
    steps, batch = (products[1], products[0]) if node["batch_first"] else (products[0], products[1])
    of = Recurrence(
        cell,
        node.values[0],
        node["hidden"],
        steps,
        batch,
        node["batch_first"],
        node["directions"],
        tuple(layers),
        states,
        node["first"],
        tuple((n.name, n["result"]) for n in nodes),
        graph.type(node.values[0]).dtype,
    )
    size = steps if isinstance(steps, BatchSize) else batch
    rows = dict(zip(products, graph.type(node.values[0]).shape))[size]
    return Program(rows, of.hidden, size, of.hidden, (), (), (), (), (), recurrence=of)
