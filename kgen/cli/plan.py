"""``kgen plan``: predictions for a problem, without a run."""

from __future__ import annotations

import json
from typing import Mapping

import click

from kgen.cli.group import main
from kgen.cli.on_paper import capture_server
from kgen.cli.options import problem_options, weight_copies_option


@main.command()
@click.argument("problem")
@problem_options
@click.option(
    "--arch", metavar="sm_90|cpu", help="Architecture of the prediction.  [default: this machine's GPU, else sm_90]"
)
@weight_copies_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def plan(
    problem: str,
    overrides: Mapping[str, str],
    mode: str | None,
    dtype: str | None,
    arch: str | None,
    weight_copies: bool,
    as_json: bool,
) -> None:
    """Predict the best plans for PROBLEM, without a run.

    PROBLEM is a file, or the name of a known problem. The answer has the captured operators and the best few plans,
    with their kernels, their library calls, and the reason of each call. It also has bytes, operations, and the time
    that the limits of the device allow. The command needs no GPU, and no memory for the problem's tensors.

    Times are predictions for PyTorch's default flags. In JSON, "library_calls" lists the operators that the best plan
    leaves to the library, one entry for each node.
    """
    from kgen.problems.problem import read_problem

    asked = read_problem(problem, overrides, mode, dtype)  # before the slow imports
    with capture_server() as server:
        from kgen.tuning.plan import plan as planned  # while torch is loaded

        found = planned(asked, arch, server, weight_copies=weight_copies)
    from kgen.views import plan as view
    from kgen.views.console import console

    if as_json:
        click.echo(json.dumps(view.plain(found), indent=2))
    else:
        view.page(console(), found)
