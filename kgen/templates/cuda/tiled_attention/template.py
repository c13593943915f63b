"""Attention in CUDA: two contractions with an online softmax between, in one kernel (TMA and wgmma of sm_90).

A block has 64 rows of queries to a warpgroup, and goes through tiles of keys and values. One more warpgroup loads these
tiles. Operands of half types are multiplied as they are. Operands of float32 are split into float16 terms, keys
and values by a kernel in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import rendering
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.compiler.graph.dtypes import DTYPES, is_narrow, nbytes
from kgen.compiler.loops.attention import Matrices, attention
from kgen.compiler.loops.program import Program
from kgen.compiler.rewrites.rewrite import Offer
from kgen.templates.cuda import common
from kgen.templates.cuda.attention_context import (
    ALIGNED,
    OfAttention,
    arguments,
    attention_context,
    lacks,
    loaded_in_vectors,
    padded,
    terms_memory,
)

WIDEST = 256  # elements of a row of an operand; registers of a warpgroup hold no more of a result
WIDEST_SPLIT = 128  # the same where sums of a tile wait beside the result
_WARPGROUP = 128  # threads
_BARRIER_BYTES = 8
_BOX = 64  # elements of 16 bits in a line of 128 bytes, as TMA swizzles them

#: Registers of a thread that multiplies, by warpgroups that do; one more warpgroup has few.
_REGISTERS = {1: 232, 2: 232, 3: 160}
_ASIDE, _ASIDE_NARROW = 30, 36  # registers for all but matrices: addresses, maxima, sums
_LOOSE = 8  # more of them where maps make the logits
_RESIDENT = 6  # more of them in a block that takes several tiles of rows


@dataclass(frozen=True, kw_only=True)
class Attention(common.InTerms, OfAttention):
    warpgroups: int = parameter("warpgroups that multiply, 64 rows of queries each")
    keys: int = parameter("keys and values in a tile")
    stages: int = parameter("tiles in flight, of keys and of values")
    products: int = parameter("products of float16 terms that stand for one of float32")
    blocks: str = parameter(
        "one for each tile of rows of queries, or as many as run at once: resident, and each takes several"
    )
    loads: str = parameter("what maps of scores read is loaded ahead of these, or late: behind them")

    @property
    def narrow(self) -> bool:
        return is_narrow(self.parts.dtype)

    @property
    def rows(self) -> int:
        """Rows of queries of a block."""
        return 64 * self.warpgroups

    @property
    def shared_bytes(self) -> int:
        """Bytes of a block: its queries, the tiles in flight, barriers, and a factor of each row."""
        boxes, out_boxes = -(-self.parts.width // _BOX), -(-self.parts.out // _BOX)
        tiles = self.stages * self.terms * (boxes + out_boxes) * self.keys * 128
        return self.terms * boxes * self.rows * 128 + tiles + (2 + 4 * self.stages) * _BARRIER_BYTES + self.rows * 4

    @property
    def registers(self) -> int:
        """Registers of a thread that multiplies: scores, probabilities as operands, the result, and a tile's part of
        it."""
        result = padded(self.parts.out, 8) // 2 * (1 if self.narrow else 2)
        loose = _LOOSE if self.parts.scale is None else 0
        loose += _RESIDENT if self.blocks == "resident" else 0
        if self.loads == "ahead":
            loose += self.keys // 2 * sum(nbytes(x.dtype) for x in loaded_in_vectors(self.parts)) // 4
        return (
            self.keys // 2 + self.terms * self.keys // 4 + result + (_ASIDE_NARROW if self.narrow else _ASIDE) + loose
        )


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
    return of.element == 1 and len(unique) <= 2 and not any(step % ALIGNED for step in (of.line, of.offset, *unique))


def space(task: Task) -> Space[Attention]:
    of = attention(task.program())
    assert of is not None, "the schedule's programs are attention"
    products = (1,) if is_narrow(of.dtype) or task.tf32 else (3,)
    axes = (
        Axis("warpgroups", (2, 3, 1)),
        Axis("keys", (64, 128, 96, 80, 48)),
        Axis("stages", (2, 3)),
        Axis("products", products),
        Axis("blocks", ("each", "resident")),
        Axis("loads", ("ahead", "late") if loaded_in_vectors(of) else ("late",)),
    )
    constraints = (
        Constraint(
            "shared_memory",
            ("warpgroups", "keys", "stages", "products"),
            "the tiles do not fit a block's shared memory",
            lambda s: s.shared_bytes <= task.hardware.shared_bytes_per_block,
        ),
        Constraint(
            "registers",
            ("warpgroups", "keys", "products", "blocks", "loads"),
            "scores, probabilities and the result do not fit a thread's registers",
            lambda s: s.registers <= _REGISTERS[s.warpgroups],
        ),
        Constraint(
            "idle_rows",
            ("warpgroups",),
            f"a warpgroup would have no row of {of.queries}",
            lambda s: s.warpgroups == 1 or 64 * (s.warpgroups - 1) < of.queries,
        ),
        Constraint(
            "idle_keys",
            ("keys",),
            f"half of a tile or more would lie beyond {of.keys} keys",
            lambda s: s.keys == 64 or s.keys < 2 * of.keys,
        ),
    )
    return Space(partial(Attention, task), axes, constraints)


def render(schedule: Attention) -> Rendering:
    of = schedule.parts
    args = arguments(schedule, of, [] if schedule.narrow else terms_memory(of, schedule.keys, schedule.terms))
    context = {
        **attention_context(schedule, of, args),
        "dtype": of.dtype,
        "narrow": schedule.narrow,
        "terms": schedule.terms,
        "operand": DTYPES[of.dtype].memory if schedule.narrow else symbol("__half"),
        "half": "bf16" if of.dtype == "bfloat16" else "f16",
        "warpgroups": schedule.warpgroups,
        "keys": schedule.keys,
        "stages": schedule.stages,
        "resident": schedule.blocks == "resident",
        "ahead": schedule.loads == "ahead",
        "registers": (_REGISTERS[schedule.warpgroups], 24 if schedule.warpgroups == 3 else 40),
    }
    return rendering(schedule, args, context, specific=True)


TEMPLATE = Template(
    name="tiled_attention", device_type="cuda", file="cuda/tiled_attention/tiled_attention.cu.j2", takes=takes,
    schedule=Attention, space=space, render=render, lacks=lacks, arithmetic=common.arithmetic,
    share=0.6, offers=frozenset({Offer.ATTENTION}), biased=True,  # tensor cores truncate where they add
)  # fmt: skip
