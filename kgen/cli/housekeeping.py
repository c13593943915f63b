"""Commands that change or move histories: ``prune``, ``export-history`` and ``import``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Iterable, Mapping

import click

from kgen.cli.group import main, tell
from kgen.cli.listing import SWEEPS, Listing, db_option, listing_options, selection_options
from kgen.cli.options import open_database
from kgen.errors import NotFoundError


@main.command()
@click.argument("problem", required=False)
@click.option("--failed", is_flag=True, help="Drop only the failed candidates, so that they may be tried again.")
@click.option("--even-best", is_flag=True, help="Drop sweeps that have the best of their problem, too.")
@click.option("--yes", is_flag=True, help="Drop it; without this, only show it.")
@listing_options(*SWEEPS)
def prune(problem: str | None, failed: bool, even_best: bool, yes: bool, listing: Listing) -> None:
    """Drop sweeps and all that belongs to them alone, or their failed candidates.

    Select sweeps by PROBLEM, --device, --status, --since and --before, or --failed for all of them. Nothing is dropped
    without --yes. A running sweep is never dropped. A sweep with the best of its problem is kept.
    """
    from kgen import paths
    from kgen.cli import lookup
    from kgen.store import pruning
    from kgen.views import plain, tables

    if not (problem or failed or listing.given):
        raise click.UsageError("say what to drop: PROBLEM, a filter or --failed", click.get_current_context())
    with open_database(listing.db) as database:
        name = lookup.problem_name(problem) if problem else None
        found = pruning.prune(database, name=name, among=listing.among, failed=failed, even_best=even_best, really=yes)
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
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    default="-",
    help="Write to FILE; `-` is stdout.  [default: -]",
)
@selection_options
def export_history(problem: str | None, output: Path, listing: Listing) -> None:
    """Write histories as JSON Lines, for `kgen import`.

    The whole database, or the sweeps of PROBLEM and of the filters, with all rows that they name. The page
    docs/history-format.md describes the lines. The number of rows is printed to stderr.
    """
    from kgen import paths
    from kgen.cli import lookup
    from kgen.store import exchange

    paths.check_writable(output)
    counts: Counter[str] = Counter()
    with open_database(listing.db) as database:
        name = lookup.problem_name(problem) if problem else None
        lines: Iterable[str] = (
            f"{line}\n" for line in exchange.export(database, name=name, among=listing.among, counts=counts)
        )
        if problem:
            lines = list(lines)  # before the first is written, so that a name without history writes none
            if not counts.total():
                raise NotFoundError(f"{problem} was never swept, nor a file judged on it, into {database.name}")
        paths.write_whole(output, lines)
    tell(f"wrote {_counted(counts)}, to {'stdout' if paths.is_stdout(output) else output}")


def _counted(counts: Mapping[str, int]) -> str:
    """The size of a history in words."""
    named = {"sweep": "sweeps", "candidate": "candidates", "evaluation": "evaluations"}
    parts = [f"{counts.get(table, 0)} {words}" for table, words in named.items()]
    return ", ".join([*parts, f"{sum(counts.values())} rows in all"])


@main.command("import")
@click.argument("path", metavar="FILE|DIR", type=click.Path(path_type=Path))
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def import_history(path: Path, db: str | None, as_json: bool) -> None:
    """Read histories from FILE, or from all .json and .jsonl files in DIR, into the database.

    `kgen export-history` writes such files. Existing rows stay, so that a second import changes nothing. One damaged
    line stops the whole import, and nothing is written.
    """
    from kgen.store import Database, exchange
    from kgen.views import plain, tables
    from kgen.views.console import console

    files = exchange.files(path)
    with Database.open(db, notice=tell) as database:
        imported = exchange.bring_in(database, files)
    if as_json:
        click.echo(plain.dumps({"files": [str(file) for file in files], **vars(imported)}))
    else:
        tables.imported(console(), imported)
