"""Costs: the bytes that one step of a plan moves, and its operations. Times follow in :mod:`kgen.tuning.prediction`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kgen.compiler.fusion.steps import FusionPlan, Kernel
from kgen.compiler.graph.dtypes import is_float, is_narrow, nbytes
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.graph.library_call import keywords
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import ELEMENT, Load, Map, Program
from kgen.compiler.operators.facts import flops, is_view, recurrent_steps
from kgen.compiler.operators.library import CHANNELS_LAST, LIBRARY
from kgen.compiler.operators.table import OPS

_SECTOR = 32  #: bytes that a GPU moves at least
_FASTER = 2  #: times the rate of memory at which caches give elements that are looked up (assumed)


@dataclass(frozen=True)
class Cost:
    """Work of one step.

    ``nbytes`` are moved through memory, ``flops`` are operations of contractions as they are written. ``products`` is
    the number of tensor-core products that stand for one contraction of a kernel; 0 where PyTorch computes it.
    ``blocks`` bounds the blocks that work side by side, ``None`` where there are as many as a device takes. ``steps``
    of recurrent layers are taken one after the other.
    """

    nbytes: int
    flops: int = 0
    products: int = 0
    blocks: int | None = None
    steps: int = 0


def is_counter(node: Node) -> bool:
    """Whether the node counts calls in a buffer of one integer, as a batch norm does."""
    type_ = node.type
    return (
        node.op == "aten.add_.Tensor"
        and node.effect
        and type_ is not None
        and type_.numel == 1
        and not is_float(type_.dtype)
    )


def library_cost(graph: OpGraph, node: Node) -> Cost:
    """The least work of a library call: it moves each operand and each result once. A view moves nothing."""
    if is_view(node):
        return Cost(0)
    written = _result_bytes(graph, node)
    operands = list(dict.fromkeys(node.values))
    read = sum(_memory_bytes(graph, name) for name in operands)
    op = OPS.get(node.op)
    if op is not None and op.gathers:
        read = min(read, written + sum(_memory_bytes(graph, name) for name in operands[1:]))
    if node.op.endswith(CHANNELS_LAST) and node.call is not None and "memory_format" in keywords(node.call):
        read += 2 * _memory_bytes(graph, operands[0])
    if node.op in LIBRARY and LIBRARY[node.op].layer and node.parts is not None:
        read += 2 * sum(part.type.nbytes for part in node.parts.nodes if part.type is not None and not is_view(part))
    blocks = None
    if op is not None and op.block_a_row:
        blocks = math.prod(size for d, size in enumerate(node.type.shape) if d not in node["dims"])
    return Cost(read + written, flops(graph, node), blocks=blocks, steps=recurrent_steps(graph, node))


def kernel_cost(plan: FusionPlan, kernel: Kernel, row_bytes: int, products: int, shares: int = 1) -> Cost:
    """The work of a kernel: it moves each tensor once, and again for each later pass over a row that a block cannot
    keep.

    ``row_bytes`` is how much of a row its blocks can keep on chip, ``products`` how many tensor-core products make one
    contraction. ``shares`` is the number of blocks that may share a row; any number may where they keep nothing of it.
    """
    program = plan.program(kernel)
    moved = plan.bytes_moved(kernel)
    if program.recurrence:
        node = plan.graph.node(kernel.nodes[0])
        products = 1 if is_narrow(program.recurrence.dtype) else 0  # those of half types are for tensor cores
        return Cost(moved, flops(plan.graph, node), products, steps=recurrent_steps(plan.graph, node))
    operations = sum(flops(plan.graph, plan.graph.node(name)) for name in kernel.nodes)
    if program.contraction:
        of = program.contraction
        if of.window:  # images are written and read in half
            staged = plan.graph.type(of.x).nbytes
        else:  # terms of float32 are written and read, those of weights once for all calls
            computed = [name for name in dict.fromkeys(of.reads) if not plan.graph.is_weight(name)]
            split = of.group is not None and not of.attends and products > 1 and shares > 1
            staged = 2 * sum(plan.graph.type(name).nbytes for name in computed) if split else 0
        return Cost(moved + staged, operations, products)
    if program.product:
        return Cost(moved, operations, products)
    if shares > 1:  # a GPU
        moved = max(moved + _scattered_bytes(plan.graph, program), _looked_up_bytes(program))
    if not program.reductions:
        return Cost(moved, operations)
    if program.collapses:
        return Cost(moved, operations)  # any number of blocks share a row
    kept = passes_of(program, keep=True)
    if 4 * kept.kept * program.cols > row_bytes or not isinstance(program.col_size, int):
        loads = [load for later in passes_of(program, keep=False).passes[1:] for load in later.loads]
        moved += sum(plan.graph.type(load.tensor).nbytes for load in loads if load.tensor)
    return Cost(moved, operations, blocks=program.rows * shares)


def _scattered_bytes(graph: OpGraph, program: Program) -> int:
    """Bytes of sectors beyond those of their elements, where threads run along memory in some tensors only.

    In the other tensors, each element moves a sector of its own. A transpose works on tiles instead.
    """
    if program.windows_across:
        return 0  # threads run along the channels
    if program.windows:
        slide = program.windows[0].slides[-1]
        inner = [
            x
            for x in program.windows[0].body
            if isinstance(x, Load) and x.tensor and slide.position in x.access.symbols
        ]
        along = {x.tensor: x.access.offset.coeff(slide.position) == 1 for x in inner}
        outer = slide.output.free_symbols
        along |= {
            x.tensor: any(x.access.offset.coeff(symbol) == 1 for symbol in outer) for x in program.stores if outer
        }
        across = [_sectors(graph, name) for name, is_along in along.items() if not is_along]
        return sum(across)
    if not program.reductions or not program.col_loops:
        return 0
    last, rows = program.col_loops[-1].symbol, [loop.symbol for loop in program.row_loops]
    of = {x.tensor: x.access.offset for x in (*program.loads, *program.stores) if x.tensor and x.level == ELEMENT}
    by_col = sum(_sectors(graph, name) for name, offset in of.items() if offset.coeff(last) == 1)
    by_row = sum(
        _sectors(graph, name)
        for name, offset in of.items()
        if offset.coeff(last) != 1 and any(offset.coeff(row) == 1 for row in rows)
    )
    return min(by_col, by_row)


def _looked_up_bytes(program: Program) -> int:
    """Bytes that memory moves while caches give the elements that are looked up at values, each in its own load.

    Sums of sums of few pixels look up each pixel for each of the sums that it is in. Neighbours that look up at values
    which were loaded, and not along memory, move a sector each.
    """
    last = program.col_loops[-1].symbol if program.col_loops else None
    found = [x for x in program.steps if isinstance(x, Load) and x.tensor and x.level == ELEMENT]
    differ: set[str] = set()  # loaded values that differ between neighbours, and all that is made of them
    for x in (*program.loads, *program.steps):
        if isinstance(x, (Load, Map)) and (
            differ & {*x.args} or (isinstance(x, Load) and x.tensor and last in x.access.symbols)
        ):
            differ.add(x.name)
    anywhere = [x for x in found if differ & {*x.args} and x.access.offset.coeff(last) != 1]
    loaded = sum(nbytes(x.dtype) for x in found if x not in anywhere) + _SECTOR * len(anywhere)
    return program.rows * program.cols * loaded // _FASTER


def _sectors(graph: OpGraph, name: str) -> int:
    """Bytes of the sectors that hold single elements of a tensor, without these elements."""
    type_ = graph.type(name)
    return type_.numel * max(0, _SECTOR - nbytes(type_.dtype))


def _result_bytes(graph: OpGraph, node: Node) -> int:
    """Bytes of a node's results. Those of several are the ones that are used; of an effect, what it changes."""
    if node.type is not None:
        return node.type.nbytes
    return sum(user.type.nbytes for user in graph.users(node.name) if user.op == "_operator.getitem" and user.type)


def _memory_bytes(graph: OpGraph, name: str) -> int:
    """Bytes of memory that a value reaches: an expanded view has no more than what it is a view of."""
    producer = graph.producer(name)
    if producer is None:
        return graph.type(name).nbytes
    if producer.type is None:
        return _result_bytes(graph, producer)
    if producer.op == "expand":
        return min(producer.type.nbytes, _memory_bytes(graph, producer.values[0]))
    return producer.type.nbytes
