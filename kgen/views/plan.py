"""The answer of ``kgen plan``: for people, and as JSON values."""

from __future__ import annotations

from typing import Any, Sequence

from rich.console import Console
from rich.table import Table

from kgen.compiler.fusion.steps import Kernel
from kgen.compiler.operators.facts import aten_name
from kgen.tuning.plan import ModePlan, Planned, Ranked
from kgen.tuning.precision import Precision
from kgen.tuning.prediction import StepTime
from kgen.views import text
from kgen.views.layout import grid, print_facts


def plain(planned: Planned) -> dict[str, Any]:
    """The answer as JSON values. Bytes, operations and limit of the problem are its first mode's."""
    first = planned.modes[0]
    return {
        "problem": planned.problem.title,
        "mode": planned.problem.mode,
        "arch": planned.hardware.arch,
        "device": planned.hardware.name,
        "verdict": first.verdict,
        "bytes": first.work.nbytes,
        "flops": first.work.flops,
        "limit_ms": first.limit_ms,
        "library_ms": sum(mode.control.ms for mode in planned.modes),
        "best_ms": sum(mode.best[0].prediction.ms for mode in planned.modes),
        "library_calls": planned.library_calls,
        "modes": [_mode(mode) for mode in planned.modes],
    }


def _mode(mode: ModePlan) -> dict[str, Any]:
    return {
        "mode": mode.mode,
        "verdict": mode.verdict,
        "bytes": mode.work.nbytes,
        "flops": mode.work.flops,
        "limit_ms": mode.limit_ms,
        "library_ms": mode.control.ms,
        "operators": [
            {
                "name": operator.name,
                "operator": operator.aten,
                "shape": operator.shape,
                "dtype": operator.dtype,
                "operands": operator.operands,
                "bytes": operator.cost.nbytes,
                "flops": operator.cost.flops,
            }
            for operator in mode.operators
        ],
        "convolutions": [
            {"name": of.name, "tf32": of.tf32, "products": of.products, "why": of.reason} for of in mode.precisions
        ],
        "plans": [_ranked(ranked) for ranked in mode.best],
    }


def _ranked(ranked: Ranked) -> dict[str, Any]:
    return {
        "plan": ranked.plan.name,
        "ms": ranked.prediction.ms,
        "rewrites": ranked.plan.rewrites,
        "control": ranked.plan.control,
        "library_calls": [aten_name(node) for node in ranked.library_calls],
        "views": [aten_name(node) for node in ranked.views],
        "steps": [_step(ranked, step) for step in ranked.prediction.steps],
    }


def _step(ranked: Ranked, step: StepTime) -> dict[str, Any]:
    graph = ranked.plan.graph
    figures = {"bytes": step.cost.nbytes, "flops": step.cost.flops, "ms": step.ms, "bound": step.bound}
    if isinstance(step.step, Kernel):
        operators = [aten_name(graph.node(name)) for name in step.step.nodes]
        return {"kind": "kernel", "name": step.step.name, "operators": operators, "why": None, **figures}
    node = graph.node(step.step.node)
    why = dict(ranked.reasons).get(node.name)
    kind = "library" if why else "view"
    return {"kind": kind, "name": node.name, "operators": [aten_name(node)], "why": why, **figures}


def page(console: Console, planned: Planned) -> None:
    """The answer for people: each mode with its operators and its best plans."""
    for mode in planned.modes:
        facts = [
            ("problem", f"{planned.problem.title}, mode {mode.mode}"),
            ("device", f"{planned.hardware.name}, {planned.hardware.arch}: predicted, nothing was run"),
            ("work", f"{_bytes(mode.work.nbytes)} moved at least, {_flops(mode.work.flops)}"),
            ("limit", f"{text.milliseconds(mode.limit_ms)} by the device's rates"),
            ("PyTorch", f"{text.milliseconds(mode.control.ms)} operator by operator"),
            ("verdict", mode.verdict),
        ]
        print_facts(console, facts)
        table = grid("operator", "result", "> bytes", "> operations")
        for operator in mode.operators:
            shape = "several" if operator.shape is None else f"{operator.dtype}{list(operator.shape)}"
            table.add_row(operator.aten, shape, _bytes(operator.cost.nbytes), _flops(operator.cost.flops))
        console.print(table)
        if mode.precisions:
            console.print(_precisions(mode.precisions))
        for number, ranked in enumerate(mode.best, 1):
            _plan(console, number, ranked)


def _precisions(precisions: Sequence[Precision]) -> Table:
    """How each product of cuDNN is multiplied, by the library and by a kernel."""
    table = grid("product of cuDNN", "cuDNN, predicted", "> products of a kernel", "why")
    for of in precisions:
        table.add_row(of.name, "TF32" if of.tf32 else "float32", str(of.products), of.reason)
    return table


def _plan(console: Console, number: int, ranked: Ranked) -> None:
    title = "the control: everything left to PyTorch" if ranked.plan.control else ranked.plan.name
    console.rule(f"plan {number}: {text.milliseconds(ranked.prediction.ms)}", style="dim")
    console.print(title)
    table = grid("step", "operators", "> bytes", "> operations", "> ms", "bound", "why the library")
    for step in (_step(ranked, one) for one in ranked.prediction.steps):
        figures = (_bytes(step["bytes"]), _flops(step["flops"]), f"{step['ms']:.3g}", step["bound"])
        table.add_row(step["kind"], ", ".join(step["operators"]), *figures, step["why"] or "")
    console.print(table)


def _bytes(count: int) -> str:
    """Bytes as ``1.23 GB``, 1e9 to the gigabyte."""
    return _scaled(count, "B") if count else text.MISSING


def _flops(count: int) -> str:
    """Operations as ``137 GFLOP``."""
    return _scaled(count, "FLOP") if count else text.MISSING


def _scaled(count: int, unit: str) -> str:
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.3g} {prefix}{unit}"
    return f"{count} {unit}"
