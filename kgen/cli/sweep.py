"""``kgen sweep``: one run of the loop over one problem, or over each problem of a suite."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Mapping

import click

from kgen.cli.group import NO_SUCCESS, main, say
from kgen.cli.listing import db_option
from kgen.cli.options import (
    ORIGINS,
    check_accuracy,
    judging_options,
    open_database,
    problem_options,
    weight_copies_option,
)
from kgen.errors import INTERRUPTED

if TYPE_CHECKING:
    from kgen.problems.problem import Problem
    from kgen.store.results import SweepDetail
    from kgen.tuning.events import Finished
    from kgen.tuning.opening import SweepRequest
    from kgen.views.progress import Tally, Watch

#: As in :data:`kgen.tuning.search.STRATEGIES`, known here without the search.
STRATEGIES = ("exhaustive", "random", "coordinate", "additive", "tpe", "tasks")


@main.command()
@click.argument("problems", metavar="PROBLEM|DIR...", nargs=-1, required=True)
@problem_options
@judging_options
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="Try at most N candidates, the control among them; two at least.",
)
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End the sweep, final timing included, after about SECONDS. From 30 on, the rest is cut then.",
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    help="How candidates are chosen.  [default: tasks for a network, exhaustive if the budget allows, else additive]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the strategy's random choices.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Compile N candidates in parallel.")
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Sweep N problems of a suite beside each other. Their timings take turns.",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Sweep on a Ray cluster: auto, HOST:PORT, or local:N for N nodes on this machine.",
)
@click.option("--fresh", is_flag=True, help="Start over: do not continue an earlier sweep or reuse its results.")
@weight_copies_option
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print each event as one line of JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print the table at the end only.")
def sweep(
    problems: tuple[str, ...],
    overrides: Mapping[str, str],
    mode: str | None,
    dtype: str | None,
    device: str | None,
    accuracy: str,
    budget: int | None,
    seconds: float | None,
    strategy: str | None,
    seed: int,
    jobs: int | None,
    baselines: tuple[str, ...],
    at_once: int,
    cluster: str | None,
    fresh: bool,
    weight_copies: bool,
    db: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Try fusion plans and parameters for PROBLEM.

    PROBLEM is a file, or the name of a known problem. Every result is kept in the database.

    Several problems, or the .py files of a folder, are a suite. kgen sweeps them one after the other or --at-once N,
    each with --budget and --time of its own. A refused or failed problem does not end the suite. `kgen scores` shows
    all results.

    After Ctrl-C or a kill, the same command continues. Exit code 1: nothing beats PyTorch, or no candidate was right. A
    suite ends with 0 if all its problems have verdicts, and with 1 if some were refused or failed.

    --device also takes several GPUs of one model, such as cuda:0,cuda:1, or cuda:all. The candidates are shared among
    them, and the leaders are timed again on the first.

    With --cluster, --device is a kind of its nodes: cpu, cuda, or a part of a GPU's name. One problem is shared among
    all devices of the kind. The problems of a suite are swept beside each other.

    \b
    With --json each line is one object; "event" is one of
      step       text
      started    sweep, problem, mode, device, environment, accuracy, plans, combinations, budget, found_done
      notice     text
      cluster    nodes, devices, busy
      measured   baselines (name to ms), device
      built      candidate, ok, cached, seconds
      tuning     number, of, label, seconds_left: a network's kernel that is tuned now
      evaluated  number, candidate, plan, steps, params, status, reason, error_ratio, median_ms, speedup, device, ...
      finals     candidates
      finished   sweep, state, seconds, counts, leaders, best, beats_baseline
    and of a suite, around those of each sweep,
      suite_started    problems, ended (under the same command before), seconds (for each problem), db
      problem_started  number, problems, problem, path
      problem_ended    number, problems, problem, path, outcome, verdict, ms, speedup, reason, seconds, sweep, ...
      suite_finished   state, seconds, problems, counts, troubled (refused or failed)
    Events of problems that are swept beside each other have a number_in_suite.
    """
    from kgen.problems import problem_set
    from kgen.problems.problem import read_problem
    from kgen.protocol import Accuracy

    # Bad input is refused before the slow imports.
    check_accuracy(dtype, accuracy)
    suite = problem_set.is_set(problems)
    if at_once > 1 and (cluster or not suite):
        why = "the cluster's devices say how many" if cluster else "one problem is no suite"
        raise click.UsageError(f"--at-once {at_once}: {why}; leave it out", click.get_current_context())
    if suite:
        members = problem_set.read_set(problems, overrides, mode, dtype)
    else:
        asked = read_problem(problems[0], overrides, mode, dtype)

    from kgen.tuning.events import Later
    from kgen.tuning.opening import SweepRequest, ahead

    ask = partial(
        SweepRequest,
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
        weight_copies=weight_copies,
    )
    if suite:
        from kgen.cli.suite import run_suite

        return run_suite(members, ask, at_once=at_once, cluster=cluster, db=db, as_json=as_json, quiet=quiet)
    request = ask(problem=asked)
    if cluster:
        with watching(as_json, quiet) as watch:
            _run_on(cluster, request, watch)
    else:
        told = Later()
        with (
            ahead(request, told) as devices,
            watching(as_json, quiet) as watch,
        ):  # the slow imports, while processes start
            from kgen.tuning.sweep import run

            told.tell(watch)
            run(request, watch, devices)
    return sweep_ended(watch.tally, asked, problems[0], db, as_json)


def watching(as_json: bool, quiet: bool) -> Watch:
    from kgen.views import progress
    from kgen.views.console import console

    return progress.JsonLines(click.echo) if as_json else progress.Watch() if quiet else progress.Live(console())


def _run_on(cluster: str, request: SweepRequest, watch: Watch) -> None:
    """Run a sweep on all devices of one kind of a cluster."""
    from kgen.cluster.devices import open_devices
    from kgen.cluster.fleet import opened
    from kgen.tuning.events import Notice
    from kgen.tuning.sweep import run

    with opened(cluster, request.device, lambda text: watch(Notice(text))) as (_, fleet):
        run(replace(request, device=fleet.device), watch, open_devices(fleet, fleet.kind.devices))


def sweep_ended(
    tally: Tally, problem: Problem, reference: str, db: str | None, as_json: bool, origin: str = ORIGINS[0]
) -> int:
    """Print the result of a sweep and the next command; returns the exit code."""
    from kgen.store import queries
    from kgen.views import tables
    from kgen.views.console import console

    finished = tally.finished
    if finished is None:
        return say("interrupted before anything was tried", INTERRUPTED)
    with open_database(db) as database:
        detail = queries.sweep(database, finished.sweep, leaders=1)
    if not as_json:
        tables.sweep_ended(console(), finished, detail)
    if finished.state == "interrupted":
        return say("interrupted; the same command goes on from here", INTERRUPTED)
    if not finished.beats_baseline:
        return say(f"{_why_no_winner(finished, detail)}; more: kgen show {finished.sweep}", NO_SUCCESS)
    if not as_json:
        click.echo(f"write the winner to a file: {_export_command(problem, reference, db, origin)}")
    return 0


def _why_no_winner(finished: Finished, detail: SweepDetail) -> str:
    """The reason why a sweep has no winner, with the verdict in front."""
    from kgen.store.scores import without_winner

    best = next((row for row in finished.leaders if row.candidate and row.candidate == finished.best), None)
    if best is None or best.speedup_low is None or best.speedup_high is None:
        verdict, reason = without_winner(detail, kernel_right=best is not None)
        return f"{verdict}: {reason}"
    figures = f"{best.speedup:.3g}x, between {best.speedup_low:.3g}x and {best.speedup_high:.3g}x"
    if best.too_busy:
        return f"the machine was too busy to tell whether anything beats PyTorch here ({figures})"
    if best.speedup_high >= 1.0:
        return f"the same: the best kernel is as fast as PyTorch ({figures})"
    return f"the best kernel is slower than PyTorch ({figures}): nothing beats PyTorch here"


def _export_command(problem: Problem, reference: str, db: str | None, origin: str) -> str:
    """The command that writes the winner to a file."""
    from kgen.store.connections import shown

    words = ["kgen", "best", reference]
    words += [word for name, value in problem.sizes for word in ("-D", f"{name}={value!r}")]
    words += ["--dtype", problem.dtype] if problem.dtype else []
    words += ["--mode", problem.asked_mode] if problem.asked_mode else []
    words += ["--db", db if "://" not in db else shown(db)] if db else []
    words += ["--origin", origin] if origin != ORIGINS[0] else []
    return shlex.join([*words, "-o", f"{problem.name}_fast.py"])
