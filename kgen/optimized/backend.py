"""``torch.compile(model, backend="kgen")``: graphs that Dynamo captures, optimised like modules.

graph, its inputs ──> gradients, symbolic sizes, nothing faster?  Inductor
                 └──> Graph (a module with the graph's weights) ── optimize ──> winners, beside Dynamo's guards
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch._guards import tracing
from torch.fx._lazy_graph_module import _LazyGraphModule

from kgen.errors import InputError, KgenError
from kgen.optimized.calls import is_ordinary
from kgen.optimized.found import Options
from kgen.optimized.optimize import optimize
from kgen.optimized.report import Report
from kgen.optimized.twin import REPORT

_OPTIONS = ("minutes", "cached_only", "db", "progress")
_STATIC = "_dynamo_static_input_type"  # the mark of inputs that are parameters or buffers of a module
_log = logging.getLogger("kgen")

Compiled = Callable[..., Any]


def compile_graph(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **_: Any
) -> Compiled:
    """The backend: a function that computes what a graph computes, on tensors like ``inputs``.

    ``options`` are ``minutes`` for each graph, ``cached_only``, ``db`` and ``progress``, as those of ``kgen.optimize``.
    Raises :class:`InputError` for other options. Graphs that kgen has nothing for go to Inductor.
    """
    given = dict(options or {})
    if unknown := sorted(given.keys() - set(_OPTIONS)):
        raise InputError(f"options: {unknown[0]!r} is none of {', '.join(_OPTIONS)}")
    reason = _refused(inputs)
    if not reason:
        try:
            with tracing(None):  # torch's export is not a part of the trace that is being compiled
                found = _optimized(graph, inputs, given)
            if not isinstance(found, str):
                return found
            reason = found
        except KgenError as error:
            reason = str(error)
    _log.info("a graph goes to Inductor: %s", reason)
    return _inductor(graph, inputs)


def _inductor(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    from torch._inductor.compile_fx import compile_fx

    compiled: Compiled = compile_fx(graph, inputs)  # type: ignore[assignment]
    return compiled


class Graph(nn.Module):
    """A captured graph as a module: inputs that are weights are its parameters and buffers, the others its
    arguments."""

    def __init__(self, body: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        super().__init__()
        _LazyGraphModule.force_recompile(body)  # in its first call it would set attributes
        self.body = body
        self.names: list[str | None] = []  # of each input: its name among the weights, or none
        placeholders = [n for n in body.graph.nodes if n.op == "placeholder"]
        for n, x in zip(placeholders, inputs, strict=True):
            static = isinstance(x, nn.Parameter) or _STATIC in n.meta.get("tensor_dict", {})
            self.names.append(f"of_{n.name}" if static else None)
            if isinstance(x, nn.Parameter):
                self.register_parameter(f"of_{n.name}", x)
            elif static:
                self.register_buffer(f"of_{n.name}", x)

    def forward(self, *inputs: Any) -> Any:
        given = iter(inputs)
        return self.body(*[next(given) if name is None else getattr(self, name) for name in self.names])


def _refused(inputs: Sequence[Any]) -> str:
    """The reason why a graph is left to Inductor before it is looked at; empty where it is not."""
    if not all(isinstance(x, torch.Tensor) for x in inputs):
        return "its sizes are symbolic, or it takes numbers"
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return "it needs gradients"
    if not is_ordinary([*inputs]):
        return "its inputs are no plain tensors"
    return ""


def _optimized(body: torch.fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any]) -> Compiled | str:
    """The function of a graph with winners behind it, or the reason why Inductor has to compile it."""
    module = Graph(body, inputs)
    at = [number for number, name in enumerate(module.names) if name is None]
    if not at:
        return "it takes nothing but weights"

    def tell(text: str) -> None:
        if options.get("progress", True):
            print(f"kgen: {text}", file=sys.stderr)

    wanted = Options(
        minutes=float(options.get("minutes", 5.0)), modules="whole", db=options.get("db"),
        cached_only=bool(options.get("cached_only", False)), tell=tell,
    )  # fmt: skip
    fast = optimize(module, [(tuple(inputs[number] for number in at), {})], wanted)
    report: Report = vars(fast)[REPORT]
    if not report.replaced:
        return report.tried[0].reason if report.tried else "nothing was faster"
    if not any(name.startswith("compile") for name, _ in report.parts[0].winners[0].baselines):
        return "it was not compared with Inductor: give it more minutes"
    weights = [(number, name, _table(fast, name)) for number, name in enumerate(module.names) if name is not None]

    def run(*given: Any) -> Any:
        for number, name, table in weights:
            if table[name] is not given[number]:  # the graph is called for another module
                table[name] = given[number]
        return fast(*[given[number] for number in at])

    run.kgen = report  # type: ignore[attr-defined]
    return run


def _table(module: nn.Module, name: str) -> dict[str, Any]:
    return module._parameters if name in module._parameters else module._buffers
