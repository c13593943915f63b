"""``kgen scores``: the results of problems, each and together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Mapping

import click

from kgen.cli.group import main
from kgen.cli.listing import Listing, listing_options
from kgen.cli.options import ACCURACIES, open_database, problem_options
from kgen.errors import NotFoundError

if TYPE_CHECKING:
    from kgen.protocol import Accuracy
    from kgen.store import Database
    from kgen.store.scores import Score


@main.command()
@click.argument("problems", metavar="[PROBLEM|DIR]...", nargs=-1)
@problem_options
@click.option("--accuracy", type=click.Choice(ACCURACIES), help="Class of accuracy.  [default: the strictest swept]")
@listing_options("device", "since", "before")
def scores(
    problems: tuple[str, ...],
    overrides: Mapping[str, str],
    mode: str | None,
    dtype: str | None,
    accuracy: str | None,
    listing: Listing,
) -> None:
    """Show the result of each problem, and of all of them together.

    PROBLEM is a file, a known name, or a name in the database. DIR means all .py files in it. The default is every
    problem in the database.

    The verdict is faster, same or slower if the interval of the speedup lies above 1, holds 1 or lies below 1. Without
    a timed kernel of its own it is nothing to try, not judged in time, none right, refused, failed or not swept. The
    speedup is that of the best right candidate with a kernel of its own. The score fast_p is KernelBench's: the share
    of all problems that are right and over p times as fast as eager.

    \b
    With --json the object has
      problems  problem, verdict, ms, speedup (over the fastest baseline), speedup_low, speedup_high, over_eager,
                baselines (name to ms), error_ratio, accuracy, plan, steps, reason
      summary   problems, right, fast_1, geomean, geomean_over_eager
    """
    from kgen.protocol import Accuracy
    from kgen.store import scores as scoring
    from kgen.views import plain, score_table

    if not problems and (overrides or mode or dtype):
        raise click.UsageError("-D, --mode and --dtype need a PROBLEM", click.get_current_context())
    wanted = Accuracy(accuracy) if accuracy else None
    with open_database(listing.db) as database:
        found = _found(database, problems, overrides, mode, dtype, wanted, listing)
    total = scoring.summary(found)
    shown = found[: listing.limit]
    listing.answer(
        plain.scores(shown, total),
        lambda console: score_table.show(console, shown, total),
        rows=[plain.score(item) for item in shown],
    )


def _found(
    database: Database,
    problems: tuple[str, ...],
    overrides: Mapping[str, str],
    mode: str | None,
    dtype: str | None,
    accuracy: Accuracy | None,
    listing: Listing,
) -> tuple[Score, ...]:
    """The scores asked for: of the whole database, of one name that only the database has, or of files."""
    from kgen.problems.problem_set import read_set
    from kgen.store import scores as scoring

    if not problems:
        found = scoring.of_database(database, accuracy=accuracy, among=listing.among)
        if not found:
            raise NotFoundError(
                f"nothing was swept with these options, into {database.name}: `kgen sweep PROBLEM` does it"
            )
        return found
    if len(problems) == 1 and not overrides and mode is None and dtype is None and not Path(problems[0]).exists():
        found = scoring.of_database(database, name=problems[0], accuracy=accuracy, among=listing.among)
        if found:
            return found
    members = read_set(problems, overrides, mode, dtype)
    return scoring.of_files(database, members, accuracy=accuracy, among=listing.among)
