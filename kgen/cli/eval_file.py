"""``kgen eval``: judge a file that kgen did not write."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

import click

from kgen.cli.group import NO_SUCCESS, main, tell
from kgen.cli.listing import db_option
from kgen.cli.options import check_accuracy, judging_options, problem_options

CACHES = ("cold", "warm")


@main.command("eval")
@click.argument("problem")
@click.argument("file", type=click.Path(path_type=Path))
@problem_options
@judging_options
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time a right file beside the baselines for about SECONDS.  [default: 20 on a GPU, 12 on the CPU]",
)
@click.option(
    "--cache",
    type=click.Choice(CACHES),
    default="cold",
    show_default=True,
    help="State of the device's cache before each timed call: flushed, or as the call before left it.",
)
@click.option("--profile", is_flag=True, help="Label the share of time in the file's own kernels.")
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON; notices go to stderr.")
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
def evaluate(
    problem: str,
    file: Path,
    overrides: Mapping[str, str],
    mode: str | None,
    dtype: str | None,
    device: str | None,
    accuracy: str,
    baselines: tuple[str, ...],
    seconds: float | None,
    cache: str,
    profile: bool,
    db: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Judge the class ModelNew of FILE against PROBLEM.

    FILE may come from a person, a language model or another tool. It is built, compared with float64, timed beside
    PyTorch, and stored. Each call judges it anew. `kgen history` lists it, and `kgen best` leaves it out. Exit code 1:
    its status is not ok.

    \b
    With --json the object has
      status, reason, phase, accuracy, error_ratio, errors (by input distribution and output), labels,
      coverage (share of the time in own kernels), operators_replaced (share of the problem's operators), log,
      median_ms, speedup, speedup_low, speedup_high, verdict (faster, slower, same, cannot tell), baseline,
      baselines (name to ms), prepare_ms, conditions, seconds (by phase), file, candidate, evaluation, sweep,
      problem, mode, overrides, problem_id, health, device, environment
    """
    from kgen.problems.problem import read_problem
    from kgen.protocol import Accuracy

    check_accuracy(dtype, accuracy)
    asked = read_problem(problem, overrides, mode, dtype)  # before the slow imports

    from kgen.tuning import eval_file
    from kgen.views import plain, progress, tables
    from kgen.views.console import console

    request = eval_file.EvalRequest(
        problem=asked,
        file=str(file),
        source=eval_file.read_source(file),
        device=device,
        accuracy=Accuracy(accuracy),
        baselines=baselines,
        seconds=seconds,
        cache=cache,
        profile=profile,
        db=db,
    )
    watch = progress.Watch() if quiet else progress.Notices(tell) if as_json else progress.Steps(console())
    with watch:
        judged = eval_file.run(request, watch)
    if as_json:
        click.echo(plain.dumps(plain.judged(judged)))
    else:
        tables.judged(console(), judged)
    return 0 if judged.ok else NO_SUCCESS
