"""Attention in CUDA: two contractions with an online softmax between, in one kernel (TMA and wgmma of sm_90).

A block has 64 rows of queries to a warpgroup, and goes through tiles of keys and values. One more warpgroup loads these tiles.
Operands of half types are multiplied as they are. Those of float32 are split into float16 terms, keys and values by a kernel
in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

from kgen.candidate import Params
from kgen.codegen.arguments import arguments as pointers, rendering, sources
from kgen.codegen.c_printer import load_statement, pointer, row_statements, statement
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Argument, Rendering, Schedule, Task, Template, parameter
from kgen.compiler.graph.dtypes import DTYPES, is_narrow, value_type
from kgen.compiler.loops.attention import Attention as Parts
from kgen.compiler.loops.attention import Matrices, attention
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program, taken
from kgen.devices.hardware import Hardware
from kgen.devices.roofline import Arithmetic
from kgen.templates.cuda import common

WIDEST = 256  # elements of a row of an operand; registers of a warpgroup hold no more of a result
WIDEST_SPLIT = 128  # the same where sums of a tile wait beside the result
_WARPGROUP = 128  # threads
_BARRIER_BYTES = 8
_BOX = 64  # elements of 16 bits in a line of 128 bytes, as TMA swizzles them
_ALIGNED = 8  # elements of 16 bits that TMA takes at a time

#: Registers of a thread that multiplies, by warpgroups that do; one more warpgroup has few.
_REGISTERS = {1: 232, 2: 232, 3: 160}
_ASIDE, _ASIDE_NARROW = 30, 36  # registers for all but matrices: addresses, maxima, sums
_LOOSE = 8  # more of them where maps make the logits


def _padded(size: int, to: int) -> int:
    return -(-size // to) * to


@dataclass(frozen=True, kw_only=True)
class Attention(Schedule):
    warpgroups: int = parameter("warpgroups that multiply, 64 rows of queries each")
    keys: int = parameter("keys and values in a tile")
    stages: int = parameter("tiles in flight, of keys and of values")
    products: int = parameter("products of float16 terms that stand for one of float32")

    @cached_property
    def parts(self) -> Parts:
        found = attention(self.program)
        assert found is not None, "the schedule's programs are attention"
        return found

    @property
    def early(self) -> bool:
        return True

    @property
    def narrow(self) -> bool:
        return is_narrow(self.parts.dtype)

    @property
    def terms(self) -> int:
        """Terms of 16 bits of an element: hi and lo, or one."""
        return 2 if self.products == 3 else 1

    @property
    def rows(self) -> int:
        """Rows of queries of a block."""
        return 64 * self.warpgroups

    @property
    def shared_bytes(self) -> int:
        """Of a block: its queries, the tiles in flight, barriers, and a factor of each row."""
        boxes, out_boxes = -(-self.parts.width // _BOX), -(-self.parts.out // _BOX)
        tiles = self.stages * self.terms * (boxes + out_boxes) * self.keys * 128
        return self.terms * boxes * self.rows * 128 + tiles + (1 + 4 * self.stages) * _BARRIER_BYTES + self.rows * 4

    @property
    def registers(self) -> int:
        """Of a thread that multiplies: scores, probabilities as operands, the result, and what a tile adds to it."""
        result = _padded(self.parts.out, 8) // 2 * (1 if self.narrow else 2)
        loose = _LOOSE if self.parts.scale is None else 0
        return self.keys // 2 + self.terms * self.keys // 4 + result + (_ASIDE_NARROW if self.narrow else _ASIDE) + loose


def takes(program: Program) -> bool:
    """Attention whose rows are short enough for registers, with operands that can be loaded in groups of 16 bytes."""
    of = attention(program)
    if of is None or of.out % 2 or any(x.tensor and x.access.mask for x in of.loads):
        return False
    if is_narrow(of.dtype):
        return max(of.width, of.out) <= WIDEST and all(_loads_by_box(m) for m in (of.q, of.k, of.v))
    return of.dtype == "float32" and max(of.width, of.out) <= WIDEST_SPLIT


def _loads_by_box(of: Matrices) -> bool:
    """Whether TMA takes the matrices where they lie: elements side by side, and at most two axes of matrices."""
    unique = [stride for _, stride in of.outer if stride]
    return of.element == 1 and len(unique) <= 2 and not any(step % _ALIGNED for step in (of.line, of.offset, *unique))


def lacks(hardware: Hardware) -> str:
    return "" if hardware.capability == 90 else "attention of our own needs the tensor cores of sm_90"


def space(task: Task) -> Space[Attention]:
    of = attention(task.program())
    assert of is not None, "the schedule's programs are attention"
    products = (1,) if is_narrow(of.dtype) or task.tf32 else (3,)
    axes = (
        Axis("warpgroups", (2, 3, 1)),
        Axis("keys", (64, 128, 96, 80, 48)),
        Axis("stages", (2, 3)),
        Axis("products", products),
    )
    constraints = (
        Constraint("shared_memory", ("warpgroups", "keys", "stages", "products"), "the tiles do not fit a block's shared memory",
                   lambda s: s.shared_bytes <= task.hardware.shared_bytes_per_block),
        Constraint("registers", ("warpgroups", "keys", "products"), "scores, probabilities and the result do not fit a thread's registers",
                   lambda s: s.registers <= _REGISTERS[s.warpgroups]),
        Constraint("idle_rows", ("warpgroups",), f"a warpgroup would have no row of {of.queries}",
                   lambda s: s.warpgroups == 1 or 64 * (s.warpgroups - 1) < of.queries),
        Constraint("idle_keys", ("keys",), f"half of a tile or more would lie beyond {of.keys} keys",
                   lambda s: s.keys == 64 or s.keys < 2 * of.keys),
    )  # fmt: skip
    return Space(partial(Attention, task), axes, constraints)


def arithmetic(params: Params) -> Arithmetic:
    """One or three products of float16 terms."""
    return Arithmetic("float16", int(params["products"]))


def render(schedule: Attention) -> Rendering:
    of, program = schedule.parts, schedule.program
    args = _arguments(schedule)
    read_from = sources(args)
    vec = 2 if of.keys % 2 == 0 else 1
    plan = passes_of(program, keep=False)
    outer, inner = common.load_statements([x for x in plan.passes[0].loads], 2, read_from)
    store_outer, store_inner, close = common.store_statements(program.stores, 2, args)
    score_outer, score_inner = common.load_statements(of.loads, vec, read_from)
    operand = DTYPES[of.dtype].memory if schedule.narrow else "__half"
    used = [a for a in args if a.tensor in {*(x.tensor for x in (*of.loads, *of.row_loads)), *program.tensors, *(s.tensor for s in program.stores)} or a.role == "out"]
    context = {
        "formula": of.formula,
        "dtype": of.dtype,
        "narrow": schedule.narrow,
        "terms": schedule.terms,
        "operand": operand,
        "half": "bf16" if of.dtype == "bfloat16" else "f16",
        "warpgroups": schedule.warpgroups,
        "keys": schedule.keys,
        "stages": schedule.stages,
        "registers": (_REGISTERS[schedule.warpgroups], 24 if schedule.warpgroups == 3 else 40),
        "queries": of.queries,
        "all_keys": of.keys,
        "width": of.width,
        "out": of.out,
        "scale": repr(of.scale) if of.scale is not None else None,
        "diagonal": of.diagonal,
        "q": _operand(of.q, of.width),
        "k": _operand(of.k, of.width),
        "v": _operand(of.v, of.out),
        "members": [f"{'const ' if a.role == 'in' else ''}{a.ctype}* {a.name}" for a in used],
        "member_names": [a.name for a in used],
        "row_lines": [load_statement(x, read_from, "row", "0") for x in of.row_loads] + [statement(m, "cuda") for m in of.rows],
        "row_values": [(value_type(s.dtype), s.name) for s in (*of.row_loads, *of.rows)],
        "element_rows": [s.name for s in (*of.row_loads, *of.rows) if s.name in taken(of.elements)],
        "finish_rows": [s.name for s in (*of.row_loads, *of.rows) if s.name in taken(of.finish)],
        "sums": of.sums,
        "logits": of.logits,
        "vec": vec,
        "score_outer": score_outer,
        "score_inner": [*score_inner, *(statement(m, "cuda") for m in of.elements)],
        "score_alone": [*common.load_statements(of.loads, 1, read_from)[1], *(statement(m, "cuda") for m in of.elements)],
        "result_alone": [
            *common.load_statements(plan.passes[0].loads, 1, read_from)[1], *(statement(m, "cuda") for m in plan.passes[0].maps),
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
    return rendering(schedule, args, context, specific=True)


def _arguments(schedule: Attention) -> list[Argument]:
    """The launcher's pointers: operands, what logits and results read, results, and memory for terms of keys and values."""
    of = schedule.parts
    operands = [Argument(pointer(m.tensor), "in", m.tensor, dtype=of.dtype) for m in (of.q, of.k, of.v)]
    inner = [Argument(pointer(x.tensor), "in", x.tensor, dtype=x.dtype) for x in (*of.loads, *of.row_loads) if x.tensor]
    others = pointers(schedule)
    first = dict.fromkeys((*operands, *inner))
    found = [*first, *(a for a in others if a not in first)]
    if schedule.narrow:
        return found
    memory, tiles = [], -(-of.keys // schedule.keys)
    for of_matrix, elements in ((of.k, of.width), (of.v, of.out)):
        terms = of.keys * _padded(elements, _ALIGNED) * schedule.terms // 2  # in float32 elements
        memory.append(f"rows // {of.queries * of_matrix.repeats} * {terms + tiles}")
    return [*found, Argument("workspace", "workspace", size=" + ".join(memory))]


def _operand(of: Matrices, size: int) -> dict[str, object]:
    """The context of an operand of so many elements in a line: its pointer, and where matrices, lines and elements lie."""
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
        "vectors": of.element == 1 and not any(step % 4 for step in (size, of.line, of.offset, *(stride for _, _, stride in unique))),
        "offset": of.offset,
        "coordinates": [digit for digit, _, _ in unique][::-1],
        "extents": [(extent if isinstance(extent, int) and at else None, stride) for at, (_, extent, stride) in enumerate(unique)][::-1],
    }


TEMPLATE = Template(
    name="tiled_attention", device_type="cuda", file="cuda/tiled_attention/tiled_attention.cu.j2", takes=takes,
    schedule=Attention, space=space, render=render, lacks=lacks, arithmetic=arithmetic,
    share=0.6, attends=True, biased=True,  # tensor cores truncate where they add
)  # fmt: skip
