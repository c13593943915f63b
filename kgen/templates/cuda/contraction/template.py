"""Contractions in CUDA: matrix products to float32 accuracy on tensor cores, with maps in their epilogue.

Float32 accuracy takes three products of float16 terms, TF32 accuracy one. Operands of half types are multiplied as they
are, by the variants sm90 and mma. Six variants share all but the multiplying:

    sm90      TMA and wgmma, which sm_90 alone has
    sm80      cp.async and mma.sync, from sm_80 on
    mma       the same for operands of half types, where they lie
    slices    wgmma, for long sums of few results: blocks scale and split both operands themselves, as they load them
    whole     sm80 in one launch, for small contractions: blocks split whole rows themselves
    library   cuBLAS multiplies the terms, over short promotion intervals of k
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgen.codegen.arguments import arguments as pointers, rendering, signature, sources, written
from kgen.codegen.c_printer import (
    describe,
    load_statement,
    output_pointer,
    pointer,
    row_statements,
    statement,
    store_statement,
)
from kgen.codegen.combines import SPELLED
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument, Before, Filled, Rendering, Task, Template
from kgen.compiler.graph.dtypes import DTYPES, is_float, is_narrow
from kgen.compiler.graph.library_call import X
from kgen.compiler.loops.passes import Pass, Passes, passes_of
from kgen.compiler.loops.program import ELEMENT, ROW, Load, Program, Reduce, Store, by_col, taken
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS
from kgen.templates.cuda import common
from kgen.templates.cuda.contraction.schedule import LONGEST_ROW, WIDEST_SPAN, Contraction
from kgen.templates.cuda.contraction.space import lacks, space
from kgen.templates.cuda.contraction.tiles import WarpgroupTile

#: Of the splitting kernel: the longest row in elements, the threads of a block, and each thread's groups of eight
#: columns. Longer rows are read twice.
_SPLITS = (
    (512, 64, 1), (1024, 128, 1), (2048, 128, 2), (4096, 256, 2), (8192, 256, 4), (16384, 512, 4), (32768, 1024, 4),
)  # fmt: skip

_SHORT_ROW = 256  # elements of a row that a warp splits, at most; a block takes several such rows
_LONGEST_STRIP = 8192  # elements of a column that the registers of a cluster's eight blocks have room for
_LONG_SUMS = 2048  # elements of k; behind longer sums, results are too few to pay for the exchanges of wide stores
_MULTIPLYING, _FINISHING = (
    160,
    200,
)  # registers of a thread for sums, and what is read ahead of them, of the 232 that it has
_MOST_AHEAD = 4  # bytes that are read ahead for each element of a result, and operands
_STRIP_COLS = 32  # columns of sums in memory that a warp finishes at once; a wider span has more

#: The reductions of spans, by their kinds; moments and softmax take two passes.
_OF_SPANS = ("sum", "product", "max", "min", "max_finite", "moments", "softmax")

#: Groups of eight columns that are finished at once, each with the most column operands that leave registers for it.
#: With more operands it is 2, or 4 for moments: up to eight lanes share a column, and each keeps one at least.
_AT_ONCE = ((16, 1), (8, 3), (4, 7))


def takes(program: Program) -> bool:
    """Programs that begin with a contraction of matrices.

    Maps follow it, of indices too. Moments over the batch may end it. Reductions may take spans of neighbouring columns
    that lie within one tile.
    """
    of = program.contraction
    if program.span and not _takes_spans(program):
        return False
    if (
        of is None
        or of.window is not None
        or not of.in_order
        or not program.floats
        or any(x.access.mask or x.args for x in program.reads)
    ):
        return False
    if not is_narrow(of.dtype):
        return not program.narrow
    # Operands of half types are read where they are, 16 bytes at a time: rows along k, or columns along the rows.
    along = [(of.turned, of.group or program.row_size), (of.transposed, program.cols)]
    return all(isinstance(size, int) and size % 8 == 0 for turned, rows in along for size in [rows if turned else of.k])


def copied(program: Program) -> tuple[str, ...]:
    """The right operand in float32, which is split into terms; operands of half types are read where they are."""
    return () if is_narrow(program.contraction.dtype) else (program.contraction.weight,)


def _takes_spans(program: Program) -> bool:
    """Whether a warp finishes whole spans, and stores elements where it may have found sums of rows that are not
    finite."""
    whole = f"row * {program.cols} + col"
    in_order = all(s.level == ROW or s.access.index() == whole for s in program.stores)
    kinds = all(r.kind in _OF_SPANS and is_float(r.dtypes[0]) for r in program.reductions)
    return WIDEST_SPAN % program.span == 0 and in_order and kinds


def render(schedule: Contraction) -> Rendering:
    task, program = schedule.task, schedule.program
    of, terms, library = program.contraction, schedule.terms, schedule.library
    n, k, ld = program.cols, of.k, schedule.ld
    tile, strip = None if library else schedule.of_tile, max(_STRIP_COLS, program.span)
    operands = _Operands.of(schedule)
    moments, finishing = common.finishing(task) if program.moments_of else ({}, [])
    args = operands.arguments(pointers(schedule), split_before=library)
    elementwise = [a for a in args if a.role == "out" or (a.role == "in" and a.tensor in program.tensors)]
    before = _before(schedule, operands) if library else None
    streams = common.streams(task) and program.rows * n > k * (program.rows + of.matrices * n)
    epilogue = _epilogue(program, args, _widest(schedule), schedule.most_groups, streams, schedule.reads_ahead)
    context = {
        "formula": of.formula(n),
        "variant": schedule.variant,
        "tile": tile,
        "ragged": n % (tile.cols if tile else strip) != 0,
        "stages": schedule.stages,
        "slots": schedule.slots,
        "terms": terms,
        "dtype": of.dtype,
        "operand": DTYPES[of.dtype].memory,
        "mma": symbol(DTYPES[of.dtype].mma or "mma"),
        "half_operands": is_narrow(of.dtype),
        "terms_word": "terms" if terms == 2 else "float16",
        "splits": schedule.splits,
        "partials": schedule.partials,
        "swizzle_group": schedule.swizzle_group,
        "cluster": schedule.cluster,
        "multicast": schedule.multicast,
        "shared": schedule.shared_operand,
        "clustered": schedule.cluster != 1 or schedule.multicast != 1,
        "promotion_interval": ld // schedule.splits if library else schedule.promotion_interval,
        "n": n,
        "k": k,
        "ld": ld,
        "sums_ld": schedule.shape.sums_ld,
        "grouped": of.group is not None,
        "group": of.group,
        "prepared": operands.prepared and operands.prepared.name,
        "strided": operands.strided,
        "x": operands.x.name,
        "weight": operands.right.name,
        "balanced": operands.balanced,
        "split": _split(k, ld, terms, operands.balanced, schedule.rounded),
        "split_columns": _split_columns(task, k, ld, terms, operands.balanced),
        "turned": of.turned,
        "columns_of_weight": of.transposed and not operands.prepared,
        "members": [f"{'const ' if a.role == 'in' else ''}{a.ctype}* {a.name}" for a in elementwise],
        "member_names": [a.name for a in elementwise],
        "span": program.span,
        "repaired": _repairs_apart(program),
        "strip": strip,
        "moments": program.moments_of is not None,
        "result": program.moments_of,
        "moments_parameters": signature(finishing, early=True)["parameters"],
        "moments_arguments": signature(finishing)["arguments"],
        "cols": n,
        "scratch": _scratch(program),
        "sum": of.name,
        "epilogue": ", ".join(_words(task)),
        "split_parameters": before and signature(before.arguments)["launcher_parameters"],
        **epilogue,
        "reads_ahead": _reads_ahead(schedule, epilogue["ahead"]),
        **moments,
    }
    return rendering(
        schedule, [*args, *finishing], context, specific=schedule.variant in ("sm90", "slices"), before=before
    )


def _before(schedule: Contraction, operands: _Operands) -> Before:
    """The first steps of the variant ``library``: it splits the operands and has the library multiply their terms."""
    task, program, n, terms, ld = schedule.task, schedule.program, schedule.program.cols, schedule.terms, schedule.ld
    row, behind = ld * terms // 2, "" if operands.prepared else f" + {n * ld * terms // 2}"
    w = task.plan.graph.fresh(operands.prepared.name) if operands.prepared else f"{{workspace}}[{{rows}} * {row} :]"
    sums = f"{{workspace}}[{{rows}} * {row}{behind} :]"
    sizes = f"({{rows}}, {n}, {ld})"
    call = f"multiply_terms({{workspace}}, {w}, {sums}, {terms}, {schedule.splits}, {sizes}, {schedule.shape.sums_ld})"
    scratch = [Argument(output_pointer(s.tensor), "out", s.tensor) for s in program.stores if s.level == ELEMENT][:1]
    prepared = (operands.prepared,) if operands.prepared else ()
    assert operands.workspace is not None
    arguments = tuple(dict.fromkeys((operands.x, operands.right, *prepared, *scratch, operands.workspace)))
    return Before(f"{task.kernel.name}_split", arguments, call, "cuda/contraction/multiply_terms.py.j2")


def _repairs_apart(program: Program) -> bool:
    """Whether sums of rows that are not finite wait in the workspace, since no result has room for them."""
    return not is_narrow(program.contraction.dtype) and not any(s.level == ELEMENT for s in program.stores)


def _scratch(program: Program) -> str:
    """The pointer to where such sums wait: the first result of all elements, if there is one."""
    return next((output_pointer(s.tensor) for s in program.stores if s.level == ELEMENT), "repaired")


def _words(task: Task) -> list[str]:
    """The names of the operators that a sum goes through, in order."""
    contraction, *rest = task.kernel.nodes
    steps = [n for n in rest if OPS[task.plan.graph.node(n).op].kind in (Kind.POINTWISE, Kind.REDUCTION)]
    return [*(["bias added"] if len(task.plan.graph.node(contraction).inputs) > 2 else []), *steps]


@dataclass(frozen=True)
class _Operands:
    """The launcher's pointers to both operands, and to memory for their terms.

    ``prepared`` has the terms of a weight, split once; the kernel reads the weight itself for rows that are not finite.
    Any other right operand is split in each call, into the workspace. Operands of half types are not split.
    """

    x: Argument
    right: Argument
    prepared: Argument | None
    workspace: Argument | None
    strided: bool  #: whether the right operand's rows are columns in memory
    balanced: bool = False  #: whether the elements of one k are evened out over both operands before they are split

    @classmethod
    def of(cls, schedule: Contraction) -> _Operands:
        task, program, sums_ld, partials = schedule.task, schedule.program, schedule.shape.sums_ld, schedule.partials
        of, n, terms, ld = program.contraction, program.cols, schedule.terms, schedule.ld
        row = (
            0 if schedule.variant == "slices" else ld * terms // 2
        )  # float32 elements that a row's terms take in memory
        x, right = (Argument(pointer(name), "in", name, dtype=of.dtype) for name in (of.x, of.weight))
        turned = X.member("mT") if of.transposed else X
        size = f"rows * {row + 1 + partials * sums_ld}"
        moments = f"(rows + 15) // 16 * {2 * sums_ld}"
        size += f" + {moments}" if program.moments_of else ""
        repaired = f"rows * {sums_ld}"
        size += f" + {repaired}" if _repairs_apart(program) else ""
        if is_narrow(of.dtype):
            needed = [f"{partials} * rows * {sums_ld}"] if partials else []
            needed += [moments] if program.moments_of else []
            workspace = Argument("workspace", "workspace", size=" + ".join(needed)) if needed else None
            return cls(x, right, None, workspace, of.transposed)
        if not task.plan.graph.is_weight(of.weight):
            w_rows = n if of.group is None else f"rows // {of.group} * {n}"
            balanced = _lacks_terms(program) and schedule.variant != "slices"
            size += f" + {w_rows} * {row + 1} + {2 * ld + 6 if balanced else 3}"
            return cls(x, right, None, Argument("workspace", "workspace", size=size), of.transposed, balanced)
        w_rows = of.matrices * n
        filled = Filled(f"{task.kernel.name}_split_weight", w_rows, turned)
        name = f"{of.weight}_{'split' if terms == 2 else 'rounded'}"
        name += f"_{ld}" if schedule.variant == "library" else ""  # kernels of a file may share the terms of a weight
        name += "_short" if schedule.rounded else ""
        prepared = Argument(name, "prepared", of.weight, str(w_rows * row + w_rows), filled=filled)
        if schedule.variant == "whole":
            needed = [moments] if program.moments_of else [repaired] if _repairs_apart(program) else []
            workspace = Argument("workspace", "workspace", size=needed[0]) if needed else None
            return cls(x, right, prepared, workspace, of.transposed)
        return cls(x, right, prepared, Argument("workspace", "workspace", size=size), of.transposed)

    def arguments(self, others: list[Argument], split_before: bool) -> list[Argument]:
        """All pointers in order, each once: the operands, unless they were split before, then the epilogue's."""
        first = [] if split_before else list(dict.fromkeys((self.x, self.right)))
        behind = [self.workspace] if self.workspace else []
        prepared = [self.prepared] if self.prepared else []
        return [*first, *prepared, *(a for a in others if a not in first), *behind]


def _lacks_terms(program: Program) -> bool:
    """Whether results may have few of k, with rows of both operands that can be evened out.

    Results that are chosen by row and column are a triangle, and so may the operands be. Any other result has all of k,
    so that it is as large as the largest elements allow.
    """
    of, indices = program.contraction, [x for x in program.loads if not x.tensor]
    return len(indices) > 1 and of.transposed and not of.turned and of.group is None and of.k <= LONGEST_ROW


def _split(k: int, ld: int, terms: int, balanced: bool, rounded: bool) -> str:
    """The call that splits rows of this length."""
    if ld <= _SHORT_ROW:
        lanes = 1 << max(3, (ld // 8 - 1).bit_length())
        return f"{symbol('split_short_rows')}<{k}, {ld}, {lanes}, {terms}{', true' if balanced else ''}>"
    for longest, threads, groups in _SPLITS:
        if ld <= longest:
            choices = ", false, true" if rounded else ", true" if balanced else ""
            return f"{symbol('split_rows')}<{k}, {ld}, {threads}, {groups}, {terms}{choices}>"
    return f"{symbol('split_long_rows')}<{k}, {ld}, 1024, {terms}{', true' if rounded else ''}>"


def _split_columns(task: Task, k: int, ld: int, terms: int, balanced: bool) -> str:
    """The call that splits columns of this length: from registers of a cluster of blocks, where these have room for
    them."""
    name = "split_strips" if task.hardware.capability >= 90 and ld <= _LONGEST_STRIP else "split_columns"
    return f"{symbol(name)}<{k}, {ld}, {terms}{', true' if balanced else ''}>"


def _widest(schedule: Contraction) -> int:
    """Neighbouring columns that a lane finishes, at most: two where it reduces spans.

    Their reductions take so many instructions that an exchange before them costs more than narrow stores.
    """
    narrow = schedule.shape.span > 0 and not schedule.shape.narrow and not schedule.exchanges_for_spans
    return 2 if narrow else _STRIP_COLS


def _epilogue(
    program: Program, args: list[Argument], widest: int, most: int, streams: bool, reads_ahead: bool
) -> dict[str, object]:
    """The context of the epilogue: it finishes ``vec`` neighbouring columns at a time, ``width`` of a lane's places.

    These are ``widest`` at most. A thread has registers for no more than ``most`` groups of eight columns at once. It
    ``streams`` results past the cache where they are most of what is moved; elsewhere the registers are worth more.
    Each reduction of spans begins another pass. ``reads_ahead`` says whether registers suffice to read all values of
    the elements before the first store. Each read behind a store waits for memory, since the store may change it.
    """
    plan, read_from = _in_place(program), sources(args)
    vec = min(widest, _vector(program, [s for s in program.stores if s.level == ELEMENT]))
    ahead = _ahead(program, plan, vec) if reads_ahead else []
    passes, columns = [], []
    for of in plan.passes:
        first = [
            x for x in _columns(of) if x not in columns and x not in ahead
        ]  # a pass that computes values again has some of them
        columns += first
        passes.append(_pass(program, plan, of, first, vec, args, "stream_vector" if streams else "store_vector", ahead))
    most_columns = max(len(of["columns"]) for of in passes)
    at_once = next(
        (groups for groups, operands in _AT_ONCE if most_columns <= operands), 2 if program.moments_of is None else 4
    )
    return {
        "vec": vec,
        "width": max(vec, 2),
        "at_once": min(at_once, most)
        if vec <= 2
        else max(1, min(at_once, most) // vec),  # chunks, of as many groups as a vector is wide
        "column_addresses": [f"{read_from[x.tensor]} + {x.access.index('row', 'col')}" for x in columns],
        "row_statements": row_statements(plan, "cuda"),
        "passes": passes,
        "ahead": [
            {
                "name": x.name,
                "memory": DTYPES[x.dtype].memory,
                "nbytes": _bytes_of_each(x),
                "load": common.load_vector(x, vec, read_from, False),
            }
            for x in ahead
        ],
        **passes[0],
    }


def _ahead(program: Program, plan: Passes, vec: int) -> list[Load]:
    """The loads of elements and of columns in the one pass of an epilogue, where they are few vectors."""
    if len(plan.passes) > 1 or program.span or vec == 1:
        return []
    (only,) = plan.passes
    found = [x for x in only.loads if x.tensor and x.level == ELEMENT and x.access.mode(vec) == "vector"]
    return found if sum(map(_bytes_of_each, found)) <= _MOST_AHEAD and len(found) <= _MOST_AHEAD else []


def _reads_ahead(schedule: Contraction, ahead: Sequence[Mapping[str, object]]) -> str:
    """When a warpgroup reads what belongs to the elements of its tile; empty where it does as it finishes each strip.

    While it multiplies, registers suffice for few of them.
    """
    if not ahead or schedule.variant != "sm90" or schedule.parts > 1:
        return ""
    tile = schedule.of_tile
    assert isinstance(tile, WarpgroupTile)
    registers = tile.parts * tile.part_cols // 2 * (4 + sum(int(str(x["nbytes"])) for x in ahead)) // 4
    return "from the beginning" if registers <= _MULTIPLYING else "at the end" if registers <= _FINISHING else ""


def _bytes_of_each(load: Load) -> int:
    """The bytes of a load for each element of a result; few for a column, whose elements the rows of a lane share."""
    return DTYPES[load.dtype].nbytes if load.access.takes_row else 0


def _in_place(program: Program) -> Passes:
    """The passes of the epilogue: a value that is kept between them takes the place of its sum; else all are computed
    again."""
    plan, replaced = passes_of(program, keep=True), False
    for of in plan.passes:
        if replaced and program.contraction.name in _read(of):
            return passes_of(program, keep=False)
        replaced = replaced or bool(of.keeps)
    return plan if plan.kept <= 1 else passes_of(program, keep=False)


def _read(of: Pass) -> set[str]:
    """The values that a pass uses."""
    return taken((*of.maps, *of.reductions, *of.stores))


def _columns(of: Pass) -> list[Load]:
    """The loads of a pass that belong to whole columns."""
    return [x for x in of.loads if x.tensor and x.level == ELEMENT and not x.access.takes_row]


def _pass(
    program: Program,
    plan: Passes,
    of: Pass,
    first: Sequence[Load],
    vec: int,
    args: list[Argument],
    store: str,
    ahead: Sequence[Load],
) -> dict[str, object]:
    """The statements of one pass over the columns of a lane; it reads ``first`` of whole columns before all else.

    Loads ``ahead`` of it have been read.
    """
    read_from, columns = sources(args), [x for x in _columns(of) if x not in ahead]
    outer, inner = common.load_statements([x for x in of.loads if x not in columns and x not in ahead], vec, read_from)
    places = {x.name: "[of_lane][from + chunk]" if x.access.takes_row else "[from + chunk]" for x in ahead}
    outer = [*(f"const auto& {name}_vector = ahead.{name}{place};" for name, place in places.items()), *outer]
    inner = [*common.load_statements(ahead, vec, read_from)[1], *inner]
    held = [f"const float {x.name} = {x.name}_columns[chunk][j];" for x in columns]
    store_outer, store_inner, close = common.store_statements(of.stores, vec, args, store)
    values = [*of.held, *({program.contraction.name} & _read(of))]
    inside = held + inner + [statement(m, "cuda") for m in of.maps] + store_inner
    results = [(r.names[0], r.kind, SPELLED[r.kind]) for r in of.reductions]
    return {
        "comment": describe(of, tuple(s.tensor for s in (*of.stores, *of.row_stores))),
        "columns": [x.name for x in first],
        "column_loads": [line for x in first for line in _column_load(x, vec, read_from[x.tensor])],
        "outer": outer + store_outer,
        "inner": inside,
        "names_columns": by_col((*(x for x in of.loads if x not in columns), *of.stores)),
        "takes": [how.take.format(name, r.arg) for (name, _, how), r in zip(results, of.reductions)],
        "close": close,
        "value": values[0] if values else "",
        "keeps": of.keeps[0] if of.keeps else "",
        "results": [{"name": name, "kind": kind, "start": how.starts[0]} for name, kind, how in results],
        "of_span": _of_span(program, plan, _read(of) - {r.names[0] for r in of.reductions}, args),
        "row_stores": _of_span(program, plan, {s.arg for s in of.row_stores}, args, of.row_stores),
    }


def _of_span(
    program: Program, plan: Passes, needed: set[str], args: list[Argument], stores: Sequence[Store] = ()
) -> list[str]:
    """The statements that find these values of a whole span, from those that its reductions left, and that store
    them."""
    found: list[str] = []
    loads: list[Load] = []
    steps = [*plan.row_loads, *(s for s in program.steps if isinstance(s, Reduce) or s.level == ROW)]
    for step in reversed(steps):
        if isinstance(step, Reduce):
            found += [f"const float {name} = {name}_of[span];" for name in step.names if name in needed]
        elif step.name in needed:
            needed = needed | set(step.args)
            loads += [step] if isinstance(step, Load) else []
            found.append(load_statement(step, sources(args)) if isinstance(step, Load) else statement(step, "cuda"))
    lines = [*found[::-1], *(store_statement(s, written(s, args)) for s in stores)]
    return ["const int col = begin + first * Lanes::COLS;", *lines] if by_col((*loads, *stores)) else lines


def _vector(program: Program, stores: Sequence[Store]) -> int:
    """Columns that a lane finishes at a time: 16 bytes of each result, where all of them are stored so and it pays.

    Elsewhere pairs, as tensor cores leave them; single columns where those are not aligned. Pairs of half types are
    less than a register, so 16 bytes always pay there.
    """
    if program.contraction.k >= _LONG_SUMS and not any(is_narrow(s.dtype) for s in stores):
        return 2 if program.cols % 2 == 0 else 1
    widest = 16 // max((DTYPES[s.dtype].nbytes for s in stores), default=8)
    for vec in (8, 4):
        if (
            vec <= widest
            and program.cols % vec == 0
            and program.span % vec == 0
            and all(s.access.mode(vec) == "vector" for s in stores)
        ):
            return vec
    return 2 if program.cols % 2 == 0 else 1


def _column_load(load: Load, vec: int, source: str) -> list[str]:
    """The statements that read an operand for the columns from ``col`` on."""
    target = f"{load.name}_columns[chunk]"
    if vec == 1:
        values = [f"{source}[{load.access.index('row', col)}]" for col in ("col", "next")]
        return [f"{target}[0] = {values[0]}, {target}[1] = {values[1]};"]
    if load.access.mode(vec) == "vector":
        vector = f"{load.name}_vector"
        first = [f"const auto {vector} = {symbol('load_vector')}<{vec}>({source} + {load.access.index()});"]
        value = f"{vector}.v[j]"
    else:
        first, value = [], f"{source}[{load.access.index('row', '(col + j)')}]"
    return [*first, "#pragma unroll", f"for (int j = 0; j < {vec}; ++j) {target}[j] = {value};"]


TEMPLATE = Template(
    name="contraction", device_type="cuda", file="cuda/contraction/contraction.cu.j2", takes=takes,
    schedule=Contraction, space=space, render=render, lacks=lacks, arithmetic=common.arithmetic, copied=copied,
    biased=True,  # tensor cores truncate where they add
)  # fmt: skip
