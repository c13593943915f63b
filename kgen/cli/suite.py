"""``kgen sweep`` with several problems: a suite, its progress, and its table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Sequence

import click

from kgen.cli.group import NO_SUCCESS, say
from kgen.cli.options import open_database
from kgen.errors import INTERRUPTED
from kgen.problems.problem_set import Member

if TYPE_CHECKING:
    from kgen.tuning.events import SuiteFinished
    from kgen.views.progress import Watch


def run_suite(
    members: Sequence[Member],
    ask: Callable[..., Any],
    *,
    at_once: int,
    cluster: str | None,
    db: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Sweep each of the problems, show what all of them came to, and return the exit code."""
    from kgen.tuning import suite
    from kgen.tuning.side_by_side import SideBySide
    from kgen.views import progress
    from kgen.views.console import console
    from kgen.views.suite_progress import SuiteLive

    watch = progress.JsonLines(click.echo) if as_json else progress.Watch() if quiet else SuiteLive(console())
    with watch:
        if cluster:
            finished, ask = _run_on(cluster, members, ask, watch)
        elif at_once > 1:
            with SideBySide(min(at_once, len(members))) as sweeps:
                finished = suite.run(members, ask, watch, sweeps)
        else:
            finished = suite.run(members, ask, watch)
    if not as_json:
        _show(members, ask, db)
    if finished.state == suite.INTERRUPTED:
        return say("interrupted; the same command goes on from here", INTERRUPTED)
    if finished.troubled:
        names = ", ".join(finished.troubled)
        return say(f"{len(finished.troubled)} of {finished.problems} were refused or failed: {names}", NO_SUCCESS)
    return 0


def _run_on(
    cluster: str, members: Sequence[Member], ask: Callable[..., Any], watch: Watch
) -> tuple[SuiteFinished, Callable[..., Any]]:
    """Sweep the problems beside each other on a cluster. Returns with them the requests' device type filled in."""
    from kgen.cluster.fleet import opened
    from kgen.cluster.suite import side_by_side
    from kgen.tuning import suite
    from kgen.tuning.events import Notice

    device = ask(problem=None).device
    with opened(cluster, device, lambda text: watch(Notice(text))) as (address, fleet):
        ask = partial(ask, device=fleet.device)
        with side_by_side(address, fleet, device, len(members), watch) as sweeps:
            return suite.run(members, ask, watch, sweeps), ask


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
