"""Contractions in CUDA: matrix products to float32 accuracy on tensor cores, with maps in their epilogue.

Four variants share everything but the product itself: ``sm90`` (TMA and wgmma, which sm_90 alone has), ``sm80``
(cp.async and mma.sync, from sm_80 on), ``whole`` (the same, in one launch for small products: blocks split whole rows
themselves) and ``library`` (cuBLAS multiplies the parts, over short intervals of k). Float32 accuracy takes three
products of float16 parts, that of TF32 one.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.candidate import Params
from kgen.compiler.loops import ELEMENT, Contraction, Load, Program
from kgen.compiler.operators import OPS, Kind
from kgen.compiler.schedule import schedule
from kgen.templates import Argument, Before, Filled, Rendering, Task, Template
from kgen.templates.arguments import arguments as pointers, signature, sources, summary
from kgen.templates.cuda import common
from kgen.templates.cuda.contraction.space import arithmetic, cost, lacks, partials_of, pitch_of, planes_of, space, sums_pitch, tile_of
from kgen.templates.spelling import element_index, output_pointer, pointer, row_loads, statement

#: The axes of the spaces, and what each means.
PARAMETERS = {
    "variant": "generation of tensor cores",
    "products": "products on tensor cores that make one in float32",
    "interval": "terms that tensor cores add up before their sums are added in float32",
    "tile": "elements that are worked on at a time",
    "splits": "parts that a sum is split into, for more blocks",
    "cluster": "blocks that share one part of the contraction",
    "multicast": "blocks that a tile of the right operand is loaded for at once",
    "stages": "tiles that are loaded ahead",
    "band": "columns of tiles that neighbouring blocks share, for the L2 cache",
}

#: Of the splitting kernel: the longest row that so many threads with so many groups of eight columns each hold. Longer
#: rows are read twice.
_SPLITS = (
    (512, 64, 1), (1024, 128, 1), (2048, 128, 2), (4096, 256, 2), (8192, 256, 4), (16384, 512, 4), (32768, 1024, 4),
)  # fmt: skip

#: Columns that a warp finishes at once of sums in memory.
_STRIP_COLS = 32

#: Groups of eight columns that are finished at once, by the most operands of columns that leave registers for so many. Else it
#: is two, or the four that eight lanes can share the columns of, for statistics.
_AT_ONCE = ((16, 1), (8, 3), (4, 7))


def takes(program: Program) -> bool:
    """Programs that begin with a contraction: maps follow it, and moments over the batch may end it."""
    return program.contraction is not None


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel)
    product, planes, library = program.contraction, planes_of(params), params["variant"] == "library"
    n, k, pitch = program.cols, product.k, pitch_of(product.k, params)
    tile = None if library else tile_of(params)
    operands = _Operands.of(task, program, params)
    statistics, finishing = common.finishing(task) if program.moments_of else ({}, [])
    args = operands.arguments(pointers(task, program, params), split_before=library)
    elementwise = [a for a in args if a.role == "out" or (a.role == "in" and a.tensor in program.tensors)]
    before = _before(task, program, params, operands) if library else None
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "formula": _formula(product, n),
        "variant": params["variant"],
        "tile": tile,
        "ragged": n % (tile.cols if tile else _STRIP_COLS) != 0,
        "stages": params["stages"],
        "slots": int(params["stages"]) * (2 if planes == 1 else 1),
        "planes": planes,
        "parts_word": "parts" if planes == 2 else "float16",
        "splits": params["splits"],
        "partials": partials_of(params),
        "band": params["band"],
        "cluster": params["cluster"],
        "multicast": params["multicast"],
        "clustered": params["cluster"] != 1 or params["multicast"] != 1,
        "interval": pitch // int(params["splits"]) if library else params["interval"],
        "n": n,
        "k": k,
        "pitch": pitch,
        "sums_pitch": sums_pitch(n),
        "grouped": product.group is not None,
        "group": product.group,
        "prepared": operands.parts is not None,
        "strided": operands.strided,
        "x": operands.x.name,
        "weight": operands.right.name,
        "parts": operands.parts and operands.parts.name,
        "split": _split(k, pitch, planes),
        "members": [f"{'const ' if a.role == 'in' else ''}float* {a.name}" for a in elementwise],
        "member_names": [a.name for a in elementwise],
        "moments": program.moments_of is not None,
        "result": program.moments_of,
        "statistics_parameters": signature(finishing, early=True)["parameters"],
        "statistics_arguments": signature(finishing)["arguments"],
        "cols": n,
        "scratch": output_pointer(program.stores[0].tensor),
        "sum": product.name,
        "epilogue": ", ".join(_words(task)),
        "split_parameters": before and signature(before.arguments)["launcher_parameters"],
        **_epilogue(program, args),
        **statistics,
        **signature([*args, *finishing]),
    }
    return Rendering(context, (*args, *finishing), specific=params["variant"] == "sm90", before=before)


def _before(task: Task, program: Program, params: Params, operands: _Operands) -> Before:
    """What the variant ``library`` does before its sums are finished: splits the operands, and has their parts multiplied."""
    product, n, planes = program.contraction, program.cols, planes_of(params)
    pitch = pitch_of(product.k, params)
    row, behind = pitch * planes // 2, "" if operands.parts else f" + {n * pitch * planes // 2}"
    w = task.plan.graph.fresh(operands.parts.name) if operands.parts else f"workspace[{{rows}} * {row} :]"
    sums = f"workspace[{{rows}} * {row}{behind} :]"
    sizes = f"({{rows}}, {n}, {pitch})"
    call = f"multiply_parts(workspace, {w}, {sums}, {planes}, {params['splits']}, {sizes}, {sums_pitch(n)})"
    scratch = Argument(output_pointer(program.stores[0].tensor), "out", program.stores[0].tensor)
    parts = (operands.parts,) if operands.parts else ()
    assert operands.workspace is not None
    arguments = tuple(dict.fromkeys((operands.x, operands.right, *parts, scratch, operands.workspace)))
    return Before(f"{task.kernel.name}_split", arguments, call, "cuda/contraction/multiply_parts.py.j2")


def _formula(product: Contraction, n: int) -> str:
    """What is computed, in words of matrices."""
    if product.group is None:
        return f"y[rows, {n}] = x[rows, {product.k}] . w[{n}, {product.k}]^T"
    m, k = product.group, product.k
    return f"For each of rows / {m} matrices, y[{m}, {n}] = x[{m}, {k}] . w[{n}, {k}]^T"


def _words(task: Task) -> list[str]:
    """What becomes of a sum, word by word."""
    anchor, *rest = task.kernel.nodes
    maps = [n for n in rest if OPS[task.plan.graph.node(n).op].kind is Kind.POINTWISE]
    return [*(["bias added"] if len(task.plan.graph.node(anchor).inputs) > 2 else []), *maps]


@dataclass(frozen=True)
class _Operands:
    """The launcher's pointers to both operands, and to memory for their parts.

    A weight's ``parts`` are prepared once, with the weight itself at hand for what is not finite. Any other right operand
    is split in each call, into the workspace; where its columns stand for rows, it comes transposed.
    """

    x: Argument
    right: Argument
    parts: Argument | None
    workspace: Argument | None
    strided: bool  #: whether the right operand's rows are columns in memory

    @classmethod
    def of(cls, task: Task, program: Program, params: Params) -> _Operands:
        product, n, planes = program.contraction, program.cols, planes_of(params)
        pitch = pitch_of(product.k, params)
        row = pitch * planes // 2  # float32 elements that a row's parts take
        x, right = Argument(pointer(product.x), "in", product.x), Argument(pointer(product.weight), "in", product.weight)
        turned = "{}.mT" if product.transposed else "{}"
        size = f"rows * {row + 1 + partials_of(params) * sums_pitch(n)}"
        moments = f"(rows + 15) // 16 * {2 * sums_pitch(n)}"
        size += f" + {moments}" if program.moments_of else ""
        if not task.plan.graph.is_weight(product.weight):
            w_rows = n if product.group is None else f"rows // {product.group} * {n}"
            size += f" + {w_rows} * {row + 1} + 3"
            if product.transposed:
                right = Argument(f"{product.weight}_transposed_in", "in", product.weight, form=turned)
            return cls(x, right, None, Argument("workspace", "workspace", size=size), strided=False)
        w_rows = product.matrices * n
        filled = Filled(f"{task.kernel.name}_split_weight", w_rows, turned)
        name = f"{product.weight}_{'split' if planes == 2 else 'rounded'}"
        name += f"_{pitch}" if params["variant"] == "library" else ""  # kernels of a file may share the parts of a weight
        parts = Argument(name, "prepared", product.weight, str(w_rows * row + w_rows), filled=filled)
        if params["variant"] == "whole":
            workspace = Argument("workspace", "workspace", size=moments) if program.moments_of else None
            return cls(x, right, parts, workspace, product.transposed)
        return cls(x, right, parts, Argument("workspace", "workspace", size=size), product.transposed)

    def arguments(self, others: list[Argument], split_before: bool) -> list[Argument]:
        """All pointers in order, each once: the operands, unless they were split before, then those of the maps behind the
        product."""
        first = [] if split_before else list(dict.fromkeys((self.x, self.right)))
        behind = [self.workspace] if self.workspace else []
        parts = [self.parts] if self.parts else []
        return [*first, *parts, *(a for a in others if a not in first), *behind]


def _split(k: int, pitch: int, planes: int) -> str:
    """The call that splits rows of this length."""
    for longest, threads, groups in _SPLITS:
        if pitch <= longest:
            return f"split_rows<{k}, {pitch}, {threads}, {groups}, {planes}>"
    return f"split_long_rows<{k}, {pitch}, 1024, {planes}>"


def _epilogue(program: Program, args: list[Argument]) -> dict[str, object]:
    """What the text of the epilogue is rendered with: it finishes pairs of columns, aligned where ``n`` is even."""
    plan, read_from = schedule(program, keep=True), sources(args)
    (only,) = plan.passes
    vec = 2 if program.cols % 2 == 0 else 1
    columns = [x for x in only.loads if x.level == ELEMENT and "row" not in element_index(x)]
    outer, inner = common.load_statements([x for x in only.loads if x not in columns], vec, read_from)
    taken = [f"const float {x.name} = {x.name}_columns[group][j];" for x in columns]
    maps = [statement(m, "cuda") for m in only.maps]
    store_outer, store_inner, close = common.store_statements(only.stores, vec, args)
    return {
        "vec": vec,
        "at_once": next((groups for groups, most in _AT_ONCE if len(columns) <= most), 2 if program.moments_of is None else 4),
        "columns": [x.name for x in columns],
        "column_addresses": [f"{read_from[x.tensor]} + {x.access.index('row', 'col')}" for x in columns],
        "column_loads": [line for x in columns for line in _column_load(x, vec, read_from[x.tensor])],
        "row_statements": row_loads(plan) + [statement(m, "cuda") for m in plan.row_maps],
        "outer": outer + store_outer,
        "inner": taken + inner + maps + store_inner,
        "close": close,
    }


def _column_load(load: Load, vec: int, source: str) -> list[str]:
    """The statements that read an operand for column ``col`` and the next one."""
    if vec == 2 and load.access.mode(vec) == "vector":
        pair = f"{load.name}_vector"
        lines = [f"const Vector<2> {pair} = load_vector<2>({source} + {element_index(load)});"]
        values = [f"{pair}.v[0]", f"{pair}.v[1]"]
    else:
        lines = []
        values = [f"{source}[{load.access.index('row', col)}]" for col in ("col", "next" if vec == 1 else "(col + 1)")]
    target = f"{load.name}_columns[group]"
    return [*lines, f"{target}[0] = {values[0]}, {target}[1] = {values[1]};"]


TEMPLATE = Template(
    name="contraction",
    device_type="cuda",
    file="cuda/contraction/contraction.cu.j2",
    takes=takes,
    space=space,
    render=render,
    cost=cost,
    parameters=PARAMETERS,
    lacks=lacks,
    arithmetic=arithmetic,
    biased=True,  # tensor cores truncate where they add
)
