"""``kgen best``: the best candidate of a problem, shown and exported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Mapping, Sequence

import click

from kgen.cli.group import NO_SUCCESS, main, say
from kgen.cli.listing import Listing, listing_options
from kgen.cli.options import ACCURACIES, open_database, problem_options
from kgen.errors import NotFoundError

if TYPE_CHECKING:
    from kgen.store import Database
    from kgen.store.results import BestRow


@main.command()
@click.argument("problem", required=False)
@problem_options
@click.option("--accuracy", type=click.Choice(ACCURACIES), help="Class of accuracy.  [default: the strictest swept]")
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
    with open_database(listing.db) as database:
        chosen = None if problem is None else [lookup.find(database, problem, overrides, mode).id]
        wanted = Accuracy(accuracy) if accuracy else None
        rows = queries.best(database, problem_ids=chosen, accuracy=wanted, among=listing.among, limit=listing.limit)
        if problem is None:
            return _show_bests(rows, listing)
        if not rows:
            given = [*([f"--accuracy {accuracy}"] if accuracy else []), *listing.given]
            filters = " ".join(["", "with", *given] if given else [])
            raise NotFoundError(f"{problem} was never swept{filters}, into {database.name}: `kgen sweep` does it")
        return _show_best(database, rows[0], output, listing)


def _show_bests(rows: Sequence[BestRow], listing: Listing) -> int:
    from kgen.paths import candidate_file
    from kgen.views import plain, tables

    files = [candidate_file(row.trial.candidate) if row.trial else None for row in rows]
    found = [plain.best(row, file) for row, file in zip(rows, files, strict=True)]
    listing.answer(found, lambda console: tables.bests(console, rows))
    return 0 if any(row.beats_baseline for row in rows) else NO_SUCCESS


def _show_best(database: Database, row: BestRow, output: Path | None, listing: Listing) -> int:
    from kgen.paths import write_candidate
    from kgen.store import queries
    from kgen.views import plain, tables

    file = write_candidate(row.trial.candidate, queries.source(database, row.trial.candidate)) if row.trial else None
    found = plain.best(row, file)
    listing.answer(found, lambda console: tables.best(console, row, file), rows=[found])
    if not row.beats_baseline:
        return say(_why_not_better(row), NO_SUCCESS)
    if output:
        from kgen.tuning.export import export

        export(database, row, queries.problem(database, row.problem.id), output)
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
