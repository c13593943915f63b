"""Commands about this machine: ``problems`` and ``doctor``."""

from __future__ import annotations

from itertools import islice

import click

from kgen.cli.group import NO_SUCCESS, main
from kgen.cli.listing import Listing, listing_options


@main.command()
@listing_options()
def problems(listing: Listing) -> None:
    """List the known problems with their sizes.

    Commands take these by name, without a path: the files in ./problems, then those that come with kgen.
    """
    from kgen.problems.problem import problem_files, sizes
    from kgen.views import plain, tables

    files = dict(islice(problem_files().items(), listing.limit))
    found = {name: sizes(path.read_text(encoding="utf-8")) for name, path in files.items()}
    rows = [plain.problem_file(name, path, found[name]) for name, path in files.items()]
    listing.answer(rows, lambda console: tables.problem_files(console, files, found))


@main.command()
@click.option("--cluster", metavar="ADDRESS", help="Check the nodes of a Ray cluster instead: auto or HOST:PORT.")
@listing_options()
def doctor(listing: Listing, cluster: str | None) -> int:
    """Check this machine for the parts that kgen uses, its optional extras included.

    Each missing part is listed with the way to get it. Exit code 1: a part is missing that every sweep needs. With
    --cluster, each node is listed with what it lacks. Exit code 1: no node can run a sweep.
    """
    from kgen.cli import doctor as checks
    from kgen.views import plain, tables

    found = (checks.run_on(cluster) if cluster else checks.run(listing.db))[: listing.limit]
    listing.answer([plain.check(item) for item in found], lambda console: tables.checks(console, found))
    return 0 if all(item.ok for item in found if item.needed) else NO_SUCCESS
