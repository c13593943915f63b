"""A plug-in for tests: an operator, a rewrite, a schedule and a dtype, through the interfaces that kgen's own use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kgen.codegen import registry
from kgen.codegen.arguments import arguments, rendering, sources, written
from kgen.codegen.c_printer import load_statement, statement, store_statement
from kgen.codegen.space import Axis, Space
from kgen.codegen.template import Rendering, Schedule, Task, Template, parameter
from kgen.compiler.graph import dtypes
from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.loops.expr import exactly, x
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.compiler.operators import table as operators
from kgen.compiler.operators.op import Kind, entry
from kgen.compiler.rewrites import table as rewrites
from kgen.compiler.rewrites.rewrite import Rewrite, Stage

operators.add(entry(Kind.POINTWISE, "degrees", "deg2rad.default", expression=x * exactly("0.017453292519943295")))


def drop_negations(graph: OpGraph) -> OpGraph:
    """``-(-x)`` as ``x``."""
    for node in graph.nodes:
        inner = graph.producer(node.inputs[0]) if node.op == "neg" else None
        if inner is not None and inner.op == "neg" and graph.feeds_only(inner.name, node):
            return graph.without(node.name, inner.inputs[0])
    return graph


rewrites.add(Rewrite(drop_negations, Stage.ALWAYS))


def takes(program: Program) -> bool:
    others = program.contraction or program.moments_of or program.reductions or program.windows or program.scans
    return isinstance(program.col_size, int) and program.plain and not others


@dataclass(frozen=True, kw_only=True)
class ToyLoop(Schedule):
    unroll: int = parameter("iterations that the compiler writes out")


def space(task: Task) -> Space:
    return Space(partial(ToyLoop, task), (Axis("unroll", (1, 4)),))


def render(schedule: ToyLoop) -> Rendering:
    program = schedule.program
    (only,) = passes_of(program, keep=True).passes
    args = arguments(schedule)
    body = [load_statement(load, sources(args)) for load in only.loads]
    body += [*(statement(step, schedule.task.hardware.device_type) for step in only.maps), *(store_statement(store, written(store, args)) for store in only.stores)]
    return rendering(schedule, args, {"cols": program.cols, "unroll": schedule.unroll, "body": body})


TEMPLATE = Template(
    name="toy_loop",
    device_type="cpu",
    file="toy_loop.cpp.j2",
    takes=takes,
    schedule=ToyLoop,
    space=space,
    render=render,
    folder=Path(__file__).parent,
)
registry.add(TEMPLATE)

dtypes.add("uint16", dtypes.DType(memory="unsigned short", nbytes=2, kind="int"))
