"""The launcher's pointers, alike on every kind of device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from kgen.codegen.c_printer import output_pointer, pointer
from kgen.codegen.space import Axis
from kgen.codegen.template import Argument, Rendering, Schedule, Task, parameter
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.loops.program import Program, Scatter, Store

#: Roles of what a launcher reads and does not write.
_READ = ("in", "prepared")


@dataclass(frozen=True, kw_only=True)
class InPlace(Schedule):
    """A schedule whose result goes over an operand that nothing needs any more, or into memory of its own."""

    output: str = parameter("whether the result is written over an operand", "new")


def output_axis(task: Task) -> list[Axis]:
    """Where the result goes."""
    return [Axis("output", ("in_place", "new"))] if task.kernel.overwrites else []


def arguments(schedule: Schedule, program: Program | None = None) -> list[Argument]:
    """The launcher's pointers: to tensors that are read, then to those that are written; an ``inout`` one is both.

    They are those of the ``program``, without one of the schedule's.
    """
    program = program or schedule.program
    over = schedule.task.kernel.overwrites if isinstance(schedule, InPlace) and schedule.output == "in_place" else None
    states = {store.into for store in program.stores} - {""}
    roles = {t: "state" if t in states else "inout" if t == over else "in" for t in program.tensors}
    found = [Argument(pointer(t), role, t, dtype=program.tensor_dtypes[t]) for t, role in roles.items()]
    for store in program.stores:
        if store.into not in roles and not (over and store.level == "element"):
            role, tensor = ("state", store.into) if store.into else ("out", store.tensor)
            found.append(Argument(output_pointer(store.tensor), role, tensor, dtype=store.dtype))
    found += [
        Argument(output_pointer(s.tensor), "out", s.tensor, dtype=s.dtype)
        for s in program.scatters
        if not over or s.source != over
    ]
    if program.recurrence:
        dtype = program.recurrence.dtype
        found += [Argument(pointer(t), "in", t, dtype=dtype) for t in program.recurrence.reads]
        found += [Argument(output_pointer(name), "out", name, dtype=dtype) for name, _ in program.recurrence.results]
    if program.product:
        found += [Argument(pointer(t), "in", t, dtype=program.product.dtypes[t]) for t in program.product.reads]
        found += [
            Argument(output_pointer(s.tensor), "out", s.tensor, dtype=s.dtype) for s in program.product.behind.stores
        ]
    return list(dict.fromkeys(found))  # a tensor may be stored in parts


def sources(args: Sequence[Argument]) -> dict[str, str]:
    """The pointer through which each tensor is read."""
    return {a.tensor: a.name for a in args if a.role in ("in", "inout", "state")}


def written(store: Store | Scatter, args: Sequence[Argument]) -> str:
    """The pointer through which a result is written: its own, or that of what it is written over."""
    if isinstance(store, Store) and store.into:
        return next(a.name for a in args if a.tensor == store.into)
    own = output_pointer(store.tensor)
    return own if any(a.name == own for a in args) else next(a.name for a in args if a.role == "inout")


def declared(argument: Argument, early: bool = False) -> str:
    """The argument as a kernel declares it. A tensor that is written over is read through the same pointer.

    A kernel that is launched ``early`` does not promise constant inputs. Otherwise the compiler could move a load in
    front of the wait for the kernel that writes them.
    """
    if argument.role == "in" and early:
        return f"const {argument.ctype}* {argument.name}"
    if argument.role == "in":
        return f"const {argument.ctype}* __restrict__ {argument.name}"
    return f"{argument.ctype}* __restrict__ {argument.name}"


def signature(args: Sequence[Argument], early: bool = False) -> dict[str, Any]:
    """Parameter lists of kernel and launcher, the call of one by the other, what an element is called, and whether the
    launch is early."""
    return {
        "early": early,
        "element": "element" if any(is_narrow(a.dtype) for a in args) else "float",
        "parameters": ", ".join(declared(a, early) for a in args),
        "launcher_parameters": ", ".join(f"{'const ' if a.role in _READ else ''}{a.ctype}* {a.name}" for a in args),
        "arguments": ", ".join(a.name for a in args),
    }


def rendering(schedule: Schedule, args: Sequence[Argument], context: Mapping[str, Any], **how: Any) -> Rendering:
    """The rendering of a text with this context, to which comes what every text has."""
    context = {
        "name": schedule.task.kernel.name,
        "summary": summary(schedule.task),
        **context,
        **signature(args, schedule.early),
    }
    return Rendering(context, tuple(args), schedule.flags, **how)


def summary(task: Task) -> str:
    """One line that says what the kernel computes and of what."""
    nodes = set(task.kernel.nodes)
    outside = dict.fromkeys(v for n in task.kernel.nodes for v in task.plan.graph.node(n).values if v not in nodes)
    return f"{task.kernel.name}: {', '.join(task.kernel.nodes)} from {', '.join(outside)}."


def batch_moments(task: Task) -> tuple[dict[str, Any], list[Argument]]:
    """The context of the moments that end a kernel, and the pointers that finishing a column needs.

    Numbers are literals of type double: a column is finished in float64, once for the whole batch. In float32, 0.9
    alone has an error as large as a rounding. Running statistics would be less accurate than PyTorch's.
    """
    node = task.plan.graph.node(task.kernel.nodes[-1])
    roles = dict(zip(node["roles"], node.inputs))
    dtypes = {role: task.plan.graph.type(name).dtype for role, name in roles.items()}
    extra = [Argument("affine_weight", "in", roles["weight"], dtype=dtypes["weight"])] if "weight" in roles else []
    if "running_mean" in roles:
        extra += [Argument(r, "state", roles[r], dtype=dtypes[r]) for r in ("running_mean", "running_var")]
    if "counter" in roles:
        extra.append(Argument("batches_tracked", "state", roles["counter"], dtype="int64"))
    context = {
        "eps": repr(float(node["eps"])),
        "momentum": repr(float(node["momentum"])),
        "keep_factor": repr(1.0 - node["momentum"]),
        "affine": "weight" in roles,
        "affine_type": next((a.ctype for a in extra if a.role == "in"), ""),
        "running": "running_mean" in roles,
        "counter": "counter" in roles,
    }
    return context, [*extra, Argument("moments_out", "out", node.name)]
