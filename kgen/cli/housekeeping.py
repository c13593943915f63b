"""Commands that change or move histories: ``prune``, ``export-history`` and ``import``."""

from __future__ import annotations

from pathlib import Path

import click

from kgen.cli.group import main, tell
from kgen.cli.listing import SWEEPS, Listing, db_option, listing_options, selection_options
from kgen.cli.options import open_database


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
    with open_database(listing.db) as database:
        name = lookup.problem_name(problem) if problem else None
        lines = (f"{line}\n" for line in exchange.export(database, name=name, among=listing.among))
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
