"""``kgen plan``: what kgen could do for a problem, without running anything."""

from __future__ import annotations

import gc
import json
from typing import Mapping

import click

from kgen.cli.group import main
from kgen.cli.options import problem_options


@main.command()
@click.argument("problem")
@problem_options
@click.option(
    "--arch", metavar="sm_90|cpu", help="Predict for this architecture.  [default: that of this machine's GPU, else sm_90]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def plan(problem: str, overrides: Mapping[str, str], mode: str | None, arch: str | None, as_json: bool) -> None:
    """Show what kgen could do for PROBLEM, without running anything.

    PROBLEM is a file, or the name of a known one. The page has the captured operators, the best few plans with their
    kernels and library calls, the reason of each library call, bytes, operations, and the time that the limits of the
    device allow. The command needs no GPU, and no memory for the problem's tensors.

    Times are predictions for PyTorch's default flags. In JSON, "library_calls" lists the operators that the best plan
    leaves to the library, one entry for each node.
    """
    from kgen import paths
    from kgen.machine import keep_bytecode
    from kgen.problem import read_problem

    asked = read_problem(problem, overrides, mode)  # before anything that takes time to import
    keep_bytecode(paths.bytecode())
    gc.disable()  # torch is imported and a graph is made: many small objects, of which none is garbage before the end

    from kgen.tuning.plan import plan as planned
    from kgen.views import plan as view
    from kgen.views.console import console

    found = planned(asked, arch)
    if as_json:
        click.echo(json.dumps(view.plain(found), indent=2))
    else:
        view.page(console(), found)
