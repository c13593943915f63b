"""``kgen tune``: a user's template, tuned on a problem by the search, the evaluator and the store of sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

import click

from kgen.cli.group import main
from kgen.cli.listing import db_option
from kgen.cli.options import ORIGINS, check_accuracy, judging_options, problem_options
from kgen.cli.sweep import STRATEGIES, sweep_ended, watching


@main.command()
@click.argument("template", metavar="KERNEL.cu.j2", type=click.Path(path_type=Path))
@click.option("--problem", required=True, metavar="PROBLEM", help="The problem: a file, or the name of a known one.")
@problem_options
@judging_options
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="Try at most N candidates, the control among them; two at least.",
)
@click.option(
    "--time", "seconds", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="End after about SECONDS."
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES[:-1]),
    help="How candidates are chosen.  [default: exhaustive if the budget allows, else additive]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the strategy's random choices.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Compile N candidates in parallel.")
@click.option("--fresh", is_flag=True, help="Start over: do not continue an earlier run or reuse its results.")
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print each event as one line of JSON, as `kgen sweep` does.")
@click.option("-q", "--quiet", is_flag=True, help="Print the table at the end only.")
def tune(
    template: Path,
    problem: str,
    overrides: Mapping[str, str],
    mode: str | None,
    dtype: str | None,
    device: str | None,
    accuracy: str,
    baselines: tuple[str, ...],
    budget: int | None,
    seconds: float | None,
    strategy: str | None,
    seed: int,
    jobs: int | None,
    fresh: bool,
    db: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Tune your own kernel: try the parameters of a Jinja2 template on PROBLEM.

    KERNEL.cu.j2 is text for CUDA, KERNEL.cpp.j2 for C++. KERNEL.py beside it has SPACE, the values of each parameter,
    and class ModelNew. KERNEL.py.j2 is a whole file instead. Template and space run in this process. Candidates are
    judged as strictly as files from outside. `kgen history` lists them, and `kgen best --origin any` counts them in.

    After Ctrl-C or a kill, the same command continues. Exit code 1: nothing beats PyTorch, or no candidate was right.
    """
    from kgen.problems.problem import read_problem
    from kgen.protocol import Accuracy

    check_accuracy(dtype, accuracy)
    asked = read_problem(problem, overrides, mode, dtype)

    from kgen.candidate import Trust
    from kgen.tuning import own_template
    from kgen.tuning.opening import SweepRequest
    from kgen.tuning.sweep import run

    found = own_template.read(template)
    request = SweepRequest(
        asked,
        device=device,
        accuracy=Accuracy(accuracy),
        budget=budget,
        seconds=seconds,
        strategy=strategy,
        seed=seed,
        jobs=jobs,
        baselines=baselines,
        fresh=fresh,
        db=db,
        kind="tune",
        trust=Trust.FOREIGN,
        template=found.identity,
    )
    with watching(as_json, quiet) as watch:
        run(request, watch, design_of=own_template.design_of(found))
    return sweep_ended(watch.tally, asked, problem, db, as_json, ORIGINS[1])
