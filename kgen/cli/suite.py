"""``kgen sweep`` with several problems: a suite, its progress, and its table."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import click

from kgen.cli.group import INTERRUPTED, NO_SUCCESS, say
from kgen.cli.options import open_database
from kgen.problem_set import Member


def run_suite(members: Sequence[Member], ask: Callable[..., Any], *, db: str | None, as_json: bool, quiet: bool) -> int:
    """Sweep each of the problems, show what all of them came to, and return the exit code."""
    from kgen.tuning import suite
    from kgen.views import progress
    from kgen.views.console import console
    from kgen.views.suite_progress import SuiteLive

    watch = progress.JsonLines(click.echo) if as_json else progress.Watch() if quiet else SuiteLive(console())
    with watch:
        finished = suite.run(members, ask, watch)
    if not as_json:
        _show(members, ask, db)
    if finished.state == suite.INTERRUPTED:
        return say("interrupted; the same command goes on from here", INTERRUPTED)
    if finished.troubled:
        names = ", ".join(finished.troubled)
        return say(f"{len(finished.troubled)} of {finished.problems} were refused or failed: {names}", NO_SUCCESS)
    return 0


def _show(members: Sequence[Member], ask: Callable[..., Any], db: str | None) -> None:
    """The scores of the suite on its device, in its class of accuracy."""
    from kgen.store import scores
    from kgen.store.selection import Selection
    from kgen.tuning.attempts import device_names
    from kgen.views import score_table
    from kgen.views.console import console

    request = ask(problem=next(member.problem for member in members if member.problem))
    among = Selection(device=device_names(request.device))
    with open_database(db) as database:
        found = scores.of_files(database, members, accuracy=request.accuracy, among=among)
    score_table.show(console(), found, scores.summary(found))
