"""One candidate in full: its plan and source, then each of its evaluations with all figures of the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from kgen import paths
from kgen.devices import occupancy
from kgen.protocol import Accuracy, KernelResources
from kgen.protocol.statistics import median_interval
from kgen.store.results import CandidateDetail, Judgement, Trial
from kgen.store.tasks import StepRow
from kgen.views import chain, figures, tables, tasks, text

LOG_LINES = 20  #: lines of a build's log; limit of those that are shown, the last ones
LOG_WIDTH = 120  #: characters of such a line; limit of those that are shown


def candidate(console: Console, detail: CandidateDetail, file: Path | None, steps: Sequence[StepRow] = ()) -> None:
    """One candidate in full; ``steps`` are its kernel tasks, where it was assembled."""
    tables.print_facts(console, [("candidate", detail.id), *_facts(detail), *([("source", str(file))] if file else [])])
    if detail.origin == "sweep":
        console.print(_chain(detail))
    if steps:
        console.rule("kernel tasks", style="dim")
        tasks.steps(console, steps)
    console.rule("source", style="dim")
    tables.source(console, detail.source if detail.source.endswith("\n") else f"{detail.source}\n")
    threads = occupancy.threads_of(detail.source)
    for judgement in detail.judgements:
        console.rule(f"evaluation {judgement.evaluation.id}", style="dim")
        _judgement(console, detail, judgement, threads)


def _facts(detail: CandidateDetail) -> list[tuple[str, str]]:
    kind = ("kind", f"{detail.device_type}, {_kind(detail)}, {detail.source_lines} lines")
    if detail.origin != "sweep":
        return [*([("template", detail.plan), ("params", text.params(detail.params))] if detail.params else []), kind]
    rewrites = ", ".join(detail.rewrites) or "none"
    return [("plan", detail.plan), ("rewrites", rewrites), ("params", text.params(detail.params)), kind]


def _kind(detail: CandidateDetail) -> str:
    proposed = f", proposed by {detail.proposed_by}" if detail.proposed_by else ""
    if detail.origin != "sweep":
        return f"a file from outside{proposed}"
    return (
        "control: everything is left to the library"
        if detail.control
        else f"kernels of its own: {detail.kernels}{proposed}"
    )


def _chain(detail: CandidateDetail) -> Table:
    drawn = Table.grid(padding=(0, 1))
    for link in chain.links(detail.plan_data, detail.params):
        drawn.add_row(link.operator, link.bracket, link.runs)
    return drawn


def _judgement(console: Console, detail: CandidateDetail, judgement: Judgement, threads: Mapping[str, int]) -> None:
    evaluation = judgement.evaluation
    facts = [
        ("judged", text.moment(judgement.created_at)),
        ("problem", tables.problem_title(judgement.problem)),
        ("machine", text.environment(judgement.environment)),
        ("status", f"{evaluation.status} at accuracy {evaluation.accuracy}"),
    ]
    facts += [("reason", evaluation.reason)] if evaluation.reason else []
    facts += tables.products(detail.products_of(judgement))
    facts += [("labels", ", ".join(evaluation.labels))] if evaluation.labels else []
    facts += _build(judgement)
    tables.print_facts(console, facts)
    if evaluation.build and evaluation.build.kernels:
        console.print(_kernels(evaluation.build.kernels, judgement.environment.arch, threads))
    if evaluation.errors:
        console.print(tables.errors(evaluation.errors))
    timed = [fact for trial in judgement.trials for fact in _trial(detail, trial, evaluation.accuracy)]
    log = [("log", evaluation.log)] if evaluation.log else []
    tables.print_facts(console, [*_screening(judgement), *timed, *log])


def _build(judgement: Judgement) -> list[tuple[str, str]]:
    """The time of the build, and the end of its log."""
    build = judgement.evaluation.build
    if build is None:
        return []
    facts = [("build", "found built" if build.cached else f"took {text.duration(build.seconds)}")]
    if build.log:
        facts.append(("build log", _end(build.log)))
    return facts


def _end(log: str) -> str:
    """The end of a log file, below its name."""
    said = paths.read_log(log)
    if said is None:
        return f"{log} (not here)"
    lines = [line if len(line) <= LOG_WIDTH else f"{line[:LOG_WIDTH]} ..." for line in said.strip().splitlines()]
    return "\n".join([log, *lines[-LOG_LINES:]])


def _kernels(kernels: Iterable[KernelResources], arch: str, threads: Mapping[str, int]) -> Table:
    """The compiler's report on each kernel. Occupancy is the most that these resources allow."""
    table = tables.grid("kernel", "> threads", "> registers", "> shared bytes", "> spilled bytes", "> occupancy")
    for kernel in kernels:
        count = threads.get(kernel.name.rpartition("::")[2])
        share = occupancy.occupancy(arch, kernel, count) if count else None
        of_each = (count, kernel.registers, kernel.shared_bytes, kernel.spill_bytes)
        shown = [text.MISSING if value is None else str(value) for value in of_each]
        table.add_row(kernel.name, *shown, text.MISSING if share is None else f"{share:.0%}")
    return table


def _screening(judgement: Judgement) -> list[tuple[str, str]]:
    timing = judgement.evaluation.timing
    return [("screened", text.interval(median_interval(timing)))] if timing and any(timing.blocks) else []


def _trial(detail: CandidateDetail, trial: Trial, accuracy: Accuracy) -> list[tuple[str, str]]:
    """A candidate's figures in one sweep, and its share of the device's ceilings."""
    if trial.speedup is None:
        return [(f"{trial.kind} {trial.sweep}", "not timed")]
    time = text.interval(trial.interval_ms) if trial.interval_ms else text.milliseconds(trial.median_ms)
    speedup = text.speedup(trial.speedup, trial.speedup_low, trial.speedup_high)
    result = f"{time}, {speedup} over {trial.baseline or 'the fastest baseline'}"
    facts = [(f"{trial.kind} {trial.sweep}", result if trial.final else f"{result}; only screened")]
    reached = figures.achieved(detail, trial, accuracy)
    return [*facts, ("achieved", str(reached))] if reached else facts
