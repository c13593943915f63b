"""Plans, evaluated in float64 with torch alone: each kernel by its loop program, each library call by its own text."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree

from kgen.compiler.fusion.steps import FusionPlan, Library
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.graph.library_call import written
from kgen.compiler.loops.evaluation import evaluate


def inputs_of(graph: OpGraph, module: torch.nn.Module, arguments: dict[str, Any]) -> dict[str, Any]:
    """The graph's inputs, weights, constants and folded weights, by name; floats are float64."""
    names: dict[str, Any] = {"torch": torch, "F": F, "batch_size": graph.batch}
    values: dict[str, Any] = {v.name: eval(v.source, {**names, **arguments}) for v in graph.inputs}
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    values |= {w.name: state[w.path].detach() for w in graph.weights}
    values |= {c.name: eval(c.text, dict(names)) for c in graph.constants}
    values = {name: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for name, v in values.items()}
    for folded in graph.folded:
        # Folded weights are rounded to float32 at their end: here they are not.
        text = written(folded.call, lambda number: f"values['{folded.sources[number]}']", "device")
        text = text.replace(".float()", "").replace("torch.float32", "torch.float64")
        values[folded.name] = eval(text, {**names, "device": torch.device("cpu"), "values": values})
    return values


def _scale(node: Node, values: dict[str, Any], mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """The value of the node ``batch_moments``: the mean and weight / deviation."""
    weight = {role: values[v] for role, v in zip(node["roles"], node.inputs)}.get("weight", torch.ones_like(mean))
    return torch.stack([mean, weight / (variance + node["eps"]).sqrt()])


def run(plan: FusionPlan, module: torch.nn.Module, arguments: dict[str, Any]) -> list[Any]:
    """The leaves of what the plan's forward returns."""
    graph = plan.graph
    values = inputs_of(graph, module, arguments)
    names = {"torch": torch, "F": F, "batch_size": graph.batch, "device": torch.device("cpu"), "values": values}
    for step in plan.steps:
        if isinstance(step, Library):
            node = graph.node(step.node)
            values[node.name] = eval(written(node.call, lambda number: f"values['{node.values[number]}']", "device"), names)
            continue
        program = plan.program(step)
        found = evaluate(program, values)
        for node in map(graph.node, step.nodes):
            if node.op == "batch_moments":
                values[node.name] = _scale(node, values, *found[program.moments_of])
        for name in step.outputs:
            if graph.node(name).op != "batch_moments":
                values[name] = found[name].reshape(graph.type(name).shape)
    return pytree.tree_leaves(eval(graph.output.format(**{r: f"values['{r}']" for r in graph.returns}), names))
