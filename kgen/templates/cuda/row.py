"""The family ``row`` in CUDA: maps, reductions along the row, maps; a block or a warp for each row."""

from __future__ import annotations

from typing import Any

from kgen.candidate import Params
from kgen.program import ELEMENT, Program, Schedule, Sweep, schedule
from kgen.space import Axis, Constraint, Space
from kgen.templates import Rendering, Task, Template
from kgen.templates.arguments import arguments as pointers, output_axis, signature, sources, summary
from kgen.templates.cuda import common
from kgen.templates.spelling import describe, output_pointer, row_loads, statement, uses_online_softmax

#: Registers that a thread may spend on the kept row before occupancy falls too far.
MOST_KEPT = 64


def _lanes(params: Params) -> int:
    """Threads that share a row."""
    return 32 if params["row_per"] == "warp" else int(params["block"])


def _steps(params: Params, cols: int) -> int:
    """Vectors that a thread takes of a row."""
    return -(-cols // (_lanes(params) * int(params["vec"])))


def space(task: Task) -> Space:
    online = task.plan.program(task.kernel)
    cols, kept = online.cols, {}
    for softmax in ("online", "two_pass"):
        program = task.plan.program(task.kernel, two_sweeps=softmax == "two_pass")
        kept[softmax] = schedule(program, keep=True).kept
    sweeps = len(schedule(online, keep=True).sweeps)
    axes = [
        Axis("block", (256, 128, 512, 1024)),
        Axis("row_per", ("block", "warp")),
        Axis("reduction", ("warp_shuffle", "shared_tree")),
        Axis("vec", (4, 2, 1)),
    ]
    if uses_online_softmax(online):
        axes.append(Axis("softmax", ("online", "two_pass")))
    if sweeps > 1:
        axes.append(Axis("row", ("registers", "reread")))
    axes += output_axis(task)

    def held(params: Params) -> int:
        if params.get("row") != "registers":
            return 0
        return kept[params.get("softmax", "online")] * _steps(params, cols) * int(params["vec"])

    constraints = (
        Constraint(
            "vector_width",
            f"a row of {cols} does not divide into vectors of that width",
            lambda p: cols % int(p["vec"]) == 0,
        ),
        Constraint(
            "warp_reduction",
            "a warp reduces by shuffles; a tree in shared memory is for whole blocks",
            lambda p: p["row_per"] == "block" or p["reduction"] == "warp_shuffle",
        ),
        Constraint(
            "idle_threads",
            f"half of the block or more would have no column of {cols}",
            lambda p: p["row_per"] == "warp" or int(p["block"]) * int(p["vec"]) < 2 * max(cols, 32 * int(p["vec"])),
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
            "rows_per_warp",
            f"a warp for a row of {cols} leaves most of the chip idle",
            lambda p: p["row_per"] == "block" or cols <= 8192,
        ),
    )
    return Space(tuple(axes), constraints)


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel, two_sweeps=params.get("softmax") == "two_pass")
    keep = params.get("row") == "registers"
    plan = schedule(program, keep=keep)
    arguments = pointers(task, program, params)
    lanes, vec = _lanes(params), int(params["vec"])
    steps = _steps(params, program.cols)
    emit = _Emitter(program, plan, params, lanes, vec, steps, arguments)
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "cols": program.cols,
        "threads": int(params["block"]),
        "lanes": lanes,
        "rows_per_block": int(params["block"]) // lanes,
        "vec": vec,
        "steps": steps,
        "exact": steps * lanes * vec == program.cols,
        "keep": keep,
        "kept": plan.kept,
        "unroll": "" if keep or steps <= 8 else 4,
        "row_statements": row_loads(plan) + [statement(m, "cuda") for m in plan.row_maps],
        "kept_values": list(dict.fromkeys(k for s in plan.sweeps for k in s.keeps)),
        "sweeps": [emit.sweep(s) for s in plan.sweeps],
        **signature(arguments),
    }
    return Rendering(context, tuple(arguments))


class _Emitter:
    """Spells the sweeps of one kernel."""

    def __init__(
        self, program: Program, plan: Schedule, params: Params, lanes: int, vec: int, steps: int, arguments: list
    ) -> None:
        self.program, self.plan, self.params = program, plan, params
        self.lanes, self.vec, self.steps = lanes, vec, steps
        self.how = "shuffle" if params["reduction"] == "warp_shuffle" else "tree"
        self.exact = steps * lanes * vec == program.cols
        self.sources = sources(arguments)
        self.arguments = arguments
        self.sites = 0

    def sweep(self, sweep: Sweep) -> dict[str, Any]:
        outer, inner = common.load_statements(sweep.loads, self.vec, self.sources)
        index = "[step][j]" if self.vec > 1 else "[step][0]"
        inner += [f"const float {name} = {name}_kept{index};" for name in sweep.held]
        inner += [statement(m, "cuda") for m in sweep.maps]
        inner += [f"{name}_kept{index} = {name};" for name in sweep.keeps]
        before: list[str] = []
        after: list[str] = []
        close: list[str] = []
        for r in sweep.reductions:
            kept = r.arg in sweep.keeps or r.arg in sweep.held
            self._reduce(r, kept, before, outer, inner, close, after)
        store_outer, store_inner, store_close = common.store_statements(
            sweep.stores, self.vec, self.program.cols, self.arguments
        )
        after += [statement(m, "cuda") for m in sweep.row_maps]
        for s in sweep.row_stores:
            after.append(f"if (lane == 0) {output_pointer(s.tensor)}[row] = {s.arg};")
        return {
            "comment": describe(sweep, tuple(s.tensor for s in (*sweep.stores, *sweep.row_stores))).capitalize() + ".",
            "before": before,
            "loop": bool(inner or outer),
            "outer": outer + store_outer,
            "inner": inner + store_inner,
            "close": close + store_close,
            "after": after,
        }

    def _reduce(
        self, r: Any, kept: bool, before: list, outer: list, inner: list, close: list, after: list
    ) -> None:
        self.sites += 1
        call = f"reduce_{r.kind}_{self.how}<{self.lanes}, {self.sites}>"
        if r.kind == "softmax":
            largest, total = r.names
            before += [f"float {largest} = -FLT_MAX;", f"float {total} = 0.0f;"]
            if kept:
                # The whole row is in registers: its maximum first, then one exponential for each column.
                inner.append(f"{largest} = fmaxf({largest}, {r.arg});")
                after += self._sum_kept(r.arg, largest, total)
            else:
                outer.append(f"float {r.arg}_chunk[{self.vec}];")
                inner.append(f"{r.arg}_chunk[{'j' if self.vec > 1 else 0}] = {r.arg};")
                close.append(f"merge_chunk<{self.vec}>({largest}, {total}, {r.arg}_chunk);")
            after.append(f"{call}({largest}, {total});")
            return
        (name,) = r.names
        start, step = {
            "sum": ("0.0f", f"{name} += {r.arg};"),
            "max": ("-INFINITY", f"{name} = nan_max({name}, {r.arg});"),
            "min": ("INFINITY", f"{name} = nan_min({name}, {r.arg});"),
            "max_finite": ("-FLT_MAX", f"{name} = fmaxf({name}, {r.arg});"),
        }[r.kind]
        before.append(f"float {name} = {start};")
        inner.append(step)
        after.append(f"{name} = {call}({name});")

    def _sum_kept(self, arg: str, largest: str, total: str) -> list[str]:
        lines = ["#pragma unroll", f"for (int step = 0; step < {self.steps}; ++step) {{"]
        guard = "" if self.exact else f"if ((step * {self.lanes} + lane) * {self.vec} < {self.program.cols}) "
        body = f"{total} += expf({arg}_kept[step][j] - finite_max({largest}));"
        if guard:
            lines.append(f"    {guard.strip()} {{")
        pad = "        " if guard else "    "
        lines += [f"{pad}#pragma unroll", f"{pad}for (int j = 0; j < {self.vec}; ++j) {body}"]
        if guard:
            lines.append("    }")
        return lines + ["}"]


TEMPLATE = Template("row", "cuda", "cuda/row.cu.j2", space, render)
