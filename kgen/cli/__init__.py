"""The command line: parse, call, print. What a command needs is imported inside it, so that others start at once."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
import threading
import traceback
import warnings
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence, TypeVar

import click

import kgen
from kgen.candidate import SHORT
from kgen.cli.listing import SWEEPS, Listing, db_option, listing_options, selection_options
from kgen.errors import KgenError, NotFoundError

if TYPE_CHECKING:
    from kgen.events import Finished
    from kgen.problem import Problem
    from kgen.store import Store
    from kgen.store.results import BestRow, CandidateDetail, Failures, SweepDetail, Trial
    from kgen.views.progress import Tally

Command = TypeVar("Command", bound=Callable[..., Any])

#: Exit codes besides those of the errors: an answer that is no success, and Ctrl-C.
NO_SUCCESS = 1
INTERRUPTED = 130
_AGAIN_SECONDS = 0.01

_MODES = ("train", "eval", "both")
_ACCURACIES = ("fp32", "tf32", "kernelbench")
_BASELINES = ("eager", "compile", "compile-max-autotune")
_CACHES = ("cold", "warm")
_STRATEGIES = ("exhaustive", "random", "coordinate", "additive", "tpe")


class Commands(click.Group):
    """The group of all commands. A command returns its exit code, or ``None``; every error becomes one line."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        sys.exit(self._exit_code(args, **extra))

    def _exit_code(self, args: Sequence[str] | None, **extra: Any) -> int:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C
        # torch says so at its import where NumPy is not installed; kgen needs none.
        warnings.filterwarnings("ignore", "Failed to initialize NumPy")
        try:
            with _interrupts_heard():
                code = super().main(args, standalone_mode=False, **extra)
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except KgenError as error:
            return _say(str(error), error.exit_code)
        except click.ClickException as error:
            return _say(_usage(error), error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            return _say("interrupted", INTERRUPTED)
        except BrokenPipeError:
            # The reader went away (`| head`): nothing is wrong, and Python must not complain when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            from kgen.paths import home

            return _say(f"{error.filename or home()}: {error.strerror or error}", 2)
        except Exception:
            traceback.print_exc()
            return _say("this is a bug in kgen: please report it, with the lines above", 70)


@contextmanager
def _interrupts_heard() -> Iterator[None]:
    """Interrupts that Python ignores, as it does with all that is raised in a finalizer, come once more."""
    before = sys.unraisablehook

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            return before(ignored)
        # A little later: in here, it would be ignored again.
        again = signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
        threading.Timer(_AGAIN_SECONDS, *again).start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _say(line: str, code: int) -> int:
    _tell(line)
    return code


def _tell(line: str) -> None:
    click.echo(f"kgen: {line}", err=True)


def _store(db: str | None) -> Store:
    """The database, opened for reading: it is there already, or an error says so."""
    from kgen.store import Store

    return Store.open(db, notice=_tell, create=False)


def _usage(error: click.ClickException) -> str:
    """A usage error in one line, with the way to the help."""
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{message} (see `{context.command_path} --help`)" if context else message


def problem_options(function: Command) -> Command:
    """The options that say which problem is meant, beside its file or name."""
    function = click.option(
        "--mode", type=click.Choice(_MODES), help="Mode of the model.  [default: as constructed, which is train]"
    )(function)
    return click.option(
        "-D",
        "overrides",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_parse_overrides,
        help="Replace a module-level constant of the problem's file; may be repeated.",
    )(function)


def _parse_overrides(context: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise click.BadParameter(f"{name + equals + value!r} is not NAME=VALUE", context, option)
    return {name.strip(): value for name, _, value in pairs}


def _parse_baselines(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in _BASELINES:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(_BASELINES)}", context, option)
    if "eager" not in names:
        raise click.BadParameter("eager has to be among them", context, option)
    return tuple(name for name in _BASELINES if name in names)


def judging_options(function: Command) -> Command:
    """The options of commands that judge candidates: where, at which class, and beside which baselines."""
    function = click.option(
        "--baselines",
        metavar="NAMES",
        default=",".join(_BASELINES),
        show_default=True,
        callback=_parse_baselines,
        help="Ways of PyTorch to compare with; fewer take less time to prepare.",
    )(function)
    function = click.option(
        "--accuracy", type=click.Choice(_ACCURACIES), default="fp32", show_default=True, help="What right means."
    )(function)
    return click.option(
        "--device", metavar="cpu|cuda|cuda:N", help="Where to run.  [default: CUDA if there is one, else the CPU]"
    )(function)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(kgen.__version__, prog_name="kgen")
def main() -> None:
    """Turn a PyTorch module into a faster one that is proven right.

    kgen fuses a module's operators, renders kernels, checks each against float64, times it beside PyTorch, and keeps
    everything that was measured. `kgen sweep PROBLEM` tries, `kgen best PROBLEM -o FILE` takes the winner along,
    `kgen eval PROBLEM FILE` judges what somebody else wrote.
    """


@main.command()
@click.argument("problem")
@problem_options
@judging_options
@click.option("--budget", type=click.IntRange(min=1), metavar="N", help="Try at most N candidates.")
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Try candidates until the leaders can be timed and all be done after SECONDS; one is tried in any case.",
)
@click.option(
    "--strategy",
    type=click.Choice(_STRATEGIES),
    help="Which candidates to try.  [default: exhaustive if the budget allows, else additive]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of what the strategy draws at random.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Compile N candidates at once.")
@click.option(
    "--fresh", is_flag=True, help="Start over: neither go on with an earlier sweep, nor take over its results."
)
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print each event as one line of JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print the table at the end only.")
def sweep(
    problem: str,
    overrides: Mapping[str, str],
    mode: str | None,
    device: str | None,
    accuracy: str,
    budget: int | None,
    seconds: float | None,
    strategy: str | None,
    seed: int,
    jobs: int | None,
    baselines: tuple[str, ...],
    fresh: bool,
    db: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Try fusion plans and parameters for PROBLEM.

    PROBLEM is a file, or the name of a known one. What each candidate came to is kept.

    The same command goes on where it was, after Ctrl-C or a kill. Exit code 1: no candidate was right.

    --device also takes several GPUs that are alike, such as cuda:0,cuda:1, or cuda:all: candidates are shared among
    them, and the leaders are timed again on the first.

    \b
    With --json each line is one object; "event" is one of
      started    sweep, problem, mode, device, environment, accuracy, plans, combinations, budget, found_done
      notice     text
      measured   baselines (name to ms), device
      built      candidate, ok, cached, seconds
      evaluated  number, candidate, plan, params, status, reason, error_ratio, median_ms, speedup, device, ...
      finals     candidates
      finished   sweep, state, seconds, counts, leaders, best, beats_baseline
    """
    from kgen.evaluator.protocol import Accuracy
    from kgen.problem import read_problem

    asked = read_problem(problem, overrides, mode)  # before anything that takes time to import

    from kgen.tuning.sweep import SweepRequest, run
    from kgen.views import progress
    from kgen.views.console import console

    request = SweepRequest(
        problem=asked,
        device=device,
        accuracy=Accuracy(accuracy),
        budget=budget,
        seconds=seconds,
        strategy=strategy,
        seed=seed,
        jobs=jobs,
        baselines=baselines,
        fresh=fresh,
        db=db,
    )
    watch = progress.JsonLines(click.echo) if as_json else progress.Watch() if quiet else progress.Live(console())
    with watch:
        run(request, watch)
    return _sweep_ended(watch.tally, asked, problem, db, as_json)


def _sweep_ended(tally: Tally, problem: Problem, reference: str, db: str | None, as_json: bool) -> int:
    """Show what a sweep came to, and say what to do next; the exit code."""
    from kgen.store import queries
    from kgen.views import tables
    from kgen.views.console import console

    finished = tally.finished
    if finished is None:
        return _say("interrupted before anything was tried", INTERRUPTED)
    with _store(db) as store:
        detail = queries.sweep(store, finished.sweep, leaders=1)
    if not as_json:
        tables.sweep_ended(console(), finished, detail)
    if finished.state == "interrupted":
        return _say("interrupted; the same command goes on from here", INTERRUPTED)
    if not dict(finished.counts).get("ok"):
        return _say(_why_none(detail.failures), NO_SUCCESS)
    if not as_json:
        click.echo(_next_command(problem, reference, db, finished))
    return 0


def _why_none(failed: Sequence[Failures]) -> str:
    """Why no candidate of a sweep was right: what happened to most of them."""
    if not failed:
        return "no candidate was right: none was tried"
    most, tried = failed[0], sum(group.count for group in failed)
    example = f"such as {most.example[:SHORT]}: {most.reason}"
    return f"no candidate was right: {most.count} of {tried} ended as {most.status}, {example}"


def _next_command(problem: Problem, reference: str, db: str | None, finished: Finished) -> str:
    """What to type next."""
    from kgen.store.database import shown

    if not finished.beats_baseline:
        return f"nothing beats PyTorch here; more: kgen show {finished.sweep}"
    words = ["kgen", "best", reference]
    words += [word for name, value in problem.overrides for word in ("-D", f"{name}={value!r}")]
    words += ["--mode", problem.asked_mode] if problem.asked_mode else []
    words += ["--db", db if "://" not in db else shown(db)] if db else []
    return f"take the winner along: {shlex.join([*words, '-o', f'{problem.name}_fast.py'])}"


@main.command("eval")
@click.argument("problem")
@click.argument("file", type=click.Path(path_type=Path))
@problem_options
@judging_options
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time a right file beside the baselines for about SECONDS.  [default: 20 on a GPU, 12 on the CPU]",
)
@click.option(
    "--cache",
    type=click.Choice(_CACHES),
    default="cold",
    show_default=True,
    help="What a timed call finds in the device's cache: nothing of use, or what the call before it left.",
)
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON; notices go to stderr.")
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
def evaluate(
    problem: str,
    file: Path,
    overrides: Mapping[str, str],
    mode: str | None,
    device: str | None,
    accuracy: str,
    baselines: tuple[str, ...],
    seconds: float | None,
    cache: str,
    db: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Judge the class ModelNew of FILE against PROBLEM.

    FILE may be written by a person, a language model or another tool. It takes the way of a sweep's candidates: built,
    held against float64, timed beside PyTorch, and kept. It is judged anew each time, `kgen history` lists it, and
    `kgen best` leaves it out. Exit code 1: its status is not ok.

    \b
    With --json the object has
      status, reason, phase, accuracy, error_ratio, errors (one for each regime and output), labels, log,
      median_ms, speedup, speedup_low, speedup_high, verdict (faster, slower, same, cannot tell), baseline,
      baselines (name to ms), prepare_ms, conditions, seconds (by phase), file, candidate, evaluation, sweep,
      problem, mode, overrides, problem_id, health, device, environment
    """
    from kgen.evaluator.protocol import Accuracy
    from kgen.problem import read_problem

    asked = read_problem(problem, overrides, mode)  # before anything that takes time to import

    from kgen.tuning import eval_file
    from kgen.views import plain, progress, tables
    from kgen.views.console import console

    request = eval_file.EvalRequest(
        problem=asked,
        file=str(file),
        source=eval_file.read_source(file),
        device=device,
        accuracy=Accuracy(accuracy),
        baselines=baselines,
        seconds=seconds,
        cache=cache,
        db=db,
    )
    watch = progress.Watch() if quiet else progress.Notices(_tell) if as_json else progress.Steps(console())
    with watch:
        judged = eval_file.run(request, watch)
    if as_json:
        click.echo(plain.dumps(plain.judged(judged)))
    else:
        tables.judged(console(), judged)
    return 0 if judged.ok else NO_SUCCESS


@main.command()
@click.argument("problem", required=False)
@problem_options
@click.option("--accuracy", type=click.Choice(_ACCURACIES), help="Class of accuracy.  [default: the strictest swept]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Verify again, and write to FILE."
)
@listing_options("device", "since", "before")
def best(
    problem: str | None,
    overrides: Mapping[str, str],
    mode: str | None,
    accuracy: str | None,
    output: Path | None,
    listing: Listing,
) -> int:
    """Show the best candidate of each problem, or of PROBLEM, on the device swept last.

    Speedups are over the fastest baseline, with their interval. With -o the winner is verified again in a fresh
    process and written to FILE, with what was measured in FILE.json beside it. Files that `kgen eval` judged are left
    out. Exit code 1: nothing beats PyTorch.
    """
    from kgen.cli import lookup
    from kgen.evaluator.protocol import Accuracy
    from kgen.store import queries

    if problem is None and (overrides or mode or output):
        raise click.UsageError("-D, --mode and -o need a PROBLEM", click.get_current_context())
    with _store(listing.db) as store:
        chosen = None if problem is None else [lookup.find(store, problem, overrides, mode).id]
        wanted = Accuracy(accuracy) if accuracy else None
        rows = queries.best(store, problem_ids=chosen, accuracy=wanted, among=listing.among, limit=listing.limit)
        if problem is None:
            return _show_bests(rows, listing)
        if not rows:
            given = [*([f"--accuracy {accuracy}"] if accuracy else []), *listing.given]
            filters = " ".join(["", "with", *given] if given else [])
            raise NotFoundError(f"{problem} was never swept{filters}, into {store.name}: `kgen sweep` does it")
        return _show_best(store, rows[0], output, listing)


def _show_bests(rows: Sequence[BestRow], listing: Listing) -> int:
    from kgen.paths import candidate_file
    from kgen.views import plain, tables

    files = [candidate_file(row.trial.candidate) if row.trial else None for row in rows]
    found = [plain.best(row, file) for row, file in zip(rows, files, strict=True)]
    listing.answer(found, lambda console: tables.bests(console, rows))
    return 0 if any(row.beats_baseline for row in rows) else NO_SUCCESS


def _show_best(store: Store, row: BestRow, output: Path | None, listing: Listing) -> int:
    from kgen.paths import write_candidate
    from kgen.store import queries
    from kgen.views import plain, tables

    file = write_candidate(row.trial.candidate, queries.source(store, row.trial.candidate)) if row.trial else None
    found = plain.best(row, file)
    listing.answer(found, lambda console: tables.best(console, row, file), rows=[found])
    if not row.beats_baseline:
        return _say(_why_not_better(row), NO_SUCCESS)
    if output:
        from kgen.tuning.export import export

        export(store, row, queries.problem(store, row.problem.id), output)
        click.echo(f"verified again and written: {output}, with its figures in {output}.json", err=listing.as_json or listing.as_csv)
    return 0


def _why_not_better(row: BestRow) -> str:
    """Why a best is no success."""
    title = f"{row.problem.title}, {row.problem.mode} mode"
    if row.trial is None:
        return f"{title}: no candidate with a kernel of its own was right; `kgen show {row.sweep}` says why"
    if not row.trial.final:
        return f"{title}: only screened so far: run `kgen sweep` to its end to time the leaders beside PyTorch"
    return f"{title}: nothing beats PyTorch ({row.trial.baseline})"


@main.command()
@click.argument("problem", required=False)
@listing_options(*SWEEPS)
def history(problem: str | None, listing: Listing) -> None:
    """List the sweeps and the files that `kgen eval` judged, the latest first.

    With PROBLEM those of that name, at all its sizes and in all its modes.
    """
    from kgen.cli import lookup
    from kgen.store import queries
    from kgen.views import plain, tables

    with _store(listing.db) as store:
        name = lookup.problem_name(problem) if problem else None
        rows = queries.sweeps(store, name=name, among=listing.among, limit=listing.rows)
        if name and not rows and not queries.problems(store, name=name):
            raise NotFoundError(f"{problem} was never swept, nor a file judged on it, into {store.name}")
    listing.answer([plain.sweep_row(row) for row in rows], lambda console: tables.sweeps(console, rows))


@main.command()
@click.argument("identity", metavar="SWEEP|CANDIDATE")
@click.option("--source", is_flag=True, help="Print the candidate's source only.")
@click.option("--log", is_flag=True, help="Print the log of the candidate's latest evaluation only.")
@listing_options("status")
def show(identity: str, source: bool, log: bool, listing: Listing) -> None:
    """Show one sweep or candidate in full.

    It is named by its id, or by the beginning of it. With --status the candidates of a sweep that came to this (ok,
    wrong_values, ...) are listed. CSV has the leaders of a sweep, or the evaluations of a candidate.
    """
    from kgen.store import queries

    with _store(listing.db) as store:
        kind, name = queries.resolve(store, identity)
        if kind == "candidate":
            if listing.status:
                raise click.UsageError(f"{identity} is a candidate: --status needs a sweep")
            _show_candidate(queries.candidate(store, name), source, log, listing)
        elif source or log:
            raise click.UsageError(f"{identity} is a sweep: --source and --log need a candidate")
        elif listing.status:
            _show_trials(store, name, listing)
        else:
            detail = queries.sweep(store, name, leaders=listing.rows)
            _show_sweep(detail, queries.timed(store, [name]), listing)


def _show_sweep(detail: SweepDetail, right: Sequence[Trial], listing: Listing) -> None:
    from kgen.report import effects
    from kgen.views import plain, tables

    plans = effects.plans(right, detail.row.best)
    found = plain.sweep_detail(detail, plans)
    listing.answer(found, lambda console: tables.sweep(console, detail, plans), rows=found["leaders"])


def _show_trials(store: Store, sweep: str, listing: Listing) -> None:
    from kgen.evaluator.protocol import Status
    from kgen.store import queries
    from kgen.views import plain, tables

    if listing.status not in set(Status):
        raise click.UsageError(f"no candidate is {listing.status}: with a sweep --status is what candidates came to")
    trials = queries.of_status(store, sweep, Status(listing.status), listing.rows)
    reasons = queries.reasons(store, sweep, (trial.candidate for trial in trials))
    found = [plain.trial(trial, reasons[trial.candidate]) for trial in trials]
    listing.answer(found, lambda console: tables.trials(console, trials, reasons))


def _show_candidate(detail: CandidateDetail, source: bool, log: bool, listing: Listing) -> None:
    from kgen.paths import candidate_file
    from kgen.views import detail as view
    from kgen.views import plain, tables

    file = candidate_file(detail.id)
    if source:
        from kgen.views.console import console

        tables.source(console(), detail.source)
    elif log:
        click.echo(_log(detail))
    else:
        found = plain.candidate_detail(detail, file)
        listing.answer(found, lambda console: view.candidate(console, detail, file), rows=found["evaluations"])


def _log(detail: CandidateDetail) -> str:
    """The log of a candidate's latest evaluation or, where that is gone, of its build."""
    from kgen.paths import read_log

    if not detail.judgements:
        raise NotFoundError(f"candidate {detail.id[:SHORT]} was never evaluated")
    evaluation = detail.judgements[0].evaluation
    built = evaluation.build.log if evaluation.build else ""
    text = read_log(evaluation.log) or read_log(built)
    if text is None:
        raise NotFoundError(f"{evaluation.log or built or 'the log'}: the log file is not here")
    return text


@main.command()
@click.argument("problem", required=False)
@problem_options
@click.option("--accuracy", type=click.Choice(_ACCURACIES), help="Class of accuracy.  [default: the strictest swept]")
@click.option("--device", metavar="cpu|cuda|cuda:N", help="Results of this device only.  [default: the latest swept]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    default="report.html",
    show_default=True,
    help="Write the page to FILE.",
)
@db_option
def report(
    problem: str | None,
    overrides: Mapping[str, str],
    mode: str | None,
    accuracy: str | None,
    device: str | None,
    output: Path,
    db: str | None,
) -> None:
    """Write a page about PROBLEM, or about all problems.

    One file of HTML that opens without a network: who leads, speed against error, the best so far, what each
    parameter does, the roofline, what failed, and the winner's source. PROBLEM, accuracy and device are as in `best`.
    """
    from kgen import paths
    from kgen.cli import lookup
    from kgen.evaluator.protocol import Accuracy
    from kgen.report import page, sections

    if problem is None and (overrides or mode):
        raise click.UsageError("-D and --mode need a PROBLEM", click.get_current_context())
    paths.check_writable(output)
    gc.disable()  # a page is made of many small objects, and none is garbage before the end: a quarter of the time
    with _store(db) as store:
        chosen = None if problem is None else [lookup.find(store, problem, overrides, mode).id]
        wanted = Accuracy(accuracy) if accuracy else None
        text = page.render(sections.collect(store, problem_ids=chosen, accuracy=wanted, device=device), store.name)
    paths.write_whole(output, text)
    click.echo(f"written: {output} ({len(text.encode()) / 1e6:.1f} MB)")


@main.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8001,
    show_default=True,
    help="Serve on this port; 0 takes any that is free.",
)
@click.option("--open", "show", is_flag=True, help="Open it in the browser.")
@db_option
def browse(port: int, show: bool, db: str | None) -> None:
    """Serve the database to a browser on this machine.

    Datasette shows every table, answers SQL, and has queries to begin with. Nothing can be changed through it, and a
    sweep that goes on is neither blocked nor slowed: what it commits is seen at once. Of a PostgreSQL database, a
    snapshot is served. Ctrl-C ends it. Needs `pip install 'kgen[browse]'`.
    """
    from kgen.browse.server import serve

    def begun(address: str) -> None:
        click.echo(f"{address} (Ctrl-C ends it)")
        if show:
            click.launch(address)

    with _store(db) as store:
        serve(store, port, begun)


@main.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@listing_options()
def compare(a: str, b: str, listing: Listing) -> None:
    """Compare B with A: two sweeps, two candidates, or two environments.

    Each is named by its id, or by the beginning of it; `kgen show SWEEP` names the sweep's environment. B is faster,
    slower, the same, or one cannot tell: from raw samples, with the interval of how many times as fast it is. Of sweeps
    and environments the best are compared, the baselines, and the candidates that both timed (--limit).
    """
    from kgen.store import comparison, queries
    from kgen.views import plain, tables

    with _store(listing.db) as store:
        named = [queries.resolve(store, text, ("sweep", "candidate", "environment")) for text in (a, b)]
        (kind, first), (other_kind, second) = named
        if kind != other_kind:
            raise click.UsageError(f"{a} is a {kind} and {b} a {other_kind}: name two of the same")
        compared = {
            "sweep": comparison.sweeps,
            "candidate": comparison.candidates,
            "environment": comparison.environments,
        }[kind](store, first, second, listing.rows)
    rows = [plain.comparison(item) for item in compared]
    value = {"kind": kind, "a": first, "b": second, "comparisons": rows}
    names = [f"{kind} {text}" for text in (first, second)]
    listing.answer(value, lambda console: tables.comparisons(console, *names, compared), rows=rows)


@main.command()
@click.argument("query", required=False)
@click.option("--schema", is_flag=True, help="Print what the tables and their columns mean instead.")
@listing_options()
def sql(query: str | None, schema: bool, listing: Listing) -> None:
    """Ask the database one question in SQL.

    QUERY is one SELECT, or - to read it from standard input. The database is opened so that nothing can be changed.
    """
    from kgen.store import sql as asking
    from kgen.views import tables

    if schema:
        listing.answer(asking.schema(), lambda console: console.out(asking.schema_page()), rows=asking.columns())
        return
    if query is None:
        raise click.UsageError("name a QUERY, or --schema", click.get_current_context())
    text = sys.stdin.read() if query == "-" else query
    with _store(listing.db) as store, asking.ask(store, text) as answer:
        rows = list(islice(answer.rows, listing.limit))
    found = [dict(zip(answer.columns, row, strict=True)) for row in rows]
    listing.answer(found, lambda console: tables.answer(console, answer.columns, rows))


@main.command()
@click.argument("problem", required=False)
@click.option("--failed", is_flag=True, help="Drop only what failed in these sweeps, so that it may be tried again.")
@click.option("--even-best", is_flag=True, help="Drop sweeps that have the best of their problem, too.")
@click.option("--yes", is_flag=True, help="Drop it; else only show what would be dropped.")
@listing_options(*SWEEPS)
def prune(problem: str | None, failed: bool, even_best: bool, yes: bool, listing: Listing) -> None:
    """Drop sweeps and what belongs to nothing else, or the candidates that failed in them.

    Say which: those of PROBLEM, by --device, --status, --since and --before, or --failed for all of them. Nothing is
    dropped without --yes. Sweeps that run are never dropped; those with the best of their problem are kept.
    """
    from kgen import paths
    from kgen.cli import lookup
    from kgen.store import pruning
    from kgen.views import plain, tables

    if not (problem or failed or listing.given):
        raise click.UsageError("say what to drop: PROBLEM, a filter or --failed", click.get_current_context())
    with _store(listing.db) as store:
        name = lookup.problem_name(problem) if problem else None
        found = pruning.prune(store, name=name, among=listing.among, failed=failed, even_best=even_best, really=yes)
    if yes:
        paths.remove_files(found.candidates, found.logs)
    listing.answer(
        plain.pruned(found, yes),
        lambda console: tables.pruned(console, found, yes, listing.rows),
        rows=[found.rows],
    )
    if not yes and not found.nothing:
        click.echo("nothing was dropped yet: the same command with --yes does it", err=True)


@main.command("export-history")
@click.argument("problem", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE.  [default: stdout]")
@selection_options
def export_history(problem: str | None, output: Path | None, listing: Listing) -> None:
    """Write histories as JSON Lines, for `kgen import`.

    All of the database, or the sweeps of PROBLEM and of the filters, with everything that they name. What the lines
    hold is described in docs/history-format.md.
    """
    from kgen import paths
    from kgen.cli import lookup
    from kgen.store import exchange

    if output:
        paths.check_writable(output)
    with _store(listing.db) as store:
        name = lookup.problem_name(problem) if problem else None
        lines = (f"{line}\n" for line in exchange.export(store, name=name, among=listing.among))
        if output:
            paths.write_whole(output, lines)
        else:
            for line in lines:
                click.echo(line, nl=False)


@main.command("import")
@click.argument("path", metavar="FILE|DIR", type=click.Path(path_type=Path))
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def import_history(path: Path, db: str | None, as_json: bool) -> None:
    """Bring histories from FILE, or from all .json and .jsonl files in DIR, into the database.

    They come from `kgen export-history`. What is there already stays, so that importing twice changes nothing. Where
    one line is damaged, nothing at all is imported.
    """
    from kgen.store import Store, exchange
    from kgen.views import plain, tables
    from kgen.views.console import console

    files = exchange.files(path)
    with Store.open(db, notice=_tell) as store:
        imported = exchange.bring_in(store, files)
    if as_json:
        click.echo(plain.dumps({"files": [str(file) for file in files], **vars(imported)}))
    else:
        tables.imported(console(), imported)


@main.command()
@listing_options()
def problems(listing: Listing) -> None:
    """List the known problems with their sizes.

    These are named without a path: those in ./problems, then those that come with kgen.
    """
    from kgen.problem import problem_files, sizes
    from kgen.views import plain, tables

    files = dict(islice(problem_files().items(), listing.limit))
    found = {name: sizes(path.read_text(encoding="utf-8")) for name, path in files.items()}
    rows = [plain.problem_file(name, path, found[name]) for name, path in files.items()]
    listing.answer(rows, lambda console: tables.problem_files(console, files, found))


@main.command()
@listing_options()
def doctor(listing: Listing) -> int:
    """Check what this machine has and lacks.

    What is missing is listed with how to get it. Exit code 1: something is missing that kgen cannot do without.
    """
    from kgen.cli import doctor as checks
    from kgen.views import plain, tables

    found = checks.run(listing.db)[: listing.limit]
    listing.answer([plain.check(item) for item in found], lambda console: tables.checks(console, found))
    return 0 if all(item.ok for item in found if item.needed) else NO_SUCCESS
