"""``kgen best``: the best candidate of a problem, shown and exported."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Mapping, Sequence

import click

from kgen.cli.group import NO_SUCCESS, main, say
from kgen.cli.listing import Listing, listing_options
from kgen.cli.options import ACCURACIES, kinds_of, open_database, origin_option, problem_options
from kgen.errors import DiskError, InputError, KgenError, NotFoundError

HUB = "hub"  #: the value of ``--to`` that names a layout by itself

if TYPE_CHECKING:
    from kgen.store import Database
    from kgen.store.results import BestRow
    from kgen.store.selection import Selection


@main.command()
@click.argument("problem", metavar="[PROBLEM|DIR]", required=False)
@problem_options
@click.option("--accuracy", type=click.Choice(ACCURACIES), help="Class of accuracy.  [default: the strictest swept]")
@origin_option
@click.option("--no-weight-copies", is_flag=True, help="Candidates of sweeps with --no-weight-copies alone.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Verify again, and write to FILE, or into DIR; `-` is stdout.",
)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--to",
    "package",
    metavar="hub DIR|FILE.json",
    help=(
        "Verify again, and write a package of Hugging Face's kernels into DIR, or a solution of FlashInfer-Trace to "
        "FILE.json."
    ),
)
@click.option(
    "--destinations",
    is_flag=True,
    help="With --to FILE.json: the solution writes into output tensors that it is given.",
)
@click.option(
    "--any", "any_right", is_flag=True, help="With -o or --to: write the best candidate even if it is not faster."
)
@listing_options("device", "since", "before")
def best(
    problem: str | None,
    overrides: Mapping[str, str],
    mode: str | None,
    dtype: str | None,
    accuracy: str | None,
    origin: str,
    no_weight_copies: bool,
    output: Path | None,
    folder: Path | None,
    package: str | None,
    destinations: bool,
    any_right: bool,
    listing: Listing,
) -> int:
    """Show the best candidate of each problem, of PROBLEM, or of those in DIR, on the device of its latest sweep.

    Speedups are over the fastest baseline, with their interval. With -o the winner is verified again in a fresh
    process and written to FILE, and its figures to FILE.json. With `-o -` the winner alone is printed. The winners of a
    folder are written into another folder, several at once. Candidates that kgen did not render count with --origin
    any. Exit code 1: nothing beats PyTorch, and --any is not given.
    """
    from kgen import paths
    from kgen.cli import lookup
    from kgen.problems.problem_set import is_set
    from kgen.protocol import Accuracy
    from kgen.store import ranking

    if problem is None and (overrides or mode or dtype or output or package):
        raise click.UsageError("-D, --mode, --dtype, -o and --to need a PROBLEM", click.get_current_context())
    if any_right and output is None and package is None:
        raise click.UsageError("--any needs -o FILE or --to", click.get_current_context())
    if destinations and (package is None or package == HUB):
        raise click.UsageError("--destinations needs --to FILE.json", click.get_current_context())
    target = _package_target(package, folder, output)
    among = replace(listing.among, weight_copies=not no_weight_copies)
    with open_database(listing.db) as database:
        if problem is not None and is_set([problem]):
            rows = _rows_of_folder(database, problem, overrides, mode, dtype, accuracy, among, kinds_of(origin))
            if target:
                raise click.UsageError("--to takes one PROBLEM, not a folder", click.get_current_context())
            code = _show_bests([row for row, _ in rows], listing)
            return code if output is None else _export_folder(database, rows, Path(problem), output, any_right, listing)
        chosen = None if problem is None else [lookup.find(database, problem, overrides, mode, dtype).id]
        wanted = Accuracy(accuracy) if accuracy else None
        rows = ranking.best(
            database, problem_ids=chosen, accuracy=wanted, among=among, limit=listing.limit, kinds=kinds_of(origin)
        )
        if problem is None:
            return _show_bests(rows, listing)
        if not rows:
            given = [
                *([f"--accuracy {accuracy}"] if accuracy else []),
                *(["--no-weight-copies"] if no_weight_copies else []),
                *listing.given,
            ]
            filters = " ".join(["", "with", *given] if given else [])
            raise NotFoundError(f"{problem} was never swept{filters}, into {database.name}: `kgen sweep` does it")
        code = _show_best(database, rows[0], None if output and paths.is_stdout(output) else listing)
        if output and rows[0].trial and (code == 0 or any_right):
            return _export(database, rows[0], output, listing)
        if target and rows[0].trial and (code == 0 or any_right):
            return _write_package(database, rows[0], target, package == HUB, destinations, listing)
        return code


def _package_target(package: str | None, folder: Path | None, output: Path | None) -> Path | None:
    """The folder or file that ``--to`` names; ``None`` without it. Raises ``UsageError`` where they do not go
    together."""
    context = click.get_current_context()
    if package is not None and output is not None:
        raise click.UsageError("-o and --to write different files: give one of them", context)
    if package is None or package != HUB:
        if folder is not None:
            raise click.UsageError(f"unexpected argument {str(folder)!r}: a second one goes with --to hub", context)
        if package is not None and not package.endswith(".json"):
            raise click.UsageError(f"--to takes `hub DIR` or a FILE.json, not {package!r}", context)
        return None if package is None else Path(package)
    if folder is None:
        raise click.UsageError("--to hub needs a DIR: kgen best PROBLEM --to hub DIR", context)
    return folder


def _rows_of_folder(
    database: Database, folder: str, overrides: Mapping[str, str], mode: str | None, dtype: str | None,
    accuracy: str | None, among: Selection, kinds: Sequence[str],
) -> list[tuple[BestRow, Path]]:  # fmt: skip
    """The bests of a folder's problems that were swept, with their files, in the order of the folder."""
    from kgen.cli import lookup
    from kgen.problems.problem_set import read_set
    from kgen.protocol import Accuracy
    from kgen.store import ranking

    wanted = Accuracy(accuracy) if accuracy else None
    found: list[tuple[BestRow, Path]] = []
    for member in read_set([folder], overrides, mode, dtype):
        if member.problem is None:
            continue
        try:
            chosen = lookup.find(database, str(member.path), overrides, mode, dtype)
        except NotFoundError:
            continue
        rows = ranking.best(database, problem_ids=[chosen.id], accuracy=wanted, among=among, kinds=kinds)
        found += [(row, member.path) for row in rows[:1]]
    if not found:
        raise NotFoundError(
            f"no problem in {folder} was swept with these options, into {database.name}: `kgen sweep {folder}` does it"
        )
    return found


def _export_folder(
    database: Database,
    rows: Sequence[tuple[BestRow, Path]],
    folder: Path,
    output: Path,
    any_right: bool,
    listing: Listing,
) -> int:
    """Write the winners of a folder's problems into another folder. Returns the exit code: 0 where all were
    verified."""
    from kgen.store import queries
    from kgen.tuning.export import Wanted, export_all

    if output.exists() and (not output.is_dir() or output.samefile(folder)):
        raise InputError(f"{output}: -o needs a folder of its own for the winners of {folder}: name another one")
    wanted = [
        Wanted(row, queries.problem(database, row.problem.id), output / path.with_suffix(".py").name)
        for row, path in rows
        if row.trial and (row.beats_baseline or any_right)
    ]
    if not wanted:
        return say(f"nothing beats PyTorch in {folder}: nothing is written", NO_SUCCESS)
    failed: list[str] = []

    def ended(one: Wanted, error: KgenError | None) -> None:
        if error is not None:
            failed.append(one.file.name)
        line = f"verified again and written: {one.file}" if error is None else f"{one.file.name}: {error}"
        click.echo(line, err=error is not None or listing.as_json or listing.as_csv)

    export_all(database, wanted, ended)
    if failed:
        return say(f"{len(failed)} of {len(wanted)} were not exported: {', '.join(failed)}", NO_SUCCESS)
    return 0


def _show_bests(rows: Sequence[BestRow], listing: Listing) -> int:
    from kgen.paths import candidate_file
    from kgen.views import plain, tables

    files = [candidate_file(row.trial.candidate) if row.trial else None for row in rows]
    found = [plain.best(row, file) for row, file in zip(rows, files, strict=True)]
    listing.answer(found, lambda console: tables.bests(console, rows))
    return 0 if any(row.beats_baseline for row in rows) else NO_SUCCESS


def _show_best(database: Database, row: BestRow, listing: Listing | None) -> int:
    """Show it where there is a ``listing``. Returns the exit code."""
    from kgen.paths import write_candidate
    from kgen.store import queries
    from kgen.views import plain, tables

    file = None
    if row.trial:
        with contextlib.suppress(DiskError):  # a home that cannot be written is shown, too
            file = write_candidate(row.trial.candidate, queries.source(database, row.trial.candidate))
    found = plain.best(row, file)
    if listing:
        listing.answer(found, lambda console: tables.best(console, row, file), rows=[found])
    return 0 if row.beats_baseline else say(_why_not_better(database, row), NO_SUCCESS)


def _export(database: Database, row: BestRow, output: Path, listing: Listing) -> int:
    """Verify the candidate again and write it; says so where it is not faster. Returns the exit code."""
    from kgen import paths
    from kgen.store import queries
    from kgen.tuning.export import export

    ordinary = paths.is_ordinary(output)
    export(database, row, queries.problem(database, row.problem.id), output)
    figures = f", with its figures in {output}.json" if ordinary else ""
    caution = "" if row.beats_baseline else "; it is right, but not proven faster than PyTorch"
    line = f"verified again and written: {output}{figures}{caution}"
    click.echo(line, err=listing.as_json or listing.as_csv or not ordinary)
    return 0


def _write_package(
    database: Database, row: BestRow, target: Path, is_hub: bool, destinations: bool, listing: Listing
) -> int:
    """Verify the candidate again and write a package of it. Returns the exit code."""
    from kgen.store import queries
    from kgen.tuning import packages
    from kgen.tuning.export import verify

    problem = queries.problem(database, row.problem.id)
    if is_hub:
        packages.check_hub(problem, target)
    else:
        packages.check_solution(problem, target, destinations)
    found = verify(database, row, problem)
    files = (
        {target / path: text for path, text in packages.hub(found).items()}
        if is_hub
        else {target: packages.solution(found, destinations)}
    )
    packages.write(files)
    caution = "" if row.beats_baseline else "; it is right, but not proven faster than PyTorch"
    click.echo(f"verified again and written: {target}{caution}", err=listing.as_json or listing.as_csv)
    return 0


def _why_not_better(database: Database, row: BestRow) -> str:
    """The reason why a best candidate is no winner."""
    from kgen.store import queries
    from kgen.store.scores import without_winner

    title = f"{row.problem.title}, {row.problem.mode} mode"
    if row.trial is None:
        found = queries.sweep(database, row.sweep, leaders=1)
        verdict, reason = without_winner(found, kernel_right=False)
        return f"{title}: {verdict}: {reason}; more: kgen show {row.sweep}"
    if not row.trial.final:
        return f"{title}: only screened so far: run `kgen sweep` to its end to time the leaders beside PyTorch"
    if row.trial.too_busy:
        return f"{title}: the machine was too busy to tell whether anything beats PyTorch ({row.trial.baseline})"
    how = "as fast" if (row.trial.speedup_high or 0.0) >= 1.0 else "slower"
    return f"{title}: nothing beats PyTorch ({row.trial.baseline}): the best kernel is {how}"
