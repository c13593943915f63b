"""The options of listing commands: the format (table, JSON or CSV), the database, filters, and the number of rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from kgen.store.selection import Selection

Command = TypeVar("Command", bound=Callable[..., Any])

ROWS = 20  #: rows of a long listing without --limit

#: The filters that select sweeps.
SWEEPS = ("device", "status", "since", "before")

_AGES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class Listing:
    """The options of one listing command. ``limit`` is the most rows to show; ``None`` stands for an absent option."""

    as_json: bool
    as_csv: bool
    db: str | None
    limit: int | None
    device: str | None = None
    status: str | None = None
    since: datetime | None = None
    before: datetime | None = None

    @property
    def rows(self) -> int:
        """The most rows of a long listing."""
        return self.limit or ROWS

    @property
    def among(self) -> Selection:
        """The selected sweeps."""
        from kgen.store.selection import Selection

        return Selection(self.device, self.status, self.since, self.before)

    @property
    def given(self) -> list[str]:
        """The given filters, as a person types them."""
        values = {name: getattr(self, name) for name in SWEEPS}
        return [f"--{name} {value}" for name, value in values.items() if value is not None]

    def answer(
        self, value: Any, table: Callable[[Console], None], rows: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Print ``value``, made by :mod:`kgen.views.plain`, in the requested format.

        ``rows`` are the rows of CSV for a value that is no list.
        """
        if self.as_json or self.as_csv:
            from kgen.views import plain

            click.echo(plain.csv(value if rows is None else rows) if self.as_csv else plain.dumps(value))
        else:
            from kgen.views.console import console

            table(console())


def listing_options(*filters: str) -> Callable[[Command], Command]:
    """The options of all listing commands, with those of ``filters``; the command receives them as ``listing``."""

    def decorate(function: Command) -> Command:
        @_json_option
        @_csv_option
        @db_option
        @_limit_option
        @wraps(function)
        def command(as_json: bool, as_csv: bool, db: str | None, limit: int | None, **rest: Any) -> Any:
            if as_json and as_csv:
                raise click.UsageError("--json and --csv exclude each other", click.get_current_context())
            chosen = {name: rest.pop(name) for name in filters}
            return function(listing=Listing(as_json, as_csv, db, limit, **chosen), **rest)

        return _with_filters(command, filters)  # type: ignore[return-value]

    return decorate


def selection_options(function: Command) -> Command:
    """The options of a command that takes sweeps and lists nothing: the database, and the filters of sweeps."""

    @db_option
    @wraps(function)
    def command(db: str | None, **rest: Any) -> Any:
        chosen = {name: rest.pop(name) for name in SWEEPS}
        return function(listing=Listing(False, False, db, None, **chosen), **rest)

    return _with_filters(command, SWEEPS)  # type: ignore[return-value]


def _with_filters(command: Callable[..., Any], filters: Sequence[str]) -> Callable[..., Any]:
    for name in reversed(filters):
        command = _FILTERS[name](command)
    return command


def db_option(function: Command) -> Command:
    """The option that names a database."""
    text = "Database, as a path or a URL.  [default: $KGEN_DB, or kgen.db in ./runs or $KGEN_HOME]"
    return click.option("--db", metavar="URL", help=text)(function)


def parse_moment(text: str, now: datetime) -> datetime:
    """A date, a date with a time, or an age before ``now``: ``2026-11-20``, ``2026-11-20T15:00``, ``12h``, ``7d``.

    A date without a zone is local time. Raises ``ValueError`` for any other text.
    """
    age = re.fullmatch(r"(\d{1,5})([mhdw])", text)
    if age:
        return now - timedelta(**{_AGES[age[2]]: int(age[1])})
    return datetime.fromisoformat(text).astimezone()


def _parse_moment(context: click.Context, option: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        return parse_moment(value, datetime.now().astimezone())
    except (ValueError, OverflowError):
        message = f"{value!r} is neither a date such as 2026-11-20 or 2026-11-20T15:00, nor an age such as 12h or 7d"
        raise click.BadParameter(message, context, option) from None


def _parse_status(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from kgen.protocol import Status

    known = (*SWEEP_STATES, *(status.value for status in Status))
    if value not in known:
        raise click.BadParameter(f"{value!r} is not one of {', '.join(known)}", context, option)
    return value


#: The same as :data:`kgen.store.selection.STATES`, known here without the import of SQLAlchemy.
SWEEP_STATES = ("running", "finished", "interrupted", "failed")

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
_csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table.")
_limit_option = click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show at most N rows.")

_FILTERS: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "device": click.option("--device", metavar="cpu|cuda|cuda:N", help="Only sweeps on this device."),
    "status": click.option(
        "--status",
        metavar="STATUS",
        callback=_parse_status,
        help="Only sweeps in this state (running, finished, interrupted, failed), or with a candidate of this status "
        "(ok, wrong_values, crashed, ...).",
    ),
    "since": click.option(
        "--since",
        metavar="DATE",
        callback=_parse_moment,
        help="Only sweeps that began at DATE (2026-11-20, 12h, 7d) or later.",
    ),
    "before": click.option(
        "--before", metavar="DATE", callback=_parse_moment, help="Only sweeps that began before DATE."
    ),
}
