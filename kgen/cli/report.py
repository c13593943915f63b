"""Commands that show the history in a browser: ``report`` and ``browse``."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Mapping

import click

from kgen.cli.group import main
from kgen.cli.listing import db_option
from kgen.cli.options import ACCURACIES, kinds_of, open_database, origin_option, problem_options


@main.command()
@click.argument("problem", required=False)
@problem_options
@click.option("--accuracy", type=click.Choice(ACCURACIES), help="Class of accuracy.  [default: the strictest swept]")
@click.option("--device", metavar="cpu|cuda|cuda:N", help="Results of this device only.  [default: the latest swept]")
@origin_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    default="report.html",
    show_default=True,
    help="Write the page to FILE; `-` is stdout.",
)
@db_option
def report(
    problem: str | None,
    overrides: Mapping[str, str],
    mode: str | None,
    dtype: str | None,
    accuracy: str | None,
    device: str | None,
    origin: str,
    output: Path,
    db: str | None,
) -> None:
    """Write a page about PROBLEM, or about all problems.

    One file of HTML that opens without a network. It shows the leaders, speed against error, the best so far and the
    effects of parameters. It also shows the roofline, the failures, and the winner's source. PROBLEM, accuracy and
    device are as in `best`.
    """
    from kgen import paths
    from kgen.cli import lookup
    from kgen.protocol import Accuracy
    from kgen.store import scores
    from kgen.store.selection import Selection
    from kgen.views.report import page, sections

    if problem is None and (overrides or mode or dtype):
        raise click.UsageError("-D, --mode and --dtype need a PROBLEM", click.get_current_context())
    paths.check_writable(output)
    gc.disable()  # many small objects, none of them garbage before the end: saves a quarter of the time
    with open_database(db) as database:
        chosen = None if problem is None else [lookup.find(database, problem, overrides, mode, dtype).id]
        wanted = Accuracy(accuracy) if accuracy else None
        found = sections.collect(database, problem_ids=chosen, accuracy=wanted, device=device, kinds=kinds_of(origin))
        among = Selection(device=device)
        together = scores.of_database(database, accuracy=wanted, among=among) if problem is None else ()
        text = page.render(found, database.name, together)
    paths.write_whole(output, text)
    size = len(text.encode()) / 1e6
    click.echo(f"written: {output} ({size:.1f} MB)", err=not paths.is_ordinary(output))


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

    Datasette shows every table, answers SQL, and has prepared queries. It cannot change the database. A running sweep
    is neither blocked nor slowed, and its results appear at once. For a PostgreSQL database, a snapshot is served.
    Ctrl-C ends it. Needs `pip install 'kgen[browse]'`.
    """
    from kgen.views.report.browse import serve

    def begun(address: str) -> None:
        click.echo(f"{address} (Ctrl-C ends it)")
        if show:
            click.launch(address)

    with open_database(db) as database:
        serve(database, port, begun)
