"""Pointwise programs in CUDA: any run of elementwise operators in one pass over memory, vectorised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Collection, Mapping, Sequence

from kgen.codegen.arguments import InPlace, arguments as pointers, output_axis, rendering, sources, written
from kgen.codegen.c_printer import load_value, row_statements, store_value
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.compiler.graph.dtypes import DTYPES, loaded, value_type
from kgen.compiler.loops.access import Place
from kgen.compiler.loops.passes import Pass, passes_of
from kgen.compiler.loops.program import ELEMENT, Load, Program, Store, by_col, by_row
from kgen.compiler.loops.transposes import transpose_of
from kgen.templates.cuda import common
from kgen.templates.cuda.pointwise.shared import shared_axis

SHARED_PART = 8  # rows that share less than this part of their own bytes hardly read less in another order
_LEAST_TILE = 128  # columns; the least that a block takes
FAR = 16  # times the level-2 cache
MOST_TILES = 65535  # blocks along the second axis of a grid


@dataclass(frozen=True, kw_only=True)
class Pointwise(common.Launched, InPlace):
    block: int = parameter("threads in a block")
    vec: int = parameter("elements in one load or store")
    items: int = parameter("vectors that a thread handles")
    index: str = parameter("whether threads are laid out in tiles or along the whole tensor")
    order: str = parameter(
        "whether blocks follow the order of memory, go against it, or take all rows of a tile of columns first",
        "forward",
    )
    along: int = parameter("elements that a thread takes of an axis that most values are the same along", 1)

    @property
    def flat(self) -> bool:
        return self.index == "flat"

    @property
    def tile(self) -> int:
        """Elements that a block takes."""
        return self.block * self.vec * self.items


def takes(program: Program) -> bool:
    """Programs of maps alone that read along the axis that they write along."""
    if program.contraction or program.recurrence or program.product:
        return False
    others = program.moments_of or program.reductions or program.windows or program.scans or program.scatters
    if not isinstance(program.col_size, int):
        along = program.col_loops[-1].symbol
        return not others and program.plain and all(x.access.offset.coeff(along) in (0, 1) for x in program.loads)
    return not (others or transpose_of(program))


def _orders(task: Task, program: Program) -> tuple[str, ...]:
    """The orders of blocks between which the level-2 cache makes a difference, the likeliest first."""
    if not isinstance(program.col_size, int):
        return ("forward",)
    nbytes = {t: task.plan.graph.type(t).nbytes for t in (*program.tensors, *task.kernel.outputs)}
    rows = {loop.symbol for loop in program.row_loops}
    read = {x.tensor: bool(x.access.symbols & rows) for x in program.loads if x.tensor and x.level == ELEMENT}
    shared = sum(nbytes[t] for t, of_row in read.items() if not of_row)
    own = sum(nbytes[t] // program.rows for t in (*(t for t, of_row in read.items() if of_row), *task.kernel.outputs))
    # Rows that follow each other read shared tensors again after ``shared + own`` bytes.
    if program.rows > 1 and shared + own > task.hardware.l2_bytes // 2 and SHARED_PART * shared > own:
        return ("across", "forward")
    largest = max((nbytes[t] for t in read if task.used_before(t)), default=0)
    if largest <= task.hardware.l2_bytes:
        return ("forward",)
    # Of larger tensors, the cache has too little from the step before to make up for memory that is read backwards.
    return ("backward", "forward") if largest <= FAR * task.hardware.l2_bytes else ("forward", "backward")


def space(task: Task) -> Space:
    program = task.program()
    cols, orders, fixed = program.cols, _orders(task, program), isinstance(program.col_size, int)
    axes = [
        # The smallest took 0.4% less time than the next, for 13 GB on an H200. Without vectors, they would store few
        # bytes.
        Axis("block", (128, 256, 512, 1024) if fixed else (512, 1024, 256, 128)),
        common.vector_axis(program),
        Axis("items", (1, 2, 4) if fixed else (4, 2, 1)),
        Axis("index", ("tiled", "flat")),
        *([Axis("order", orders)] if len(orders) > 1 else []),
        *output_axis(task),
        *common.launch_axis(task),
    ]
    constraints = (
        common.vector_width(program.col_size),
        Constraint(
            "idle_threads",
            ("block", "vec", "items", "index"),
            f"half of a block or more would lie beyond a row of {cols}: the flat index serves short rows",
            lambda s: s.flat or s.tile < 2 * cols or (not fixed and s.tile == _LEAST_TILE),
        ),
        Constraint(
            "columns_of_the_batch",
            ("index",),
            "the flat index would divide by a number of columns that is known at run time alone",
            lambda s: fixed or not s.flat,
        ),
        Constraint(
            "one_block",
            ("index", "along"),
            "a block takes more than a row: the flat index would divide for nothing",
            lambda s: not s.flat or cols < 65536 or s.along > 1,
        ),
        Constraint(
            "tiles_of_columns",
            ("block", "vec", "items", "index", "order"),
            f"all rows of a tile come first: it needs tiles, and a grid has at most {MOST_TILES} beside each other",
            lambda s: s.order != "across" or (not s.flat and -(-cols // s.tile) <= MOST_TILES),
        ),
    )
    shared = shared_axis(program)
    if shared is None:
        return Space(partial(Pointwise, task), tuple(axes), constraints)
    ways = {"vec": (1,), "items": (1,), "index": ("flat",), "order": ("forward",)}  # single elements of several rows
    sharing = (*(replace(axis, values=ways.get(axis.name, axis.values)) for axis in axes), Axis("along", shared.parts))
    return Space(partial(Pointwise, task), sharing, constraints, ((*axes, Axis("along", (1,))),))


def _loaded_first(loads: Sequence[Load], vec: int, items: int) -> list[Load]:
    """The loads that a thread does for all of its items before it computes any: they are in flight together."""
    elements = (x for x in loads if x.level == ELEMENT and x.tensor) if items > 1 else ()
    return [x for x in elements if (vec == 1 and x.access.symbols) or x.access.mode(vec) == "vector"]


def _of_items(load: Load, vec: int) -> str:
    """The array of what a load finds for each item."""
    return f"{load.name}_{'vector' if vec > 1 else 'item'}"


def _element(load: Load, vec: int) -> str:
    """The value of one element of an item."""
    found = f"{_of_items(load, vec)}[item]"
    return loaded(f"{found}.v[j]", load.dtype) if vec > 1 else found


@dataclass(frozen=True)
class _Member:
    """A load or store of every ``count``-th element of a vector, from the ``number``-th on; ``place`` is the
    vector's."""

    vector: str
    count: int
    number: int
    place: Place

    def element(self, vec: int) -> str:
        first = f"j * {self.count}" if vec > 1 else ""
        number = str(self.number) if self.number or not first else ""
        return f"{self.vector}.v[{' + '.join(filter(None, (first, number)))}]"


def _interleaved(accesses: Sequence[Load] | Sequence[Store], vec: int) -> dict[Any, _Member]:
    """Accesses that make whole vectors together, such as accesses to the first and to the second number of each
    pair."""
    groups: dict[tuple[str, Place], list[tuple[Any, int, int]]] = {}
    for access in accesses:
        count, number = access.access.interleaved(vec)
        if count > 1:
            place = replace(access.access, offset=access.access.offset - number)
            groups.setdefault((access.tensor, place), []).append((access, count, number))
    found = {}
    for at, ((tensor, place), members) in enumerate(groups.items()):
        if {number for _, _, number in members} == set(range(members[0][1])):
            vector = f"{tensor}_elements" + (f"_{at + 1}" if at else "")
            found |= {access: _Member(vector, count, number, place) for access, count, number in members}
    return found


def _of_groups(groups: Mapping[Any, _Member], pointers: Mapping[str, str], text: str, vec: int) -> list[str]:
    """A statement for each vector: ``text`` with the vector, its width, its address and the type of its elements."""
    lines = []
    for access, member in groups.items():
        address, ctype = f"{pointers[access.tensor]} + {member.place.index()}", DTYPES[access.dtype].memory
        lines.append(text.format(vector=member.vector, width=member.count * vec, address=address, ctype=ctype))
    return list(dict.fromkeys(lines))


def _apart(of: Pass, values: Collection[str]) -> tuple[Pass, Pass]:
    """The pass as two: what makes these values, and the rest of it."""
    loads, maps = (
        [[x for x in steps if (x.name in values) is made] for made in (True, False)] for steps in (of.loads, of.maps)
    )
    return (
        replace(of, loads=tuple(loads[0]), maps=tuple(maps[0]), stores=()),
        replace(of, loads=tuple(loads[1]), maps=tuple(maps[1])),
    )


def render(schedule: Pointwise) -> Rendering:
    task, program = schedule.task, schedule.program
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    arguments = pointers(schedule)
    vec, items = schedule.vec, schedule.items
    steps = (*plan.row_loads, *plan.row_maps, *only.loads, *only.maps, *only.stores)
    shared = shared_axis(program) if schedule.along > 1 else None
    once, only = _apart(only, shared.values if shared else frozenset())
    together = _interleaved([x for x in only.loads if x.level == ELEMENT and x.tensor], vec)
    stored_together = _interleaved(only.stores, vec)
    first = [x for x in _loaded_first(only.loads, vec, items) if x not in together]
    alone = len(task.plan.steps) == 1  # nothing else wants the cache: past it, GELU took 1% longer on an H200
    read_from = sources(arguments)  # loads go through the cache: past it, 4 GB took 2% longer, and 200 MB as long
    outer, inner = common.load_statements(
        [x for x in only.loads if x not in first and x not in together], vec, read_from
    )
    outer = (
        _of_groups(
            together, read_from, f"const auto {{vector}} = {symbol('load_vector')}<{{width}}>({{address}});", vec
        )
        + outer
    )
    inner = [
        f"const {value_type(x.dtype)} {x.name} = {loaded(of.element(vec), x.dtype)};" for x, of in together.items()
    ] + inner
    inner = [f"const {value_type(x.dtype)} {x.name} = {_element(x, vec)};" for x in first] + inner
    before_maps, maps = common.map_statements(only, vec)
    outer, inner = outer + before_maps, inner + maps
    streams = not alone and common.streams(task) and not any(map(task.read_later, task.kernel.outputs))
    by = "stream_vector" if streams else "store_vector"
    store_outer, store_inner, close = common.store_statements(
        [s for s in only.stores if s not in stored_together], vec, arguments, by
    )
    targets = {s.tensor: written(s, arguments) for s in only.stores}
    store_outer += _of_groups(stored_together, targets, "Vector<{ctype}, {width}> {vector};", vec)
    store_inner += [f"{of.element(vec)} = {store_value(s)};" for s, of in stored_together.items()]
    close += _of_groups(stored_together, targets, symbol(by) + "<{width}>({address}, {vector});", vec)
    once_outer, once_inner = common.load_statements(once.loads, vec, read_from)
    once_maps = common.map_statements(once, vec)
    tile, fixed = schedule.tile, isinstance(program.col_size, int)
    row_values = row_statements(plan, "cuda")
    outer, inner = outer + store_outer, inner + store_inner
    context = {
        "cols": program.cols if fixed else "cols",
        "fixed": fixed,
        "extent": "rows" if fixed else "cols",
        "rows": "rows" if fixed else program.row_size,
        "threads": schedule.block,
        "vec": vec,
        "items": items,
        "flat": schedule.flat,
        "order": schedule.order,
        "along": schedule.along,
        "shared": shared,
        "once": [*once_outer, *once_inner, *once_maps[0], *once_maps[1]],
        "tile": tile,
        "tiles": -(-program.cols // tile) if fixed else "tiles",
        "several": not fixed or program.cols > tile,
        "exact": fixed and program.cols % tile == 0,
        "row_statements": row_values,
        "outer": outer,
        "inner": inner,
        "declared": [
            f"{f'Vector<{DTYPES[x.dtype].memory}, {vec}>' if vec > 1 else value_type(x.dtype)} "
            f"{_of_items(x, vec)}[{items}];"
            for x in first
        ],
        "ahead": [
            f"{_of_items(x, vec)}[item] = "
            f"{common.load_vector(x, vec, read_from, False) if vec > 1 else load_value(x, read_from)};"
            for x in first
        ],
        "close": close,
        "used": [index for index, found in (("row", by_row(steps)), ("col", by_col(steps))) if found],
    }
    return rendering(schedule, arguments, context)


TEMPLATE = Template(
    name="pointwise", device_type="cuda", file="cuda/pointwise/pointwise.cu.j2", takes=takes, schedule=Pointwise,
    space=space, render=render, in_place=True
)  # fmt: skip
