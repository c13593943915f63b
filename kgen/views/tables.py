"""The tables that commands print for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from kgen.protocol import CaseErrors, LibraryProduct
from kgen.store.results import BestRow, Comparison, Failures, ProblemRow, Rejections, SweepDetail, SweepRow, Trial
from kgen.tuning.events import Finished, Judged, Leader
from kgen.views import text
from kgen.views.layout import grid, print_facts

if TYPE_CHECKING:
    from kgen.devices.machine import Check
    from kgen.store.effects import Plan
    from kgen.store.exchange import Imported
    from kgen.store.pruning import Pruned

#: The words for a verdict on a file, before the name of a baseline.
_COMPARED = {
    "faster": "faster than",
    "slower": "slower than",
    "same": "as fast as",
    "cannot tell": "too close to tell from",
}
#: Verdicts that need other words after "B is".
_VERDICTS = {"same": "the same", "cannot tell": "too close to tell"}
_TELLING = 0.005  #: share of the spread; a parameter below it gets no line
_SHORT = 120  #: characters of a plan, or of parameters, that `kgen show SWEEP` lists whole
_TIE = "="  #: mark of candidates within the interval of the best
_BUSY = "busy"  #: mark of candidates that the machine was too busy to tell from the fastest baseline
_ANY_WIDTH = 1 << 20  #: columns; to measure a table as wide as it would like to be
_TOO_BUSY = f"{_BUSY}: the machine was too busy to tell this candidate from the fastest baseline"


def best(console: Console, row: BestRow, file: Path | None) -> None:
    """The best of one problem, in full."""
    print_facts(console, (("problem", problem_title(row.problem)), ("machine", text.environment(row.environment))))
    _warn_of_trivial_answers(console, row.problem.passed_by)
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
        ("ties", f"{row.ties} more within its interval" if row.ties else "none"),
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
            table.add_row(
                *start, *[text.MISSING] * 4, f"no kernel of its own was timed: kgen show {text.short(row.sweep)}"
            )
            continue
        figures = text.speedup(trial.speedup, trial.speedup_low, trial.speedup_high)
        worth = "" if row.beats_baseline else " (screened)" if not trial.final else _not_faster(trial)
        error = text.error_ratio(trial.error_ratio)
        table.add_row(
            *start,
            text.short(trial.candidate),
            _ms(trial.median_ms),
            figures + worth,
            error,
            text.plan(trial.plan, trial.plan_data),
        )
    console.print(table)


def _not_faster(trial: Trial) -> str:
    return " (too busy to tell)" if trial.too_busy else " (not faster)"


def sweeps(console: Console, rows: Sequence[SweepRow]) -> None:
    """A listing of sweeps, and of single files that were judged."""
    table = grid("sweep", "kind", "when", "problem", "device", "class", "> right", "> speedup", "> took", "state")
    for row in rows:
        table.add_row(
            text.short(row.id),
            row.kind,
            text.moment(row.started_at),
            _subject(row),
            row.device,
            str(row.accuracy),
            f"{row.right}/{row.tried}",
            _sweep_speedup(row.best),
            text.duration(row.seconds),
            _state(row),
        )
    console.print(table)


def _sweep_speedup(best: Trial | None) -> str:
    """The speedup of a sweep's best; a screening is marked, because finals do not compare with it."""
    if best is None:
        return text.MISSING
    figures = text.speedup(best.speedup, best.speedup_low, best.speedup_high)
    return figures if best.final else f"{figures} (screened)"


def _subject(row: SweepRow) -> str:
    """The problem that was swept, after the name of the file where a single file was judged."""
    title = problem_title(row.problem)
    if row.kind == "agent":
        return f"{row.arguments.get('model') or row.arguments.get('proposer')} on {title}"
    return f"{Path(row.arguments['file']).name} on {title}" if "file" in row.arguments else title


def _state(row: SweepRow) -> str:
    """The state of a sweep; the status of a single file."""
    is_judged = row.kind == "eval" and row.state == "finished"
    return ", ".join(row.counts) if is_judged else row.state


def sweep(console: Console, detail: SweepDetail, plans: Sequence[Plan]) -> None:
    """One sweep in full, with the effects of the parameters of each plan."""
    row = detail.row
    facts = [
        (row.kind, f"{row.id}, {row.state}, begun {text.moment(row.started_at)}, took {text.duration(row.seconds)}"),
        ("problem", problem_title(row.problem)),
        ("sizes", text.params(detail.sizes)),
        ("machine", f"{row.device}: {text.environment(row.environment)}"),
        ("environment", row.environment.id),
        ("class", f"accuracy {row.accuracy}"),
        ("file", row.arguments["file"]) if row.kind == "eval" else ("coverage", _coverage(detail)),
        *([("template", row.arguments["file"])] if row.kind == "tune" else []),
        *(
            [("proposer", " ".join(filter(None, map(row.arguments.get, ("proposer", "model", "url")))))]
            if row.kind == "agent"
            else []
        ),
    ]
    print_facts(console, facts)
    _warn_of_trivial_answers(console, row.problem.passed_by)
    _leaders(console, detail)
    _effects(console, plans)
    failures(console, detail.failures)
    _rejections(console, detail.rejections)


def _effects(console: Console, plans: Sequence[Plan]) -> None:
    """The effect of each parameter, by plan: those that explain any of the spread, the strongest first."""
    table = grid("plan", "> right", "parameter", "> explains", "median speedup by value")
    for plan in plans:
        for place, parameter in enumerate(item for item in plan.parameters if item.share >= _TELLING):
            groups = sorted(parameter.groups, key=lambda group: -group.middle)
            values = ", ".join(f"{group.name}: {text.speedup(group.middle)} of {group.count}" for group in groups)
            whose = (
                ("", "")
                if place
                else (text.plan(plan.whole.name, plan.whole.best.plan_data, _SHORT), str(plan.whole.count))
            )
            table.add_row(*whose, parameter.name, f"{parameter.share:.0%}", values)
    if table.row_count:
        console.print(table)


def _coverage(detail: SweepDetail) -> str:
    """The numbers of combinations timed, failed and left out."""
    row = detail.row
    rejected = sum(rejection.count for rejection in detail.rejections)
    failed = sum(failure.count for failure in detail.failures)
    parts = [f"{row.right} of {text.combinations(row.combinations)} combinations timed"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{row.duplicates} duplicates of others"] if row.duplicates else []
    parts += [f"{rejected} rejected before building"] if rejected else []
    parts += [f"{detail.taken_over} known from earlier sweeps"] if detail.taken_over else []
    return ", ".join(parts)


def _leaders(console: Console, detail: SweepDetail) -> None:
    """The leaders of a sweep: finalists and screened candidates, each beside the baselines of the same timing."""
    final = [trial for trial in detail.leaders if trial.final]
    screened = [trial for trial in detail.leaders if not trial.final]
    if final:
        print_facts(console, [("baselines", text.baselines(detail.baselines))])
        console.print(leaders(final))
        _explain(console, any(trial.too_busy for trial in final))
    if screened:
        print_facts(console, [("screened beside", text.baselines(detail.screened_baselines))])
        console.print(leaders(screened))


def leaders(trials: Iterable[Trial]) -> Table:
    """Right candidates with their figures and marks."""
    table = grid("candidate", "> ms", "> speedup", "", "> error", "plan", "params")
    for trial in trials:
        marks = _marks((_TIE, trial.tie), (_BUSY, trial.too_busy), ("control", trial.control))
        table.add_row(
            text.short(trial.candidate),
            _ms(trial.median_ms),
            text.speedup(trial.speedup, trial.speedup_low, trial.speedup_high),
            marks,
            text.error_ratio(trial.error_ratio),
            text.plan(trial.plan, trial.plan_data, _SHORT),
            text.params(trial.params, _SHORT),
        )
    return table


def sweep_ended(console: Console, finished: Finished, detail: SweepDetail) -> None:
    """The result of a sweep: its leaders beside the baselines, and its failures."""
    console.print(f"{finished.state} after {text.duration(finished.seconds)}: {_coverage(detail)}")
    if finished.leaders:
        console.print(_finalists(finished))
        _explain(console, any(_is_busy(row) for row in finished.leaders))
    failures(console, detail.failures)


def _explain(console: Console, busy: bool) -> None:
    if busy:
        console.print(_TOO_BUSY, style="yellow")


def _finalists(finished: Finished) -> Table:
    """The leaders of a sweep beside the baselines, the fastest first. Among equals, the best is the simplest one."""
    table = grid("candidate", "> ms", "> speedup", "", "> error", "plan")
    for row in sorted(finished.leaders, key=lambda row: row.median_ms):
        figures = text.speedup(row.speedup, row.speedup_low, row.speedup_high)
        marks = "baseline" if row.candidate is None else _leader_marks(row, row.candidate == finished.best)
        error = text.error_ratio(row.error_ratio)
        table.add_row(
            text.short(row.candidate), _ms(row.median_ms), figures, marks, error, text.plan(row.name, row.plan_data)
        )
    return table


def _leader_marks(row: Leader, best: bool) -> str:
    return _marks((_TIE, row.tie), ("best", best), (_BUSY, _is_busy(row)), ("control", row.control))


def _is_busy(row: Leader) -> bool:
    return row.candidate is not None and row.too_busy


def trials(console: Console, found: Sequence[Trial], reasons: Mapping[str, str]) -> None:
    """Candidates of one sweep in the order judged, each with its status and reason."""
    table = grid("> no", "candidate", "status", "> ms", "> speedup", "", "plan", "params", "reason")
    for trial in found:
        figures = text.speedup(trial.speedup, trial.speedup_low, trial.speedup_high)
        marks = _marks(("final", trial.final), (_BUSY, trial.too_busy))
        what = (text.short(trial.candidate), str(trial.status), _ms(trial.median_ms), figures, marks)
        table.add_row(
            str(trial.number),
            *what,
            text.plan(trial.plan, trial.plan_data, _SHORT),
            text.params(trial.params, _SHORT),
            reasons[trial.candidate],
        )
    console.print(table)


def comparisons(console: Console, a: str, b: str, found: Sequence[Comparison]) -> None:
    """The times of both sides and the verdict on B: a table for each problem and machine."""
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
    """The sweeps and rows that were dropped, or would be; at most ``limit`` sweeps are listed."""
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
    """The number of rows that an import read and wrote, by table."""
    table = grid("table", "> rows read", "> new or renewed")
    for name, count in found.read.items():
        table.add_row(name, str(count), str(found.written[name]))
    console.print(table)


def answer(console: Console, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """The answer to a question in SQL: a table, or one block for each row if that is too wide."""
    shown = [[text.MISSING if value is None else str(value) for value in row] for row in rows]
    table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in shown:
        table.add_row(*row)
    measured = Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table)
    if not shown or measured.maximum <= console.width:
        console.print(table)
        return
    for number, row in enumerate(shown, 1):
        console.print(f"row {number}", style="bold")
        print_facts(console, zip(columns, row, strict=True))


def failures(console: Console, groups: Sequence[Failures]) -> None:
    """The failures by status, each with an example."""
    if not groups:
        return
    table = grid("> failed", "status", "for example", "reason")
    for group in groups:
        table.add_row(str(group.count), str(group.status), text.short(group.example), group.reason)
    console.print(table)


def judged(console: Console, item: Judged) -> None:
    """The result of one file: the verdict first, then its figures."""
    opened, evaluation = item.opened, item.evaluation
    console.print(_verdict(item), style="bold green" if item.ok else "bold red")
    _warn_of_trivial_answers(console, opened.health.passed_by)
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
    """The status and the verdict on the speedup, in one line."""
    if not item.ok:
        return f"{item.evaluation.status}: {item.evaluation.reason}"
    if item.speedup is None or item.verdict is None:
        return f"{item.evaluation.status}: right"
    figures = text.speedup(item.speedup.mid, item.speedup.low, item.speedup.high)
    busy = "; the machine was too busy to tell" if item.speedup.cannot_tell else ""
    return f"{item.evaluation.status}: right, and {_COMPARED[item.verdict]} {item.baseline}: {figures}{busy}"


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
    """The known problems with their sizes and files."""
    table = grid("problem", "sizes", "file")
    for name, path in files.items():
        table.add_row(name, " ".join(f"{key}={value!r}" for key, value in sizes[name].items()), str(path))
    console.print(table)


def checks(console: Console, found: Sequence[Check]) -> None:
    """The findings of ``kgen doctor``, with a remedy for each missing part."""
    table = grid("", "what", "found", "how to get it")
    for item in found:
        mark = "ok" if item.ok else "MISSING" if item.needed else "none"
        table.add_row(mark, item.name, item.found, "" if item.ok else item.remedy)
    console.print(table)


def _result(trial: Trial) -> str:
    """A candidate's figures in one sweep, in one line."""
    if trial.speedup is None:
        return "not timed"
    figures = text.speedup(trial.speedup, trial.speedup_low, trial.speedup_high)
    result = f"{text.milliseconds(trial.median_ms)}, {figures} over {trial.baseline or 'the fastest baseline'}"
    note = "" if trial.final else "; only screened"
    return result + ("; the machine was too busy to tell" if trial.too_busy else note)


def _marks(*marks: tuple[str, bool]) -> str:
    """The marks whose condition holds."""
    return " ".join(mark for mark, holds in marks if holds)


def errors(errors: Iterable[CaseErrors]) -> Table:
    """Error figures against float64, the candidate's beside PyTorch's."""
    figures_of = ("> rms", "> PyTorch's", "> maximum", "> PyTorch's", "> ratio", "> used")
    table = grid("test case", "output", *figures_of, "note")
    for error in errors:
        figures = (error.rms, error.eager_rms, error.maximum, error.eager_maximum, error.ratio, error.used)
        note = error.note or ("" if error.ok else "fails")
        table.add_row(error.case, error.output, *(text.figure(value) for value in figures), note)
    return table


def products(found: Sequence[LibraryProduct]) -> list[tuple[str, str]]:
    """How cuDNN multiplied the convolutions and recurrent layers, those in float32 by name, in one fact or none."""
    exact = [f"{'x'.join(map(str, one.weight))} ({one.reason})" for one in found if not one.tf32]
    line = f"TF32 in {len(found) - len(exact)} of {len(found)}"
    return [("cuDNN", f"{line}; not in {', '.join(exact)}" if exact else line)] if found else []


def _rejections(console: Console, groups: Sequence[Rejections]) -> None:
    if not groups:
        return
    table = grid("> rejected", "constraint", "for example")
    for group in groups:
        table.add_row(str(group.count), group.constraint, group.reason)
    console.print(table)


def _warn_of_trivial_answers(console: Console, passed_by: Sequence[str]) -> None:
    if passed_by:
        passed = ", ".join(passed_by)
        console.print(
            f"beware: {passed} would pass as right on this problem; a result on it proves little", style="yellow"
        )


def problem_title(problem: ProblemRow) -> str:
    """A problem's name with its sizes, and its mode."""
    return f"{problem.title}, {problem.mode} mode"


def _ms(value: float | None) -> str:
    return text.milliseconds(value).removesuffix(" ms")
