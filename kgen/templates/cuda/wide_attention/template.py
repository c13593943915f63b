"""Attention of wide heads in CUDA: a block has all scores of its rows, and then makes results of any width (TMA,
wgmma).

A block has 64 rows of queries and up to 512 keys: scores stay in registers, then probabilities in shared memory. The
blocks of a cluster share what TMA loads of keys and values. Float32 operands are split into float16 terms, keys and
values by a kernel in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import rendering
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.compiler.loops.attention import attention
from kgen.compiler.loops.program import Program
from kgen.templates.cuda import common
from kgen.templates.cuda.attention_context import OfAttention, arguments, attention_context, lacks, padded, terms_memory

MOST_KEYS = 512  # two warpgroups have their scores in registers
WIDER_THAN = 128  # elements; `tiled_attention` takes narrower heads
_ROWS = 64  # rows of queries of a block
_BOX = 64  # elements of 16 bits in a line of 128 bytes, as TMA swizzles them
_KEYS_AT_ONCE = 32  # rows of a tile of values
_ROWS_OF_A_FACTOR = 16  # keys or values that are scaled alike
_TERMS = 2
_MOST_COLS = 128  # columns of a product of a warpgroup
_QUERY_SLOTS, _VALUE_SLOTS = 4, 6  # tiles of queries in flight; of values, at most
_BARRIER_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Wide(OfAttention):
    cluster: int = parameter("blocks that share tiles of keys and values")
    stages: int = parameter("tiles of keys in flight")

    @property
    def keys(self) -> int:
        """Keys whose scores a warpgroup has."""
        return padded(-(-self.parts.keys // 2), _BOX)

    @property
    def chunk(self) -> int:
        """Keys of a product."""
        return self.keys if self.keys <= _MOST_COLS else self.keys // 2

    @property
    def cols(self) -> int:
        """Columns of results that a warpgroup has at a time."""
        return min(_MOST_COLS, padded(-(-self.parts.out // 2), _BOX))

    @property
    def slots(self) -> tuple[int, int, int]:
        """Bytes of a tile of queries, of keys, and of values, with both terms."""
        return _ROWS * 128, 2 * self.keys * 128, 2 * self.cols * _KEYS_AT_ONCE * 2 * _TERMS

    @property
    def probabilities(self) -> int:
        """Bytes of the probabilities' terms. They lie where tiles of keys were."""
        return _TERMS * _ROWS * 2 * self.keys * 2

    @property
    def value_stages(self) -> int:
        """Tiles of values in flight, behind the probabilities."""
        queries, keys, values = self.slots
        return max(2, min(_VALUE_SLOTS, (self.stages * keys + _QUERY_SLOTS * queries - self.probabilities) // values))

    @property
    def shared_bytes(self) -> int:
        """Bytes of a block: tiles, barriers, factors and powers of rows, and the values of rows that warpgroups
        exchange."""
        queries, keys, values = self.slots
        tiles = max(self.stages * keys + _QUERY_SLOTS * queries, self.probabilities + self.value_stages * values)
        return tiles + 2 * (self.stages + _QUERY_SLOTS + self.value_stages) * _BARRIER_BYTES + _ROWS * 4 * (2 + 3 * 2)


def takes(program: Program) -> bool:
    """Attention in float32 of wide heads, with few keys."""
    of = attention(program)
    if of is None or of.out % 2 or any(x.tensor and x.access.mask for x in of.loads):
        return False
    return of.dtype == "float32" and max(of.width, of.out) > WIDER_THAN and of.keys <= MOST_KEYS


def space(task: Task) -> Space[Wide]:
    of = attention(task.program())
    assert of is not None, "the schedule's programs are attention"
    blocks = -(-of.queries // _ROWS)
    constraints = (
        Constraint("shared_memory", ("cluster", "stages"), "the tiles do not fit a block's shared memory",
                   lambda s: s.shared_bytes <= task.hardware.shared_bytes_per_block),
        Constraint("idle_blocks", ("cluster",), f"a block would have none of the {of.queries} rows of queries",
                   lambda s: s.cluster <= blocks and blocks % s.cluster == 0 or s.cluster == 1),
        Constraint("shared_tiles", ("cluster",), "the blocks of a cluster would not load equal parts of a tile",
                   lambda s: _TERMS * 2 * s.cols // _BOX % s.cluster == 0),
    )  # fmt: skip
    return Space(partial(Wide, task), (Axis("cluster", (4, 2, 1)), Axis("stages", (3, 2, 4))), constraints)


def render(schedule: Wide) -> Rendering:
    of = schedule.parts
    args = arguments(schedule, of, terms_memory(of, _ROWS_OF_A_FACTOR, _TERMS, _KEYS_AT_ONCE))
    context = {
        **attention_context(schedule, of, args),
        "terms": _TERMS,
        "factor_rows": _ROWS_OF_A_FACTOR,
        "keys": schedule.keys,
        "chunk": schedule.chunk,
        "cols": schedule.cols,
        "cluster": schedule.cluster,
        "stages": schedule.stages,
        "query_stages": _QUERY_SLOTS,
        "value_stages": schedule.value_stages,
    }
    return rendering(schedule, args, context, specific=True)


TEMPLATE = Template(
    name="wide_attention",
    device_type="cuda",
    file="cuda/wide_attention/wide_attention.cu.j2",
    takes=takes,
    schedule=Wide,
    space=space,
    render=render,
    lacks=lacks,
    arithmetic=common.arithmetic,
    share=0.9,
    biased=True,  # tensor cores truncate where they add
)
