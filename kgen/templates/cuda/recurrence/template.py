"""Recurrent layers in CUDA: one cooperative kernel takes all steps, with the weights in registers.

Tensor cores (mma) multiply states of half types. States of float32 are split into two float16 terms for them, or
rounded to one where PyTorch multiplies in TF32. Ordinary instructions multiply other states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

from kgen.codegen.arguments import arguments as pointers, declared, rendering
from kgen.codegen.c_printer import output_pointer, pointer
from kgen.codegen.recurrent import recurrent_context, sizes_of
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument, Rendering, Schedule, Task, Template, parameter
from kgen.compiler.graph.dtypes import DTYPES, is_narrow, nbytes
from kgen.compiler.loops.program import Program
from kgen.compiler.loops.recurrence import CELL, HIDDEN, OUTPUT, Recurrence

_MOST_WEIGHTS = 5 << 20  # elements; the registers of a large GPU hold as many
_MOST_SLICE = 64  # rows of the batch
_MOST_TURNS = 4  # whose states a block has in registers
_MOST_IN_FLIGHT = 8  # vectors of a thread
_MMA_ROWS, _MMA_STATES = 16, 16  # of a weight, and of the batch, that a warp's products of half types take
_MOST_LANE_VECTORS = 8  # of a state of float32 that is split
_MOST_HELD = 16  # vectors of such states that a lane waits for
_TERM_EXPONENT = 12  # of a state: its one term is as accurate as TF32 from 2^-26 to 2^4, and infinite beyond
_SPLIT_REGISTERS = 24  # for sums and states of split terms
_OTHER_REGISTERS = 48  # of a thread, for addresses and what is loaded


@dataclass(frozen=True, kw_only=True)
class Recurrent(Schedule):
    units: int = parameter("hidden units of a block")
    warps: int = parameter("warps of a block")
    slice: int = parameter("rows of the batch that a team of blocks takes through the steps")
    terms: int = parameter("terms of 16 bits of a number, for tensor cores: 1 or 2; 0 multiplies the number itself")
    together: int = parameter("rows of the batch that a warp multiplies at once")

    @property
    def of(self) -> Recurrence:
        assert self.program.recurrence is not None
        return self.program.recurrence

    @property
    def narrow(self) -> bool:
        return is_narrow(self.of.dtype)

    @property
    def split(self) -> bool:
        """Whether numbers of float32 are two float16 terms."""
        return self.terms == 2

    @property
    def rounded(self) -> bool:
        """Whether numbers of float32 are one float16 term, which blocks give each other beside the number."""
        return self.terms == 1 and not self.narrow

    @property
    def tiled(self) -> bool:
        """Whether tensor cores multiply."""
        return self.terms > 0

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def blocks(self) -> int:
        """Blocks of one layer and direction."""
        return -(-self.of.hidden // self.units)

    @property
    def turns(self) -> int:
        """Slices of a team that take turns at each step, where fewer teams than slices run beside each other."""
        if self.of.depth > 1:
            return 1
        teams = max(1, self.task.hardware.multiprocessors // (self.blocks * len(self.of.layers)))
        return min(-(-_batch(self.program) // (self.slice * teams)), _MOST_TURNS)

    @property
    def k(self) -> int:
        """Elements of a state that are multiplied: four for each lane of a warp, once or more."""
        return -(-self.of.hidden // 128) * 128

    @property
    def pitch(self) -> int:
        """Elements from a state to the next one in shared memory. Neighbouring states of 16 bits begin in other
        banks."""
        return self.k + 8 if self.tiled else self.k

    @property
    def per_vector(self) -> int:
        """Elements of 16 bytes of a state that blocks give each other."""
        return 8 if self.rounded else 16 // nbytes(self.of.dtype)

    @property
    def groups(self) -> int:
        """Groups of rows of a weight for tensor cores, each for a warp or for several."""
        return -(-self.of.cell.gates * self.units // _MMA_ROWS)

    @property
    def splits(self) -> int:
        """Warps that share rows of a weight, each with a part of k; 0 where groups of rows are more than warps."""
        return self.warps // self.groups if self.tiled else 1

    @property
    def tiles(self) -> int:
        """Of 16 of k, of a warp's part."""
        return self.k // 16 // max(self.splits, 1)

    @property
    def warp_rows(self) -> int:
        """Rows of a weight that a warp has."""
        return _MMA_ROWS if self.tiled else -(-self.of.cell.gates * self.units // self.warps)

    @property
    def padded_rows(self) -> int:
        """Rows of a weight that are multiplied."""
        return self.warp_rows * (self.groups if self.tiled else self.warps)

    @property
    def padded_slice(self) -> int:
        """Rows of the batch that are multiplied, which come in groups."""
        return -(-self.slice // self.together) * self.together

    @property
    def owned(self) -> int:
        """Elements of a step that a thread finishes."""
        return -(-self.units * self.slice // self.threads)

    @property
    def vectors(self) -> int:
        """Vectors of a state that a thread reads."""
        return -(-self.slice * self.of.hidden // self.per_vector // self.threads)

    @property
    def in_flight(self) -> int:
        """Vectors that a thread waits for at a time."""
        return min(self.vectors, _MOST_IN_FLIGHT)

    @property
    def ahead(self) -> bool:
        """Whether outputs of the layer below are read a step ahead, so that they have come when the step begins."""
        return self.of.depth > 1 and self.in_flight == self.vectors and not self.split and self.turns == 1

    @property
    def lane_vectors(self) -> int:
        """Vectors of a state that a lane reads where a warp reads the whole of it."""
        return -(-self.of.hidden // (32 * self.per_vector))

    @property
    def lane_rows(self) -> int:
        """Rows that a warp reads at a time."""
        return max(1, min(_MOST_HELD // self.lane_vectors, -(-self.slice // self.warps)))

    @property
    def shared_bytes(self) -> int:
        of_states = (2 if self.tiled else 4) * _states_size(self)
        of_exponents = 4 * self.padded_slice if self.split else 0
        of_products = 4 * self.splits * self.padded_rows * self.slice
        return (of_states + of_exponents + of_products) * (2 if self.of.depth > 1 else 1)

    @cached_property
    def registers(self) -> int:
        """Registers that a thread needs, about."""
        inner = 2 if self.of.depth > 1 else 1
        weights = inner * (4 * self.tiles * self.terms if self.tiled else self.warp_rows * self.k // 32)
        elements = self.owned * (self.of.cell.gates * (1 + inner) + len(self.of.cell.states) * self.turns)
        if self.split:
            return weights + elements + max(4 * self.lane_vectors * self.lane_rows, _SPLIT_REGISTERS) + _OTHER_REGISTERS
        products = 12 if self.tiled else self.warp_rows * self.together + 4 * self.together
        return weights + elements + 4 * (2 if self.ahead else 1) * self.in_flight + products + _OTHER_REGISTERS


def takes(program: Program) -> bool:
    """Programs of recurrent layers whose weights registers can hold, and whose rows are whole vectors."""
    of = program.recurrence
    if of is None:
        return False
    fit = 4 // nbytes(of.dtype)  # elements in a register
    return of.hidden % (4 * fit) == 0 and _weights(of) <= fit * _MOST_WEIGHTS


def _weights(of: Recurrence) -> int:
    """Elements of all weights that the steps need."""
    return sum(of.rows * of.hidden * (2 if layer.inner_weight else 1) for layer in of.layers)


def _states_size(schedule: Recurrent) -> int:
    """Elements of the states of a slice in shared memory, with all their terms."""
    return max(schedule.terms, 1) * schedule.padded_slice * schedule.pitch


def _batch(program: Program) -> int:
    """Rows of the batch, of the problem's own size."""
    of = program.recurrence
    assert of is not None
    return of.batch if isinstance(of.batch, int) else program.rows


def space(task: Task) -> Space:
    program = task.program()
    of, hardware = program.recurrence, task.hardware
    assert of is not None
    terms = (1,) if is_narrow(of.dtype) else (1, 2, 0) if task.tf32 else (2, 0)
    blocks = max(1, hardware.multiprocessors // len(of.layers))  # of a layer at most
    least = -(-of.hidden // blocks)
    batch = _batch(program)
    counts = [least, -(-least // 4) * 4, 2 * least, 4 * least]
    slices = dict.fromkeys(min(-(-batch // parts), _MOST_SLICE) for parts in (1, 2, 4))
    if terms[0] == 1 and batch >= 2 * _MMA_STATES:
        # Whole groups of states, and more units, were fastest in two layers (docs/notes/recurrence.md).
        counts = [2 * least, *counts]
        slices = dict.fromkeys(sorted(slices, key=lambda n: (n < _MMA_STATES, n)))
    units = tuple(dict.fromkeys(min(n, of.hidden) for n in counts))
    axes = (
        Axis("units", units),
        Axis("warps", (8, 12, 16, 4)),
        Axis("slice", tuple(slices)),
        Axis("terms", terms),
        Axis("together", (_MMA_STATES,) if is_narrow(of.dtype) else (_MMA_STATES, 2, 4, 1)),
    )
    return Space(
        partial(Recurrent, task),
        axes,
        (
            Constraint(
                "registers",
                ("units", "warps", "slice", "terms", "together"),
                "its weights do not fit in registers",
                lambda s: (
                    s.registers
                    <= min(hardware.registers_per_thread, hardware.registers_per_multiprocessor // s.threads)
                ),
            ),
            Constraint(
                "shared_bytes",
                ("units", "warps", "slice", "terms", "together"),
                "more shared memory than a block may have",
                lambda s: s.shared_bytes <= hardware.shared_bytes_per_block,
            ),
            Constraint(
                "sums",
                ("units", "warps", "terms", "together"),
                "a lane has one sum at most of those that a warp adds up",
                lambda s: s.tiled or s.warp_rows * s.together <= 32,
            ),
            Constraint(
                "idle_warps",
                ("units", "warps", "terms"),
                "a warp without a row of the weights waits for the others",
                lambda s: s.tiled or s.warps <= of.cell.gates * s.units,
            ),
            Constraint(
                "whole_parts",
                ("units", "warps", "terms"),
                "warps share groups of rows of the weights, each with as large a part of k",
                lambda s: not s.tiled or (s.splits > 0 and s.warps % s.groups == 0 and s.k // 16 % s.splits == 0),
            ),
            Constraint(
                "tensor_cores",
                ("terms", "together"),
                "products of float16 need the tensor cores of sm_80, which take 16 rows of the batch",
                lambda s: s.tiled == (s.together == _MMA_STATES) and (not s.tiled or hardware.capability >= 80),
            ),
            Constraint(
                "lane_vectors",
                ("terms",),
                "a state that is split lies in the registers of one warp",
                lambda s: not s.split or s.lane_vectors <= _MOST_LANE_VECTORS,
            ),
            Constraint(
                "whole_vectors",
                ("terms",),
                "blocks give each other whole vectors of terms",
                lambda s: not s.tiled or of.hidden % s.per_vector == 0,
            ),
            Constraint(
                "whole_groups",
                ("slice", "terms", "together"),
                "a group of rows that is larger than a slice multiplies zeros",
                lambda s: s.tiled or s.together <= s.slice,
            ),
        ),
    )


def render(schedule: Recurrent) -> Rendering:
    of = schedule.of
    elements = f"{of.hidden * of.directions} * steps * batch"
    args = pointers(schedule)
    output = output_pointer(of.result(OUTPUT)) if of.result(OUTPUT) else ""
    element = DTYPES[of.dtype].memory
    workspace = f"reinterpret_cast<{element}*>(workspace)" if schedule.narrow else "workspace"
    memories = [f"{workspace} + {number} * {elements}" for number in range(of.depth - 1)] + [
        output or f"{workspace} + {of.depth - 1} * {elements}"
    ]
    kept = of.depth - bool(output)  # layers whose outputs are no result
    halves = kept if schedule.narrow else 2 * kept + of.depth * schedule.rounded  # of floats in the workspace
    if halves:
        extents = [str(of.hidden * of.directions * halves // 2), *sizes_of(of).values()]
        args.append(Argument("workspace", "workspace", size=" * ".join(extents)))
    terms = f"reinterpret_cast<float16_t*>(workspace + {kept} * {elements})"
    fields = [name for name in ("weight", "bias", "inner_weight", "inner_bias") if getattr(of.layers[-1], name)]
    layers = [
        [
            *(pointer(tensor) if (tensor := getattr(layer, name)) else "nullptr" for name in fields),
            memories[number // of.directions],
            *([f"{terms} + {number // of.directions} * {elements}"] if schedule.rounded else []),
        ]
        for number, layer in enumerate(of.layers)
    ]
    last = [
        (state, output_pointer(of.result(kind)))
        for state, kind in (("hidden", HIDDEN), ("cell", CELL))
        if of.result(kind)
    ]
    own = [a for a in args if a.tensor in (of.products, *of.states) or a.name in dict(last).values()]
    shared = recurrent_context(of, "cuda")
    in_halves = schedule.narrow or schedule.rounded  # as blocks give states to each other
    context = {
        **shared,
        "threads": schedule.threads,
        "units": schedule.units,
        "slice": schedule.slice,
        "together": schedule.together,
        "blocks": schedule.blocks,
        "k": schedule.k,
        "warp_rows": schedule.warp_rows,
        "padded_rows": schedule.padded_rows,
        "narrow": schedule.narrow,
        "split": schedule.split,
        "rounded": schedule.rounded,
        "tiled": schedule.tiled,
        "turns": schedule.turns,
        "states_size": _states_size(schedule),
        "state_type": symbol("__half" if schedule.split else "float16_t" if schedule.rounded else element),
        "lane_vectors": schedule.lane_vectors,
        "lane_rows": schedule.lane_rows,
        "term_exponent": _TERM_EXPONENT,
        "term_scale": f"{2.0**_TERM_EXPONENT}f",
        "type": element,
        "vector": "uint4" if in_halves else "float4",
        "per_vector": schedule.per_vector,
        "pitch": schedule.pitch,
        "warps": schedule.warps,
        "groups": schedule.groups,
        "tiles": schedule.tiles,
        "splits": schedule.splits,
        "mma": symbol(DTYPES[of.dtype if schedule.narrow else "float16"].mma) if in_halves else "",
        "peek": symbol("peek_halves" if in_halves else "peek"),
        "publish": symbol("publish_half" if schedule.narrow else "publish"),
        "is_published": symbol("halves_are_published" if in_halves else "is_published"),
        "padded_slice": schedule.padded_slice,
        "owned": schedule.owned,
        "vectors": schedule.vectors,
        "in_flight": schedule.in_flight,
        "ahead": schedule.ahead,
        "shared_bytes": schedule.shared_bytes,
        "depth": of.depth,
        "biased": bool(of.layers[0].bias),
        "first_layer": of.first,
        "fields": fields,
        "layers": layers,
        "last": last,
        "kept": [state for state in of.cell.states if state in shared["used"] or state in dict(last)],
        "begins": [
            *([("workspace", f"{halves} * {elements} * {nbytes('float16')}")] if halves else []),
            *([(output, f"{elements} * {nbytes(of.dtype)}")] if output else []),
        ],
    }
    found = rendering(schedule, args, context)
    mine = {"parameters": ", ".join(map(declared, own)), "arguments": ", ".join(a.name for a in own)}
    return replace(found, context={**found.context, **mine})


TEMPLATE = Template(
    name="recurrence", device_type="cuda", file="cuda/recurrence/recurrence.cu.j2", takes=takes, schedule=Recurrent,
    space=space, render=render
)  # fmt: skip
