"""Results that are written over operands: which one, where nothing needs the operand any more."""

from __future__ import annotations

from typing import Callable

from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.scatters import IN_PLACE
from kgen.compiler.operators.table import OPS


def overwritten(
    graph: OpGraph,
    program: Program,
    in_two_passes: Callable[[], Program | None],
    libraries: set[str],
    needed: Callable[[str], bool],
) -> str | None:
    """An operand that the kernel's one full-size output may be written over, since nothing is ``needed`` of it
    afterwards.

    ``in_two_passes`` lowers the kernel's program with reductions that take two passes.
    """
    if program.scatters:
        return _taken_into(graph, program, libraries, needed)
    stores = [s for s in program.stores if s.level == "element"]
    if len(stores) != 1:
        return None
    for load in program.loads:
        if not program.reads_in_place(load, stores[0]) or graph.type(load.tensor) != graph.type(stores[0].tensor):
            continue
        read = {x.tensor for x in program.reads if x is not load}.union(
            program.contraction.reads if program.contraction else ()
        )
        free = _is_free(graph, load.tensor, read, libraries, needed)
        if not free or _read_after_store(program, load.tensor):
            continue
        other = in_two_passes()
        if other is not None and not _read_after_store(other, load.tensor):
            return load.tensor
    return None


def _taken_into(graph: OpGraph, program: Program, libraries: set[str], needed: Callable[[str], bool]) -> str | None:
    """The tensor that the kernel's one scatter begins as: values may be taken into its own elements."""
    of, *others = program.scatters
    if others or not of.source or of.period or of.kind not in IN_PLACE:
        return None
    same = graph.type(of.source) == graph.type(of.tensor)
    read = {x.tensor for x in program.reads}
    return of.source if same and _is_free(graph, of.source, read, libraries, needed) else None


def _is_free(graph: OpGraph, tensor: str, read: set[str], libraries: set[str], needed: Callable[[str], bool]) -> bool:
    """Whether the tensor has memory of its own that nothing is ``needed`` of, and that the kernel does not ``read``."""
    fresh = graph.producer(tensor) is not None and not _may_be_view(graph, tensor, libraries)
    aliases = _aliases(graph, tensor, libraries)
    return fresh and not aliases & read and not any(map(needed, aliases))


def _may_be_view(graph: OpGraph, name: str, libraries: set[str]) -> bool:
    """Whether a library call's result may share an operand's memory. Those of the table have a result of their own.

    A copy, or a cast to the same dtype, is none where the operand lies as wanted.
    """
    if name not in libraries:
        return False
    node = graph.node(name)
    kept = node.op in ("copy", "cast") and graph.type(node.values[0]).dtype == node.type.dtype
    return kept or OPS.get(node.op, OPS["identity"]).kind in (Kind.IDENTITY, Kind.VIEW)


def _aliases(graph: OpGraph, tensor: str, libraries: set[str]) -> set[str]:
    """The tensor, and the values that may share its memory."""
    found, waiting = {tensor}, [tensor]
    while waiting:
        views = [
            n.name for n in graph.users(waiting.pop()) if n.name not in found and _may_be_view(graph, n.name, libraries)
        ]
        found.update(views)
        waiting += views
    return found


def _read_after_store(program: Program, tensor: str) -> bool:
    """Whether a pass that reads the row again reads the tensor after an element was stored."""
    passes = passes_of(program, keep=False).passes
    stored = next(p.number for p in passes if p.stores)
    return any(x.tensor == tensor for p in passes[stored + 1 :] for x in p.loads)
