"""Commands that read the history: ``history``, ``show``, ``compare`` and ``sql``."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Sequence

import click

from kgen.candidate import SHORT
from kgen.cli.group import main
from kgen.cli.listing import SWEEPS, Listing, listing_options
from kgen.cli.options import open_database
from kgen.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from kgen.store import Database
    from kgen.store.results import CandidateDetail, SweepDetail, Trial
    from kgen.store.tasks import StepRow


@main.command()
@click.argument("problem", required=False)
@click.option("--tasks", is_flag=True, help="List the kernel tasks of networks, those that take longest first.")
@listing_options(*SWEEPS)
def history(problem: str | None, tasks: bool, listing: Listing) -> None:
    """List the sweeps and the files that `kgen eval` judged, the latest first.

    PROBLEM selects those of one name, at all sizes and in all modes. With --tasks, filters select the sweeps whose
    kernel tasks are listed.
    """
    from kgen.cli import lookup
    from kgen.store import queries
    from kgen.views import plain, tables

    with open_database(listing.db) as database:
        name = lookup.problem_name(problem) if problem else None
        if tasks:
            return _list_tasks(database, name, listing)
        rows = queries.sweeps(database, name=name, among=listing.among, limit=listing.rows)
        if name and not rows and not queries.problems(database, name=name):
            raise NotFoundError(f"{problem} was never swept, nor a file judged on it, into {database.name}")
    listing.answer([plain.sweep_row(row) for row in rows], lambda console: tables.sweeps(console, rows))


def _list_tasks(database: Database, name: str | None, listing: Listing) -> None:
    from kgen.store import tasks
    from kgen.views import tasks as view

    rows = tasks.listed(database, name=name, among=listing.among, limit=listing.rows)
    listing.answer([view.plain_task(row) for row in rows], lambda console: view.listed(console, rows))


@main.command()
@click.argument("identity", metavar="SWEEP|CANDIDATE")
@click.option("--source", is_flag=True, help="Print the candidate's source only.")
@click.option("--log", is_flag=True, help="Print the log of the candidate's latest evaluation only.")
@listing_options("status")
def show(identity: str, source: bool, log: bool, listing: Listing) -> None:
    """Show one sweep or candidate in full.

    Name it by its id, or by the beginning of the id. With --status, list the candidates of a sweep with this status
    (ok, wrong_values, ...). A candidate of a network lists its kernel tasks, with their times and shares. CSV has the
    leaders of a sweep, or the evaluations of a candidate.
    """
    from kgen.store import queries, tasks

    with open_database(listing.db) as database:
        kind, name = queries.resolve(database, identity)
        if kind == "candidate":
            if listing.status:
                raise click.UsageError(f"{identity} is a candidate: --status needs a sweep")
            _show_candidate(queries.candidate(database, name), tasks.steps(database, name), source, log, listing)
        elif source or log:
            raise click.UsageError(f"{identity} is a sweep: --source and --log need a candidate")
        elif listing.status:
            _show_trials(database, name, listing)
        else:
            detail = queries.sweep(database, name, leaders=listing.rows)
            _show_sweep(detail, queries.timed(database, [name]), listing)


def _show_sweep(detail: SweepDetail, right: Sequence[Trial], listing: Listing) -> None:
    from kgen.store import effects
    from kgen.views import plain, tables

    plans = effects.plans(right, detail.row.best)
    found = plain.sweep_detail(detail, plans)
    listing.answer(found, lambda console: tables.sweep(console, detail, plans), rows=found["leaders"])


def _show_trials(database: Database, sweep: str, listing: Listing) -> None:
    from kgen.protocol import Status
    from kgen.store import queries
    from kgen.views import plain, tables

    if listing.status not in set(Status):
        raise click.UsageError(f"{listing.status} is no status of a candidate, which --status selects in a sweep")
    trials = queries.of_status(database, sweep, Status(listing.status), listing.rows)
    reasons = queries.reasons(database, sweep, (trial.candidate for trial in trials))
    found = [plain.trial(trial, reasons[trial.candidate]) for trial in trials]
    listing.answer(found, lambda console: tables.trials(console, trials, reasons))


def _show_candidate(
    detail: CandidateDetail, steps: Sequence[StepRow], source: bool, log: bool, listing: Listing
) -> None:
    from kgen.paths import candidate_file
    from kgen.views import detail as view, plain, tables, tasks

    file = candidate_file(detail.id)
    if source:
        from kgen.views.console import console

        tables.source(console(), detail.source)
    elif log:
        click.echo(_log(detail))
    else:
        found = {**plain.candidate_detail(detail, file), "tasks": [tasks.plain_step(step) for step in steps]}
        listing.answer(found, lambda console: view.candidate(console, detail, file, steps), rows=found["evaluations"])


def _log(detail: CandidateDetail) -> str:
    """The log of a candidate's latest evaluation; the log of its build where the other is gone."""
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
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@listing_options()
def compare(a: str, b: str, listing: Listing) -> None:
    """Compare B with A: two sweeps, two candidates, or two environments.

    Name each by its id, or by the beginning of the id. `kgen show SWEEP` shows the environment of a sweep. The verdict
    on B (faster, slower, the same, too close to tell) and its interval come from raw samples. For sweeps and
    environments, the best are compared, the baselines, and the candidates that both timed (--limit).
    """
    from kgen.store import comparison, queries
    from kgen.views import plain, tables

    with open_database(listing.db) as database:
        named = [queries.resolve(database, text, ("sweep", "candidate", "environment")) for text in (a, b)]
        (kind, first), (other_kind, second) = named
        if kind != other_kind:
            raise click.UsageError(f"{a} is a {kind} and {b} a {other_kind}: name two of the same")
        compared = {
            "sweep": comparison.sweeps,
            "candidate": comparison.candidates,
            "environment": comparison.environments,
        }[kind](database, first, second, listing.rows)
    rows = [plain.comparison(item) for item in compared]
    value = {"kind": kind, "a": first, "b": second, "comparisons": rows}
    names = [f"{kind} {text}" for text in (first, second)]
    listing.answer(value, lambda console: tables.comparisons(console, *names, compared), rows=rows)


def _from_stdin() -> str:
    """The text of standard input. Raises :class:`InputError` for bytes that are not UTF-8."""
    try:
        text = sys.stdin.read()
        text.encode()  # some locales read other bytes as surrogates
    except UnicodeError:
        raise InputError("standard input is not UTF-8 text") from None
    return text


@main.command()
@click.argument("query", required=False)
@click.option("--schema", is_flag=True, help="Print the meaning of all tables and columns instead.")
@listing_options()
def sql(query: str | None, schema: bool, listing: Listing) -> None:
    """Ask the database one question in SQL.

    QUERY is one SELECT, or - to read it from standard input. The database is opened read-only. A table that is too
    wide for the terminal is printed row by row.
    """
    from kgen.store import sql as asking
    from kgen.views import tables

    if schema:
        listing.answer(asking.schema(), lambda console: console.out(asking.schema_page()), rows=asking.columns())
        return
    if query is None:
        raise click.UsageError("name a QUERY, or --schema", click.get_current_context())
    text = _from_stdin() if query == "-" else query
    with open_database(listing.db) as database, asking.ask(database, text) as answer:
        rows = list(islice(answer.rows, listing.limit))
    found = [dict(zip(answer.columns, row, strict=True)) for row in rows]
    listing.answer(found, lambda console: tables.answer(console, answer.columns, rows))
