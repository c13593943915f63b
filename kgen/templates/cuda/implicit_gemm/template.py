"""Convolutions in CUDA: implicit matrix products on tensor cores, with maps in their epilogue.

    stage     one pass makes float16 of the images, channels last, scaled by powers of two
    direct    kernels of one element: cp.async brings the image as it is, mma.sync multiplies in TF32, from sm_80 on
    gather    cp.async brings windows, mma.sync multiplies, from sm_80 on
    im2col    TMA brings windows, wgmma multiplies, on sm_90 alone

One product of float16 is as accurate as TF32, three are as accurate as float32. Operands of half types are multiplied
as they are: staging them only moves channels last.
"""

from __future__ import annotations

import itertools
from dataclasses import astuple, dataclass
from typing import Sequence

from kgen.codegen.arguments import arguments as pointers, rendering, signature, sources, written
from kgen.codegen.c_printer import load_statement, pointer, statement, store_statement, store_value
from kgen.codegen.combines import SPELLED
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument, Filled, Rendering, Task, Template
from kgen.compiler.graph.convolutions import Convolution, Residue
from kgen.compiler.graph.dtypes import DTYPES
from kgen.compiler.loops.passes import Pass, Passes, passes_of
from kgen.compiler.loops.program import ELEMENT, Load, Map, Program, Reduce, Step, Store, Window, by_col, by_row, taken
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS
from kgen.compiler.rewrites.rewrite import Offer
from kgen.templates.cuda import common
from kgen.templates.cuda.implicit_gemm.residues import least_offset, shift
from kgen.templates.cuda.implicit_gemm.schedule import ImplicitGemm
from kgen.templates.cuda.implicit_gemm.space import lacks, space, takes

_OUTER = (0, 1, 1, 1, 1, 0, 1, 0, 1)  # a dimension of one element, as a line of one tap


def render(schedule: ImplicitGemm) -> Rendering:
    task, program = schedule.task, schedule.program
    window, tile = schedule.window, schedule.of_tile
    of = program.contraction
    staged, unscaled = schedule.staged, not schedule.scaled
    weight = Argument(pointer(of.weight), "in", of.weight, dtype=of.dtype)
    dtypes = {of.x: of.dtype, **program.tensor_dtypes}
    images = [Argument(pointer(name), "in", name, dtype=dtypes[name]) for name in of.reads if name != of.weight]
    filled = Filled(f"{task.kernel.name}_pack_weight", schedule.weights.all_rows)
    prepared = Argument(
        f"{task.kernel.name}_weight", "prepared", of.weight, str(schedule.weights.elements), of.dtype, filled
    )
    least = 32768 if schedule.im2col else 4  # maps of less than 128 KB are refused
    parts = f" + rows * {schedule.outputs.slots * schedule.results}" if schedule.results and not schedule.across else ""
    workspace = Argument(
        "workspace",
        "workspace",
        size=f"rows // {schedule.outputs.rows_of_image} * {schedule.staging.image_floats}{parts} + {least}",
    )
    others = [a for a in pointers(schedule) if a not in images]
    row = schedule.together
    raw = [weight] if row else []
    args = [*images, *raw, prepared, *(a for a in others if a not in raw), workspace]
    residues = [[_line(line) for line in _three(residue)] for residue in schedule.all_residues]
    context = {
        "formula": _formula(program, schedule),
        "epilogue": ", ".join(_words(task)),
        "variant": schedule.variant,
        "dtype": of.dtype,
        "staged": staged,
        "unscaled": unscaled,
        "operand": DTYPES[of.dtype].memory,
        "factor": DTYPES[of.dtype].memory if unscaled else symbol("__half"),
        "mma": symbol(DTYPES[of.dtype].mma or "mma"),
        "wgmma": symbol(DTYPES[of.dtype].wgmma or "wgmma"),
        "x_exponent": "" if unscaled else "x_exponent, ",
        "x_exponent_parameter": "" if unscaled else "const int x_exponent, ",
        "products": schedule.products,
        "terms": schedule.terms,
        "paired": schedule.paired,
        "tile": tile,
        "blocks": schedule.room.blocks,
        "resident": schedule.weights.resident,
        "block_k": schedule.block_k,
        "stages": schedule.stages,
        "groups": window.groups,
        "channels_in": window.channels_in,
        "channels_out": window.channels_out,
        "chunk": schedule.chunk,
        "chunks": schedule.chunks,
        "size": _padded([line.size for line in window.lines]),
        "out": _padded([line.out for line in window.lines]),
        "kernel": _padded([line.kernel for line in window.lines]),
        "transposed": window.transposed,
        "k": schedule.weights.k,
        "residues": residues,
        "residue_of_panel": "const Residue residue = RESIDUE[panel / GROUPS];"
        if len(residues) > 1
        else "constexpr Residue residue = RESIDUE[0];",
        "residue_of_work": "const Residue residue = RESIDUE[work.panel / GROUPS];"
        if len(residues) > 1
        else "constexpr Residue residue = RESIDUE[0];",
        "rank": len(window.lines),
        "maps": [_along(window, residue) for residue in schedule.all_residues],
        "row": row,
        "sides": [_line(astuple(line)) for line in row.sides] if row else [],
        "pair": schedule.pair,
        "scattered": schedule.pixels.scattered,
        "rows_out": schedule.weights.rows,
        "panels": schedule.weights.panels,
        "most_pixels": schedule.pixels.most,
        "pixels_at_once": schedule.staging.pixels_at_once,
        "chunk_lanes": schedule.staging.chunk_lanes,
        "x": images[0].name,
        "stage_parameters": signature(images, early=True)["parameters"],
        "stage_arguments": signature(images)["arguments"],
        "before": _before(task, of.before, schedule) if of.before else None,
        "weight": weight.name,
        "prepared": prepared.name,
        "pool": window.pool if window.pool > 1 else 0,
        "beside": schedule.pixels.beside,
        "passes": schedule.pixels.passes,
        "pools": _padded([line.pool for line in window.lines]),
        "shifts": _padded([shift(line, window) for line in window.lines]),
        "warp_pixels": schedule.pixels.of_warp,
        "pieces": schedule.pixels.of_warp // 8,
        "stored": schedule.stored,
        "exchanges": schedule.outputs.exchanges,
        "exchange": schedule.outputs.exchange,
        "exchange_floats": schedule.outputs.exchange_floats,
        "classes": schedule.outputs.classes,
        "sector": schedule.outputs.sector,
        "plane": window.pixels_out,
        "results": schedule.results,
        "across": schedule.across,
        "rows_of_image": schedule.outputs.rows_of_image,
        "found": schedule.outputs.found_floats,
        "ragged_rows": schedule.across and window.channels_out * (2 if schedule.pair else 1) != tile.rows,
        "warp_strips": tile.warp_strips,
        "slots": schedule.outputs.slots,
        **_epilogue(program, args, schedule),
    }
    return rendering(schedule, args, context, specific=schedule.im2col)


def _padded(sizes: list[int]) -> list[int]:
    """Three dimensions, those in front of one element."""
    return [1] * (3 - len(sizes)) + sizes


def _three(residue: tuple) -> list[tuple[int, ...]]:
    return [_OUTER] * (3 - len(residue)) + [astuple(line) for line in residue]


def _line(line: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, line)) + "}"


def _along(window: Convolution, residue: tuple[Residue, ...]) -> list[str]:
    """Where the windows of a residue begin along each dimension, the innermost first."""
    pairs = reversed(list(zip(window.lines, residue)))
    firsts = [(of.size, least_offset(line), line) for of, line in pairs]
    return [
        "{%d, %d, %d, %d}" % (size, first, first + (line.count - 1) * line.stride, line.stride)
        for size, first, line in firsts
    ]


def _formula(program: Program, schedule: ImplicitGemm) -> str:
    """The convolution, in terms of its sizes."""
    window = schedule.window
    shape = "x".join(str(line.kernel) for line in window.lines)
    kind = "Transposed convolution" if window.transposed else "Convolution"
    groups = f" in {window.groups} groups" if window.groups > 1 else ""
    return (
        f"{kind} of {window.channels_in * window.groups} channels to {schedule.channels_out}{groups}, kernel {shape},"
    )


def _words(task: Task) -> list[str]:
    """The names of the operators that a sum goes through, in order."""
    graph, nodes = task.plan.graph, task.kernel.nodes
    at = next(n for n, name in enumerate(nodes) if OPS[graph.node(name).op].kind is Kind.CONTRACTION)
    maps = [n for n in nodes[at + 1 :] if OPS[graph.node(n).op].kind in (Kind.POINTWISE, Kind.WINDOW)]
    return [*(["bias added"] if len(graph.node(nodes[at]).inputs) > 2 else []), *maps]


def _before(task: Task, program: Program, schedule: ImplicitGemm) -> dict[str, object]:
    """The statements that make neighbouring pixels of an image, which is a row of the program in front."""
    plan = passes_of(program, keep=True)
    (only,), read_from = plan.passes, {name: pointer(name) for name in program.tensors}
    outer, inner = common.load_statements(only.loads, schedule.staging.pixels_at_once, read_from)
    return {
        "row_statements": _statements([*plan.row_loads, *plan.row_maps], read_from),
        "outer": outer,
        "inner": [*inner, *map(_spelled, only.maps)],
        "value": program.stores[0].arg,
        "words": ", ".join(n for n in task.kernel.nodes if n in {m.name for m in only.maps}),
    }


def _epilogue(program: Program, args: list[Argument], schedule: ImplicitGemm) -> dict[str, object]:
    """The context of the epilogue: it finishes four neighbouring pixels, or one by one where they are not aligned."""
    plan, read_from = passes_of(program, keep=True), sources(args)
    only, *later = plan.passes
    vec = schedule.outputs.vec
    stored, reduced = (_Steps.of(program, plan, only, [x.arg for x in of]) for of in (only.stores, only.reductions))
    merged = _Steps.of(program, plan, only, [store.arg for store in only.row_stores])
    window = program.windows[0] if program.windows else None
    pooled = _Steps.of(program, plan, only, window.args if window else ())
    behind_stores = [store for of in later for store in of.stores]
    finished = _Steps.of(program, plan, only, [store.arg for store in behind_stores])
    # Where a reduced value is all that is stored, it is computed once.
    held = (
        only.stores[0].arg if len(only.stores) == 1 and only.stores[0].arg in {r.arg for r in only.reductions} else ""
    )
    rows = [
        x
        for x in (*plan.row_loads, *plan.row_maps)
        if x.name in stored.row_values | reduced.row_values | pooled.row_values
    ]
    if held:
        stored = _Steps((), (), frozenset())
    pixels, channels = [], []
    if schedule.across:  # rows are pixels: values of channels are read ahead instead
        pixels = rows
        rows = channels = [
            x for x in dict.fromkeys((*reduced.loads, *finished.loads, *pooled.loads)) if not x.access.takes_row
        ]
    single, last = ([*(x for x in of.loads if x not in channels), *of.maps] for of in (reduced, finished))
    finishes, merges = (
        [x for x in (*plan.row_loads, *plan.row_maps, *only.row_maps) if x.name in of.row_values]
        for of in (finished, merged)
    )
    pooled_maps = (*pooled.maps, *(window.body if window else ()))
    used = taken(
        (*stored.maps, *reduced.maps, *finished.maps, *pooled_maps, *only.stores, *only.reductions, *behind_stores)
    )
    outer, inner = common.load_statements(stored.loads, vec, read_from)
    if schedule.outputs.exchanges:
        store_outer, store_inner, close = _exchanged(only.stores, args)
    else:
        store_outer, store_inner, close = common.store_statements(only.stores, vec, args, "store_pixels")
    within = [
        x for x in (*stored.loads, *(() if schedule.outputs.exchanges else only.stores)) if common.one_by_one(x, vec)
    ]
    texts = {
        "row_values": [v.name for v in rows if v.name in used],
        "row_statements": _statements(rows, read_from, "col" if schedule.across else "0"),
        "of_pixels": _statements(pixels, read_from),
        "pooled": [*map(_spelled, pooled_maps)],
        "finished": _statements(finishes, read_from),
        "last": [*_statements(last, read_from, "col"), *common.store_statements(behind_stores, 1, args)[1]]
        if schedule.across
        else [],
        "prefetched": [
            f"{symbol('prefetch_line')}({read_from[x.tensor]} + {x.access.index()});"
            for x in stored.loads
            if _is_prefetched(x, vec)
        ],
        "outer": outer + store_outer,
        "inner": inner + [*map(_spelled, stored.maps)] + store_inner,
        "close": close,
        "reduced": _statements(single, read_from, "col"),
        "merged": _statements(merges, read_from)
        + [store_statement(store, written(store, args), "row", "0") for store in only.row_stores],
    }
    across = [*last, *behind_stores, *merges, *only.row_stores] if schedule.across else []
    elementwise = _pointers(
        [*rows, *pixels, *pooled_maps, *finishes, *stored.loads, *stored.maps, *single, *only.stores, *across], args
    )
    behind = _pointers([*merges, *only.row_stores], args)
    name = window.name if window else program.contraction.name
    return {
        **texts,
        "sum": name,
        "product": program.contraction.name,
        "pooled_value": window.arg if window else "",
        "combine": SPELLED[window.kind].merge.format("found", window.arg) if window else "",
        "pooled_values": taken(pooled_maps),
        "members": [f"{'const ' if a.role == 'in' else ''}{a.ctype}* {a.name}" for a in elementwise],
        "member_names": [a.name for a in elementwise],
        "merge_parameters": signature(behind, early=True)["parameters"],
        "merge_arguments": signature(behind)["arguments"],
        "reductions": [
            _reduction(r, at)
            for r, at in zip(only.reductions, itertools.accumulate((len(r.names) for r in only.reductions), initial=0))
        ],
        "inner_col": by_col((*within, *stored.maps)),
        "reduced_row": by_row((*single, *pixels)),
        "reduced_col": by_col(single),
        "held": held,
        "masks": any(r.kind == "moments" for r in only.reductions),
        "stored_values": taken(stored.maps) | (taken(only.stores) - {held}),
        "reduced_values": taken(reduced.maps) | {r.arg for r in only.reductions},
        "finished_values": taken((*finished.maps, *behind_stores)),
        "finished_sum": schedule.across and name in taken((*last, *behind_stores)),
    }


def _pointers(steps: Sequence[Step], args: Sequence[Argument]) -> list[Argument]:
    """The arguments, read or written, through which steps load and store."""
    read_from = sources(args)
    names = {read_from[x.tensor] for x in steps if isinstance(x, Load) and x.tensor} | {
        written(x, args) for x in steps if isinstance(x, Store)
    }
    return [a for a in args if a.role in ("in", "out") and a.name in names]


def _is_prefetched(load: Load, vec: int) -> bool:
    """Whether a load reads pixels of each channel, where they lie beside each other as results do."""
    place = load.access
    return (
        bool(load.tensor)
        and place.takes_row
        and place.takes_col
        and not place.mask
        and (vec == 1 or place.mode(vec) == "vector")
    )


def _exchanged(stores: Sequence[Store], args: Sequence[Argument]) -> tuple[list[str], list[str], list[str]]:
    """Statements of a lane's results of a line: what holds them, what puts one there, and what stores one."""
    names = [f"{store.tensor}_results" for store in stores]
    held = [f"{DTYPES[store.dtype].memory} {name}[STORES];" for store, name in zip(stores, names)]
    puts = [f"{name}[t] = {store_value(store)};" for store, name in zip(stores, names)]
    return (
        held,
        puts,
        [f"{written(store, args)}[{store.access.index()}] = {name}[t];" for store, name in zip(stores, names)],
    )


@dataclass(frozen=True)
class _Steps:
    """The element values that some values are computed from, in order, and the names of the row values among them."""

    loads: tuple[Load, ...]
    maps: tuple[Map | Load, ...]
    row_values: frozenset[str]

    @classmethod
    def of(cls, program: Program, plan: Passes, only: Pass, wanted: Sequence[str]) -> _Steps:
        by_name = {s.name: s for s in (*program.loads, *program.steps) if not isinstance(s, (Reduce, Window))}
        found, waiting = set(), list(wanted)
        while waiting:
            name = waiting.pop()
            if name in by_name and name not in found:
                found.add(name)
                waiting += by_name[name].args
        rows = {v.name for v in (*plan.row_loads, *plan.row_maps, *only.row_maps)}
        elements = [
            s
            for s in (*program.loads, *program.steps)
            if not isinstance(s, (Reduce, Window)) and s.level == ELEMENT and s.name in found
        ]
        loads, maps = (tuple(x for x in elements if (x in program.loads) == first) for first in (True, False))
        return cls(loads, maps, frozenset(found & rows))


def _spelled(step: Map | Load) -> str:
    return statement(step, "cuda")


def _statements(steps: Sequence[Map | Load], read_from: dict[str, str], col: str = "0") -> list[str]:
    """The statements of values of a row, or of one element in column ``col``."""
    return [
        load_statement(x, read_from, "row", col) if isinstance(x, Load) and not x.args else _spelled(x) for x in steps
    ]


def _reduction(r: Reduce, at: int) -> dict[str, object]:
    """The statements of one reduction: of all values of a thread, and of what another thread found."""
    combine, names, values = SPELLED[r.kind], ", ".join(r.names), f"{r.names[0]}_values"
    if r.kind == "sum":  # in two steps: rounding of equal values, as behind images of zeros, adds up over long sums
        part = f"{r.names[0]}_part"
        every = [
            f"float {part} = {values}[0];",
            "#pragma unroll",
            f"for (int i = 1; i < VALUES; ++i) {part} += {values}[i];",
            f"{r.names[0]} += {part};",
        ]
    elif combine.take:
        every = ["#pragma unroll", f"for (int i = 0; i < VALUES; ++i) {combine.take.format(*r.names, f'{values}[i]')}"]
    else:
        every = [
            f"{symbol('moments_some')}<VALUES>({names}, {values}, inside);"
            if r.kind == "moments"
            else f"{symbol('merge_chunk')}<VALUES>({names}, {values});"
        ]
    return {
        "kind": r.kind,
        "arg": r.arg,
        "values": values,
        "identity": {"sum": "0.0f", "min": "INFINITY"}.get(r.kind, "-INFINITY"),
        "results": [
            {"name": name, "start": start, "at": at + n, "between": between}
            for n, (name, start, between) in enumerate(zip(r.names, combine.starts, combine.between or combine.types))
        ],
        "every": every,
        "merge": combine.merged(r.names, [f"other_{name}" for name in r.names]),
    }


TEMPLATE = Template(
    name="implicit_gemm", device_type="cuda", file="cuda/implicit_gemm/implicit_gemm.cu.j2", takes=takes,
    schedule=ImplicitGemm, space=space, render=render, lacks=lacks, arithmetic=common.arithmetic,
    copied=lambda program: (program.contraction.weight,),  # packed
    offers=frozenset({Offer.CUDNN}),
)  # fmt: skip
