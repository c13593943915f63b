"""The context of attention's templates: operands, maps of scores, what follows the second product, and the launcher's
pointers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kgen.codegen.arguments import arguments as pointers, sources
from kgen.codegen.c_printer import load_statement, pointer, row_statements, statement
from kgen.codegen.template import Argument, Schedule
from kgen.compiler.graph.dtypes import DTYPES, value_type
from kgen.compiler.loops.attention import Attention, Matrices, attention
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import ROW, Load, taken
from kgen.templates.cuda import common

ALIGNED = 8  #: elements of 16 bits that TMA takes at a time

lacks = common.lacking("attention of our own needs the tensor cores of sm_90", 90, 90)


@dataclass(frozen=True, kw_only=True)
class OfAttention(Schedule):
    """A schedule of attention in one kernel, whose operands TMA loads; ``parts`` are the parts of its program."""

    @cached_property
    def parts(self) -> Attention:
        found = attention(self.program)
        assert found is not None, "the schedule's programs are attention"
        return found

    @property
    def early(self) -> bool:
        return True


def padded(size: int, to: int) -> int:
    """The size, rounded up to a multiple."""
    return -(-size // to) * to


def arguments(schedule: Schedule, of: Attention, memory: Sequence[str]) -> list[Argument]:
    """The launcher's pointers: operands, what logits and results read, results, and ``memory`` in float32 elements, if
    any."""
    operands = [Argument(pointer(m.tensor), "in", m.tensor, dtype=of.dtype) for m in (of.q, of.k, of.v)]
    inner = [Argument(pointer(x.tensor), "in", x.tensor, dtype=x.dtype) for x in (*of.loads, *of.row_loads) if x.tensor]
    first = dict.fromkeys((*operands, *inner))
    found = [*first, *(a for a in pointers(schedule) if a not in first)]
    return [*found, Argument("workspace", "workspace", size=" + ".join(memory))] if memory else found


def terms_memory(of: Attention, rows: int, terms: int, group: int = ALIGNED) -> list[str]:
    """Elements of float32 that hold the terms of keys and of values, and a factor for each tile of ``rows`` of them.

    Keys have whole groups of elements.
    """
    tiles = -(-of.keys // rows)
    return [
        f"rows // {of.queries * matrix.repeats} * {of.keys * padded(elements, to) * terms // 2 + tiles}"
        for matrix, elements, to in ((of.k, of.width, group), (of.v, of.out, ALIGNED))
    ]


def columns_at_once(of: Attention) -> int:
    """Neighbouring columns whose scores a thread has: what maps of them read is one load."""
    return 2 if of.keys % 2 == 0 else 1


def loaded_in_vectors(of: Attention) -> list[Load]:
    """The loads of maps of scores at neighbouring columns."""
    vec = columns_at_once(of)
    return [x for x in of.loads if vec > 1 and x.tensor and x.level != ROW and x.access.mode(vec) == "vector"]


def attention_context(schedule: Schedule, of: Attention, args: Sequence[Argument]) -> dict[str, Any]:
    """Names and statements in C of the parts of a program that is attention."""
    program = schedule.program
    read_from = sources(args)
    vec, vectors = columns_at_once(of), loaded_in_vectors(of)
    plan = passes_of(program, keep=False)
    outer, inner = common.load_statements(list(plan.passes[0].loads), 2, read_from)
    store_outer, store_inner, close = common.store_statements(program.stores, 2, args)
    score_outer, score_inner = common.load_statements(of.loads, vec, read_from)
    read = {*(x.tensor for x in (*of.loads, *of.row_loads)), *program.tensors, *(s.tensor for s in program.stores)}
    used = [a for a in args if a.tensor in read or a.role == "out"]
    row_values = [*of.row_loads, *of.rows]
    return {
        "formula": of.formula,
        "queries": of.queries,
        "all_keys": of.keys,
        "width": of.width,
        "out": of.out,
        "scale": repr(of.scale) if of.scale is not None else None,
        "diagonal": of.diagonal,
        "q": operand(of.q, of.width),
        "k": operand(of.k, of.width),
        "v": operand(of.v, of.out),
        "members": [f"{'const ' if a.role == 'in' else ''}{a.ctype}* {a.name}" for a in used],
        "member_names": [a.name for a in used],
        "row_lines": [load_statement(x, read_from, "row", "0") for x in of.row_loads]
        + [statement(m, "cuda") for m in of.rows],
        "row_values": [(value_type(s.dtype), s.name) for s in row_values],
        "element_rows": [s.name for s in row_values if s.name in taken(of.elements)],
        "finish_rows": [s.name for s in row_values if s.name in taken(of.finish)],
        "sums": of.sums,
        "logits": of.logits,
        "vec": vec,
        "score_outer": score_outer,
        "score_splat": common.load_statements([x for x in of.loads if x not in vectors], vec, read_from)[0],
        "vectors": [(x.name, DTYPES[x.dtype].memory, *common.load_statements([x], vec, read_from)[0]) for x in vectors],
        "score_inner": [*score_inner, *(statement(m, "cuda") for m in of.elements)],
        "score_alone": [
            *common.load_statements(of.loads, 1, read_from)[1],
            *(statement(m, "cuda") for m in of.elements),
        ],
        "result_alone": [
            *common.load_statements(plan.passes[0].loads, 1, read_from)[1],
            *(statement(m, "cuda") for m in plan.passes[0].maps),
            *common.store_statements(program.stores, 1, args)[1],
        ],
        "top": of.top,
        "total": of.total,
        "tops": of.tops,
        "finish": [statement(m, "cuda") for m in of.finish],
        "factor": of.factor,
        "nothing": of.none,
        "result": program.contraction.name,
        "result_rows": row_statements(plan, "cuda"),
        "result_outer": outer + store_outer,
        "result_inner": inner + [statement(m, "cuda") for m in plan.passes[0].maps] + store_inner,
        "result_close": close,
    }


def operand(of: Matrices, size: int) -> dict[str, object]:
    """The context of an operand with ``size`` elements in a line: its pointer, and where matrices, lines and elements
    lie."""
    digits = of.digits("matrix")
    unique = [(digit, extent, stride) for digit, extent, stride in digits if stride]
    return {
        "name": pointer(of.tensor),
        "place": of.place("matrix"),
        "unique": of.unique("matrix"),
        "unique_place": of.unique_place("matrix"),
        "repeats": of.repeats,
        "line": of.line,
        "element": of.element,
        "vectors": of.element == 1
        and not any(step % 4 for step in (size, of.line, of.offset, *(stride for _, _, stride in unique))),
        "offset": of.offset,
        "coordinates": [digit for digit, _, _ in unique][::-1],
        "extents": [
            (extent if isinstance(extent, int) and at else None, stride)
            for at, (_, extent, stride) in enumerate(unique)
        ][::-1],
    }
