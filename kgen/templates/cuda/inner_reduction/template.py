"""Inner reductions in CUDA: maps, reductions along the row, maps; a block or a warp for each row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Sequence

from kgen.candidate import Params
from kgen.compiler.dtypes import value_type
from kgen.compiler.loops import ROW, Load, Map, Program, Reduce
from kgen.compiler.schedule import Pass, Schedule, schedule
from kgen.templates import Argument, Rendering, Task, Template
from kgen.templates.arguments import arguments as pointers, output_axis, signature, sources, summary
from kgen.templates.cuda import common
from kgen.templates.space import Axis, Constraint, Space
from kgen.templates.spelling import block, describe, kept_values, load_value, output_pointer, spell, store_statement, uses_online_softmax

#: The axes of the spaces, and what each means.
PARAMETERS = {
    "block": "threads in a block",
    "row_per": "whether a block, a warp or a line of threads takes a row",
    "reduction": "how threads reduce: shuffles in a warp, or a tree in shared memory",
    "vec": "elements in one load or store",
    "rows": "rows that a block takes at once",
    "softmax": "one pass with a running maximum, or two",
    "row": "whether a row is kept on chip or read again",
    "output": "whether the result is written over an operand",
    "launch": "whether the kernel is launched while the one before it ends",
}

#: Registers that a thread may spend on the kept row before occupancy falls too far.
MOST_KEPT = 64


STRIP = 32  # neighbouring rows, each of one line of threads; a warp reads them in one transaction


def _lanes(params: Params) -> int:
    """Threads that share a row."""
    return {"warp": 32, "block": int(params["block"]), "line": int(params["block"]) // STRIP}[str(params["row_per"])]


def _steps(params: Params, cols: int) -> int:
    """Vectors that a thread takes of a row."""
    return -(-cols // (_lanes(params) * int(params["vec"])))


def takes(program: Program) -> bool:
    """Programs with reductions along the row."""
    return bool(program.reductions) and program.reduces_floats and not (program.contraction or program.moments_of)


def space(task: Task) -> Space:
    online = task.plan.program(task.kernel)
    cols, kept = online.cols, {}
    for softmax in ("online", "two_pass"):
        program = task.plan.program(task.kernel, two_passes=softmax == "two_pass")
        kept[softmax] = schedule(program, keep=True).kept
    passes = len(schedule(online, keep=True).passes)
    axes = [
        Axis("block", (512, 256, 1024, 128)),
        Axis("row_per", ("line", "block", "warp") if online.strided else ("block", "warp")),
        Axis("reduction", ("warp_shuffle", "shared_tree")),
        Axis("vec", (4, 2, 1)),
        Axis("rows", (1, 2)),
    ]
    if uses_online_softmax(online):
        axes.append(Axis("softmax", ("two_pass", "online")))
    if passes > 1:
        axes.append(Axis("row", ("registers", "reread")))
    axes += [*output_axis(task), *common.launch_axis(task.hardware)]

    def held(params: Params) -> int:
        if params.get("row") != "registers":
            return 0
        return kept[params.get("softmax", "online")] * _steps(params, cols) * int(params["vec"]) * int(params["rows"])

    constraints = (
        common.vector_width(cols),
        Constraint(
            "warp_reduction",
            "a warp reduces by shuffles, lines by a tree in shared memory; a block can do both",
            lambda p: p["row_per"] == "block" or (p["reduction"] == "warp_shuffle") == (p["row_per"] == "warp"),
        ),
        Constraint(
            "idle_threads",
            f"half of the block or more would have no column of {cols}",
            lambda p: p["row_per"] == "warp" or _lanes(p) * int(p["vec"]) < 2 * max(cols, 32 * int(p["vec"])),
        ),
        Constraint(
            "kept_registers",
            f"more than {MOST_KEPT} registers a thread to keep the row: it would spill or starve the multiprocessor",
            lambda p: held(p) <= MOST_KEPT,
        ),
        Constraint(
            "block_registers",
            "a block of this many threads would need more registers than a multiprocessor has",
            lambda p: (held(p) + 32) * int(p["block"]) <= task.hardware.registers_per_multiprocessor,
        ),
        Constraint(
            "rows_of_warps",
            "a warp or a line takes one row; several rows at once are for whole blocks",
            lambda p: p["row_per"] == "block" or p["rows"] == 1,
        ),
        Constraint(
            "vectors_of_lines",
            "neighbouring columns of a line lie apart in memory: there is no vector of them",
            lambda p: p["row_per"] != "line" or p["vec"] == 1,
        ),
        Constraint(
            "rows_for_all",
            f"so many rows to a block that {online.rows} rows do not fill the chip",
            lambda p: p["rows"] == 1 or online.rows >= int(p["rows"]) * task.hardware.multiprocessors,
        ),
        Constraint(
            "shared_memory",
            "the tree of several rows would need more shared memory than a block has without asking",
            lambda p: p["reduction"] == "warp_shuffle"
            or 8 * int(p["block"]) * int(p["rows"]) * len(online.reductions) <= 48 << 10,
        ),
        Constraint(
            "rows_per_warp",
            f"a warp for a row of {cols} leaves most of the chip idle",
            lambda p: p["row_per"] != "warp" or cols <= 8192,
        ),
    )
    return Space(tuple(axes), constraints)


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel, two_passes=params.get("softmax") == "two_pass")
    plan = schedule(program, keep=params.get("row") == "registers")
    args = pointers(task, program, params)
    emitter = _Emitter(program, plan, params, args)
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "cols": program.cols,
        "threads": int(params["block"]),
        "lanes": emitter.lanes,
        "rows": emitter.rows,
        "rows_per_block": int(params["block"]) // emitter.lanes * emitter.rows,
        "strip": emitter.strip,
        "vec": emitter.vec,
        "steps": emitter.steps,
        "row_statements": emitter.row_values([(x.name, _row_load(x, emitter)) for x in plan.row_loads], plan.row_maps),
        "kept_values": kept_values(program, plan),
        "passes": [emitter.one_pass(s) for s in plan.passes],
        **signature(args, params.get("launch") == "early"),
    }
    return Rendering(context, tuple(args))


def _row_load(load: Load, emitter: _Emitter) -> str:
    return load_value(load, emitter.sources, "row", "0")


def _follows_row(load: Load) -> bool:
    """Whether the tensor is read at another place for each row."""
    return "row" in load.access.index()


class _Emitter:
    """Spells the passes of one kernel. With several rows to a block, a row value is an array with one for each."""

    def __init__(self, program: Program, plan: Schedule, params: Params, args: list[Argument]) -> None:
        self.program, self.arguments = program, args
        self.sources = sources(args)
        self.lanes, self.vec, self.rows = _lanes(params), int(params["vec"]), int(params["rows"])
        self.steps = _steps(params, program.cols)
        self.exact = self.steps * self.lanes * self.vec == program.cols
        self.unroll = "#pragma unroll" if params.get("row") == "registers" or self.steps <= 8 else "#pragma unroll 4"
        self.strip = params["row_per"] == "line"
        self.how = "shuffle" if params["reduction"] == "warp_shuffle" else "lines" if self.strip else "tree"
        self.row_level = {x.name for x in plan.row_loads if _follows_row(x)}
        self.row_level |= {n for r in program.reductions for n in r.names}
        self.row_level |= {s.name for s in program.steps if isinstance(s, Map) and s.level == ROW}
        self.sites = 0

    def one_pass(self, of: Pass) -> dict[str, Any]:
        """The lines of one pass, and a comment that says what it does."""
        reductions = [self._reduction(r, r.arg in (*of.keeps, *of.held)) for r in of.reductions]
        lines = [line for r in reductions for line in r.before]
        lines += self._columns(of, reductions)
        lines += [line for r in reductions for line in r.after]
        lines += self.row_values([], of.row_maps)
        stores = [store_statement(s, output_pointer(s.tensor), value=self._at(s.arg)) for s in of.row_stores]
        if stores:
            lines += block(f"if (lane == 0{' && inside' if self.strip else ''})", self._each_row(stores, guard=True))
        stored = tuple(s.tensor for s in (*of.stores, *of.row_stores))
        return {"comment": describe(of, stored).capitalize() + ".", "lines": lines}

    def row_values(self, loads: list[tuple[str, str]], maps: Sequence[Map]) -> list[str]:
        """Values of the whole row, from memory or from other values of the row."""
        found = [*loads, *((m.name, spell(m, "cuda", self._at)) for m in maps)]
        same = [
            f"const {self._type(name)} {name} = {text};" for name, text in found if self.rows == 1 or name not in self.row_level
        ]
        found = [(name, text) for name, text in found if self.rows > 1 and name in self.row_level]
        if not found:
            return same
        declared = [f"{self._type(name)} {name}[{self.rows}];" for name, _ in found]
        return [*same, *declared, *self._each_row([f"{name}[r] = {text};" for name, text in found])]

    def _type(self, name: str) -> str:
        return value_type(self.program.dtypes[name])

    def _at(self, name: str) -> str:
        return f"{name}[r]" if self.rows > 1 and name in self.row_level else name

    def _kept(self, name: str) -> str:
        return f"{name}_kept{'[r]' if self.rows > 1 else ''}[step]{'[j]' if self.vec > 1 else '[0]'}"

    def _each_row(self, lines: list[str], guard: bool = False) -> list[str]:
        """The lines for each row of the block; with ``guard``, for those that there are. Others read the last row."""
        if self.rows == 1 or not lines:
            return lines
        if guard:
            head = ["const long long row = first_row + r;", "if (row >= rows) break;"]
        else:
            head = ["const long long row = first_row + r < rows ? first_row + r : rows - 1;"]
        used = head if guard or any(re.search(r"\brow\b", x) for x in lines) else []
        return ["#pragma unroll", *block(f"for (int r = 0; r < {self.rows}; ++r)", [*used, *lines])]

    def _columns(self, of: Pass, reductions: list[_Lines]) -> list[str]:
        """The loop over the columns of a thread."""
        shared, own = [], []
        for load in of.loads:
            (own if _follows_row(load) else shared).append(load)
        outer, inner = common.load_statements(shared, self.vec, self.sources)
        row_outer, row_inner = common.load_statements(own, self.vec, self.sources)
        inner += row_inner
        inner += [f"const {self._type(name)} {name} = {self._kept(name)};" for name in of.held]
        inner += [f"const {value_type(m.dtype)} {m.name} = {spell(m, 'cuda', self._at)};" for m in of.maps]
        inner += [f"{self._kept(name)} = {name};" for name in of.keeps]
        inner += [line for r in reductions for line in r.inner]
        gather, store_inner, store = common.store_statements(of.stores, self.vec, self.arguments)
        if not (inner or outer or row_outer):
            return []
        if self.vec > 1:
            inner = ["#pragma unroll", *block(f"for (int j = 0; j < {self.vec}; ++j)", inner + store_inner)]
        elif self.rows > 1:
            store = block("if (first_row + r < rows)", store_inner) if store_inner else []
        else:
            inner += block("if (inside)", store_inner) if self.strip and store_inner else store_inner
        if self.rows > 1 and self.vec > 1 and store:
            store = block("if (first_row + r < rows)", store)
        rows = row_outer + [x for r in reductions for x in r.outer] + gather + inner
        rows += [x for r in reductions for x in r.close] + store
        body = outer + self._each_row(rows)
        if not self.exact:
            body = block(f"if (col < {self.program.cols})", body)
        if any(re.search(r"\bcol\b", line) for line in body):
            number = f"step * {self.lanes} + lane"
            body = [f"const int col = {number if self.vec == 1 else f'({number}) * {self.vec}'};", *body]
        return [self.unroll, *block(f"for (int step = 0; step < {self.steps}; ++step)", body)]

    def _reduction(self, r: Reduce, kept: bool) -> _Lines:
        self.sites += 1
        rows = f", {self.rows}" if self.rows > 1 else ""
        call = f"reduce_{r.kind}_{self.how}<{self.lanes}, {self.sites}{rows}>"
        if r.kind == "softmax":
            return self._softmax(r, kept, call)
        (name,) = r.names
        start, step = {
            "sum": ("0.0f", "{0} += {1};"),
            "max": ("-INFINITY", "{0} = nan_max({0}, {1});"),
            "min": ("INFINITY", "{0} = nan_min({0}, {1});"),
            "max_finite": ("-FLT_MAX", "{0} = fmaxf({0}, {1});"),
        }[r.kind]
        after = f"{call}({name});" if self.rows > 1 else f"{name} = {call}({name});"
        return _Lines([self._declared(name, start)], [], [step.format(self._at(name), r.arg)], [], [after])

    def _softmax(self, r: Reduce, kept: bool, call: str) -> _Lines:
        largest, total = r.names
        before = [self._declared(largest, "-FLT_MAX"), self._declared(total, "0.0f")]
        last = f"{call}({largest}, {total});"
        here, sum_here = self._at(largest), self._at(total)
        if kept:
            # The whole row is in registers: its maximum first, then one exponential for each column.
            return _Lines(before, [], [f"{here} = fmaxf({here}, {r.arg});"], [], [*self._sum_kept(r.arg, here, sum_here), last])
        chunk = f"{r.arg}_chunk"
        inner = f"{chunk}[{'j' if self.vec > 1 else 0}] = {r.arg};"
        close = f"merge_chunk<{self.vec}>({here}, {sum_here}, {chunk});"
        return _Lines(before, [f"float {chunk}[{self.vec}];"], [inner], [close], [last])

    def _declared(self, name: str, start: str) -> str:
        if self.rows == 1:
            return f"float {name} = {start};"
        return f"float {name}[{self.rows}] = {{{', '.join([start] * self.rows)}}};"

    def _sum_kept(self, arg: str, largest: str, total: str) -> list[str]:
        """A thread's sum of exponentials below its own maximum, over the columns that it keeps."""
        lines = [f"{total} += expf({self._kept(arg)} - finite_max({largest}));"]
        if self.vec > 1:
            lines = ["#pragma unroll", *block(f"for (int j = 0; j < {self.vec}; ++j)", lines)]
        lines = self._each_row(lines)
        if not self.exact:
            col = f"(step * {self.lanes} + lane){f' * {self.vec}' if self.vec > 1 else ''}"
            lines = block(f"if ({col} < {self.program.cols})", lines)
        return ["#pragma unroll", *block(f"for (int step = 0; step < {self.steps}; ++step)", lines)]


@dataclass(frozen=True)
class _Lines:
    """The statements of one reduction, by where they stand: around the columns, before and in the loop over a vector."""

    before: list[str]
    outer: list[str]
    inner: list[str]
    close: list[str]
    after: list[str]


def cost(task: Task, params: Params) -> float:
    """Microseconds, as if the memory's bandwidth were all that bounds it; whatever the parameters."""
    return common.memory_us(task)


TEMPLATE = Template(
    name="inner_reduction",
    device_type="cuda",
    file="cuda/inner_reduction/inner_reduction.cu.j2",
    takes=takes,
    space=space,
    render=render,
    cost=cost,
    parameters=PARAMETERS,
    in_place=True,
)
