"""What the listing commands print for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from kgen.cli.doctor import Check
from kgen.evaluator.protocol import CaseErrors
from kgen.events import Finished, Judged, Leader
from kgen.store.results import (
    BestRow,
    Comparison,
    Failures,
    ProblemRow,
    Rejections,
    SweepDetail,
    SweepRow,
    Trial,
)
from kgen.views import text

if TYPE_CHECKING:
    from kgen.report.effects import Plan
    from kgen.store.exchange import Imported
    from kgen.store.pruning import Pruned

_SPEEDUP = "speedup"  #: heading of the one figure that may wrap: its interval goes below it
#: What a verdict on a speedup says of the file, before the name of a baseline.
_COMPARED = {
    "faster": "faster than",
    "slower": "slower than",
    "same": "as fast as",
    "cannot tell": "not to be told from",
}
#: Verdicts that need other words behind "B is".
_VERDICTS = {"same": "the same", "cannot tell": "not to be told"}
_TELLING = 0.005  #: share of the spread below which a parameter is not worth a line
_TIE = "="  #: beside each of those that cannot be told from the best


def best(console: Console, row: BestRow, file: Path | None) -> None:
    """The best of one problem, in full."""
    print_facts(console, (("problem", problem_title(row.problem)), ("machine", text.environment(row.environment))))
    _warn_of_gate(console, row.problem.passed_by)
    trial = row.trial
    if trial is None:
        return
    facts = [
        ("candidate", text.short(trial.candidate)),
        ("plan", trial.plan),
        ("rewrites", ", ".join(trial.rewrites) or "none"),
        ("params", text.params(trial.params)),
        ("time", _result(trial)),
        ("baselines", text.baselines(trial.baselines)),
        ("error", f"{text.error_ratio(trial.error_ratio)} PyTorch's own, at accuracy {row.accuracy}"),
        ("ties", f"{row.ties} more that cannot be told from it" if row.ties else "none"),
        ("sweep", row.sweep),
    ]
    print_facts(console, facts + ([("source", str(file))] if file else []))


def bests(console: Console, rows: Sequence[BestRow]) -> None:
    """The best of each problem, one line each."""
    table = grid("problem", "device", "class", "candidate", "> ms", "> speedup", "> error", "plan")
    for row in rows:
        trial = row.trial
        start = (problem_title(row.problem), row.environment.device, str(row.accuracy))
        if trial is None:
            table.add_row(*start, *[text.MISSING] * 4, "no candidate of its own kernels was right")
            continue
        figures = text.speedup(trial.speedup, trial.speedup_low, trial.speedup_high)
        worth = "" if row.beats_baseline else " (not faster)" if trial.final else " (screened)"
        error = text.error_ratio(trial.error_ratio)
        table.add_row(*start, text.short(trial.candidate), _ms(trial.median_ms), figures + worth, error, trial.plan)
    console.print(table)


def sweeps(console: Console, rows: Sequence[SweepRow]) -> None:
    """A listing of sweeps, and of files that were judged on their own."""
    table = grid("sweep", "kind", "when", "problem", "device", "class", "> right", "> speedup", "> took", "state")
    for row in rows:
        found = row.best
        table.add_row(
            text.short(row.id),
            row.kind,
            text.moment(row.started_at),
            _subject(row),
            row.device,
            str(row.accuracy),
            f"{row.right}/{row.tried}",
            text.speedup(found.speedup, found.speedup_low, found.speedup_high) if found else text.MISSING,
            text.duration(row.seconds),
            _state(row),
        )
    console.print(table)


def _subject(row: SweepRow) -> str:
    """The problem that was swept; before it the name of the file, where one was judged on its own."""
    is_file = row.kind == "eval"
    title = problem_title(row.problem)
    return f"{Path(row.arguments['file']).name} on {title}" if is_file else title


def _state(row: SweepRow) -> str:
    """How a sweep ended; of one file that was judged, its status."""
    is_judged = row.kind == "eval" and row.state == "finished"
    return ", ".join(row.counts) if is_judged else row.state


def sweep(console: Console, detail: SweepDetail, plans: Sequence[Plan]) -> None:
    """One sweep in full, with what the parameters of each plan did."""
    row = detail.row
    facts = (
        (row.kind, f"{row.id}, {row.state}, begun {text.moment(row.started_at)}, took {text.duration(row.seconds)}"),
        ("problem", problem_title(row.problem)),
        ("sizes", text.params(detail.sizes)),
        ("machine", f"{row.device}: {text.environment(row.environment)}"),
        ("environment", row.environment.id),
        ("class", f"accuracy {row.accuracy}"),
        ("file", row.arguments["file"]) if row.kind == "eval" else ("coverage", _coverage(detail)),
        ("baselines", text.baselines(detail.baselines)),
    )
    print_facts(console, facts)
    _warn_of_gate(console, row.problem.passed_by)
    if detail.leaders:
        console.print(leaders(detail.leaders))
    _effects(console, plans)
    failures(console, detail.failures)
    _rejections(console, detail.rejections)


def _effects(console: Console, plans: Sequence[Plan]) -> None:
    """Which parameter mattered how much: for each plan those that explain anything, the most telling first."""
    table = grid("plan", "> right", "parameter", "> explains", "median speedup by value")
    for plan in plans:
        for place, parameter in enumerate(item for item in plan.parameters if item.share >= _TELLING):
            groups = sorted(parameter.groups, key=lambda group: -group.middle)
            values = ", ".join(f"{group.name}: {text.speedup(group.middle)} of {group.count}" for group in groups)
            whose = ("", "") if place else (plan.whole.name, str(plan.whole.count))
            table.add_row(*whose, parameter.name, f"{parameter.share:.0%}", values)
    if table.row_count:
        console.print(table)


def _coverage(detail: SweepDetail) -> str:
    """How much of the space was tried, and what became of the rest."""
    row = detail.row
    rejected = sum(rejection.count for rejection in detail.rejections)
    failed = sum(failure.count for failure in detail.failures)
    parts = [f"{row.right} of {row.combinations} combinations timed"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{row.duplicates} duplicates of others"] if row.duplicates else []
    parts += [f"{rejected} rejected before building"] if rejected else []
    parts += [f"{detail.taken_over} known from earlier sweeps"] if detail.taken_over else []
    return ", ".join(parts)


def leaders(trials: Iterable[Trial]) -> Table:
    """Right candidates with their figures; ``=`` marks those that cannot be told from the best."""
    table = grid("candidate", "> ms", "> speedup", "", "> error", "plan", "params")
    for trial in trials:
        table.add_row(
            text.short(trial.candidate),
            _ms(trial.median_ms),
            text.speedup(trial.speedup, trial.speedup_low, trial.speedup_high),
            _marks((_TIE, trial.tie), ("control", trial.control), ("screened", not trial.final)),
            text.error_ratio(trial.error_ratio),
            trial.plan,
            text.params(trial.params),
        )
    return table


def sweep_ended(console: Console, finished: Finished, detail: SweepDetail) -> None:
    """What a sweep came to: its finalists beside the baselines, and what went wrong."""
    console.print(f"{finished.state} after {text.duration(finished.seconds)}: {_coverage(detail)}")
    if finished.leaders:
        console.print(_finalists(finished))
    failures(console, detail.failures)


def _finalists(finished: Finished) -> Table:
    """The finalists of a sweep beside the baselines, the fastest first. The best is the simplest of those tied."""
    table = grid("candidate", "> ms", "> speedup", "", "> error", "plan", "params")
    for row in sorted(finished.leaders, key=lambda row: row.median_ms):
        figures = text.speedup(row.speedup, row.speedup_low, row.speedup_high)
        marks = "baseline" if row.candidate is None else _leader_marks(row, row.candidate == finished.best)
        error = text.error_ratio(row.error_ratio)
        table.add_row(text.short(row.candidate), _ms(row.median_ms), figures, marks, error, row.name, row.params)
    return table


def _leader_marks(row: Leader, best: bool) -> str:
    return _marks((_TIE, row.tie), ("best", best), ("control", row.control))


def trials(console: Console, found: Sequence[Trial], reasons: Mapping[str, str]) -> None:
    """Candidates of one sweep in the order judged, with what became of each."""
    table = grid("> no", "candidate", "status", "> ms", "> speedup", "plan", "params", "reason")
    for trial in found:
        figures = text.speedup(trial.speedup, trial.speedup_low, trial.speedup_high)
        what = (text.short(trial.candidate), str(trial.status), _ms(trial.median_ms), figures)
        table.add_row(str(trial.number), *what, trial.plan, text.params(trial.params), reasons[trial.candidate])
    console.print(table)


def comparisons(console: Console, a: str, b: str, found: Sequence[Comparison]) -> None:
    """What was measured of both sides, and how the second one did: a table for each problem and machine."""
    print_facts(console, [("A", a), ("B", b)])
    of_place: dict[tuple[str, str], list[Comparison]] = {}
    for item in found:
        where = text.environment(item.environment) if item.environment else "each in its environment"
        of_place.setdefault((f"{problem_title(item.problem)}, at accuracy {item.accuracy}", where), []).append(item)
    for (problem, where), items in of_place.items():
        print_facts(console, [("problem", problem), ("machine", where)])
        console.print(_compared(items))


def _compared(items: Sequence[Comparison]) -> Table:
    table = grid("what", "candidate", "> A, ms", "> B, ms", "B is", "> times as fast", "timed")
    for item in items:
        subjects = dict.fromkeys(side.subject for side in (item.a, item.b) if side.subject != item.what)
        table.add_row(
            item.what,
            " / ".join(text.short(subject) for subject in subjects),
            _ms(item.a.median_ms),
            _ms(item.b.median_ms),
            _VERDICTS.get(item.verdict, item.verdict),
            text.speedup(item.ratio.mid, item.ratio.low, item.ratio.high),
            item.how,
        )
    return table


def pruned(console: Console, found: Pruned, really: bool, limit: int) -> None:
    """What was dropped, or would be; of the sweeps as many as ``limit``."""
    listed = {
        "sweeps, with all of them": found.sweeps,
        "failed candidates of": found.of_failed,
        "kept, since they have the best of their problem (--even-best drops them, too)": found.kept,
    }
    for heading, rows in listed.items():
        if rows:
            console.print(f"{heading}: {len(rows)}" + (f", of which {limit} are" if len(rows) > limit else ""))
            sweeps(console, rows[:limit])
    counts = [(name, count) for name, count in found.rows.items() if count]
    table = grid("> dropped" if really else "> would go", "rows of")
    for name, count in counts:
        table.add_row(str(count), name)
    console.print(table if counts else "there is nothing to drop")


def imported(console: Console, found: Imported) -> None:
    """What an import came to."""
    table = grid("table", "> rows read", "> new or renewed")
    for name, count in found.read.items():
        table.add_row(name, str(count), str(found.written[name]))
    console.print(table)


def answer(console: Console, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """The answer to a question in SQL."""
    table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(text.MISSING if value is None else str(value) for value in row))
    console.print(table)


def failures(console: Console, groups: Sequence[Failures]) -> None:
    """What went wrong, by kind, with an example of each."""
    if not groups:
        return
    table = grid("> failed", "status", "for example", "reason")
    for group in groups:
        table.add_row(str(group.count), str(group.status), text.short(group.example), group.reason)
    console.print(table)


def judged(console: Console, item: Judged) -> None:
    """What one file came to: the verdict first, then what it stands on."""
    opened, evaluation = item.opened, item.evaluation
    console.print(_verdict(item), style="bold green" if item.ok else "bold red")
    _warn_of_gate(console, opened.health.passed_by)
    facts = [("problem", f"{opened.problem.title}, {opened.problem.mode} mode, at accuracy {evaluation.accuracy}")]
    if evaluation.error_ratio is not None:
        facts.append(("error", f"{text.error_ratio(evaluation.error_ratio)} PyTorch's own"))
    facts += _timed(item)
    facts += [("labels", ", ".join(evaluation.labels))] if evaluation.labels else []
    facts += [("candidate", text.short(opened.candidate)), ("eval", opened.sweep)]
    facts += [("log", evaluation.log)] if evaluation.log else []
    print_facts(console, facts)
    if evaluation.errors:
        console.print(errors(evaluation.errors))


def _verdict(item: Judged) -> str:
    """The status, and what it means, in one line."""
    if not item.ok:
        return f"{item.evaluation.status}: {item.evaluation.reason}"
    if item.speedup is None or item.verdict is None:
        return f"{item.evaluation.status}: right"
    figures = text.speedup(item.speedup.mid, item.speedup.low, item.speedup.high)
    return f"{item.evaluation.status}: right, and {_COMPARED[item.verdict]} {item.baseline}: {figures}"


def _timed(item: Judged) -> list[tuple[str, str]]:
    """The figures of a file that was timed."""
    if item.timing is None:
        return []
    prepared = f", and {text.milliseconds(item.timing.prepare_ms)} once to prepare" if item.timing.prepare_ms else ""
    facts = [("time", text.milliseconds(item.median_ms) + prepared)]
    facts.append(("baselines", text.baselines(dict(item.baselines))))
    if item.timing.conditions:
        facts.append(("conditions", text.conditions(dict(item.timing.conditions))))
    return facts


def source(console: Console, source: str) -> None:
    """A candidate's source: highlighted on a terminal, byte for byte elsewhere."""
    if console.is_terminal:
        from rich.syntax import Syntax  # takes longer to import than a listing to print

        console.print(Syntax(source, "python", background_color="default"))
    else:
        print(source, end="")


def problem_files(console: Console, files: Mapping[str, Path], sizes: Mapping[str, Mapping[str, Any]]) -> None:
    """The problems that a bare name finds, with their sizes."""
    table = grid("problem", "sizes", "file")
    for name, path in files.items():
        table.add_row(name, " ".join(f"{key}={value!r}" for key, value in sizes[name].items()), str(path))
    console.print(table)


def checks(console: Console, found: Sequence[Check]) -> None:
    """What ``kgen doctor`` found, with a remedy for what is missing."""
    table = grid("", "what", "found", "how to get it")
    for item in found:
        mark = "ok" if item.ok else "MISSING" if item.needed else "none"
        table.add_row(mark, item.name, item.found, "" if item.ok else item.remedy)
    console.print(table)


def _result(trial: Trial) -> str:
    """A candidate's figures in one sweep."""
    if trial.speedup is None:
        return "not timed"
    figures = text.speedup(trial.speedup, trial.speedup_low, trial.speedup_high)
    result = f"{text.milliseconds(trial.median_ms)}, {figures} over {trial.baseline or 'the fastest baseline'}"
    return result if trial.final else f"{result}; only screened"


def _marks(*marks: tuple[str, bool]) -> str:
    """Those marks that hold."""
    return " ".join(mark for mark, holds in marks if holds)


def errors(errors: Iterable[CaseErrors]) -> Table:
    """Error figures against float64, the candidate's beside PyTorch's."""
    table = grid("test case", "output", "> rms", "> PyTorch's", "> maximum", "> PyTorch's", "> ratio", "> used", "note")
    for error in errors:
        figures = (error.rms, error.eager_rms, error.maximum, error.eager_maximum, error.ratio, error.used)
        note = error.note or ("" if error.ok else "fails")
        table.add_row(error.case, error.output, *(text.figure(value) for value in figures), note)
    return table


def _rejections(console: Console, groups: Sequence[Rejections]) -> None:
    if not groups:
        return
    table = grid("> rejected", "constraint", "for example")
    for group in groups:
        table.add_row(str(group.count), group.constraint, group.reason)
    console.print(table)


def _warn_of_gate(console: Console, passed_by: Sequence[str]) -> None:
    if passed_by:
        passed = ", ".join(passed_by)
        console.print(
            f"beware: this problem's gate is passed by {passed}; a result on it proves little", style="yellow"
        )


def problem_title(problem: ProblemRow) -> str:
    """A problem's name with its sizes, and its mode."""
    return f"{problem.title}, {problem.mode} mode"


def _ms(value: float | None) -> str:
    return text.milliseconds(value).removesuffix(" ms")


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    console.print(table)


def grid(*columns: str) -> Table:
    """A table with these headings; one that begins with ``> `` is aligned to the right.

    On a narrow terminal texts and intervals go over several lines, but no heading, id or plain figure does.
    """
    table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    for column in columns:
        heading = column.removeprefix("> ")
        right = heading != column
        table.add_column(
            heading,
            justify="right" if right else "left",
            no_wrap=heading in ("sweep", "candidate") or (right and heading != _SPEEDUP),
            min_width=len(heading),
            overflow="fold",
        )
    return table
