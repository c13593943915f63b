"""``kgen render``: a candidate's text, or the loop programs of its kernels, without a run."""

from __future__ import annotations

import re
from typing import Mapping

import click

from kgen.candidate import SHORT
from kgen.cli.group import main
from kgen.cli.on_paper import capture_server
from kgen.cli.options import problem_options


def _parse_params(context: click.Context, option: click.Parameter, text: str) -> dict[str, int | str]:
    pairs = [pair.strip().partition("=") for pair in text.split(",") if pair.strip()]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise click.BadParameter(f"{name + equals + value!r} is not NAME=VALUE", context, option)
    return {name: int(value) if re.fullmatch(r"-?\d+", value) else value for name, _, value in pairs}


@main.command()
@click.argument("problem")
@problem_options
@click.option(
    "--arch", metavar="sm_90|cpu", help="Architecture of the kernels.  [default: this machine's GPU, else sm_90]"
)
@click.option(
    "--plan", "number", metavar="N", type=int, default=1, show_default=True, help="Number of a plan; see --plans."
)
@click.option(
    "--params", metavar="NAME=VALUE,...", default="", callback=_parse_params,
    help="Parameters of the kernels, as `kgen show` has them.  [default: the plainest]",
)  # fmt: skip
@click.option("--plans", "listed", is_flag=True, help="List the plans with their numbers instead.")
@click.option(
    "--program", "lowered", is_flag=True, help="Print the loop programs of the kernels, with their hashes, instead."
)
@click.option("--expr", "written", is_flag=True, help="Print the expressions of the kernels' values instead.")
def render(
    problem: str, overrides: Mapping[str, str], mode: str | None, dtype: str | None, arch: str | None, number: int,
    params: Mapping[str, int | str], listed: bool, lowered: bool, written: bool,
) -> None:  # fmt: skip
    """Print the text of a candidate for PROBLEM, without a run.

    PROBLEM is a file, or the name of a known problem. Plans are numbered in the order in which a sweep tries them. The
    command needs no GPU. PyTorch is taken with its default flags, so that a sweep may find another precision of
    convolutions than this command does.
    """
    from kgen.problems.problem import read_problem

    asked = read_problem(problem, overrides, mode, dtype)  # before the slow imports
    with capture_server() as server:
        from kgen.tuning.rendering import rendering  # while torch is loaded

        found = rendering(asked, arch, server)
    if listed:
        for place, name in enumerate(found.plans, 1):
            click.echo(f"{place:3}  {name}")
    elif lowered or written:
        from kgen.compiler.loops.canonical import digest
        from kgen.views.program import expressions, lines

        for kernel in found.kernels(number):
            click.echo(
                f"{kernel.kernel.name}: {kernel.label}, {kernel.mode} mode, program {digest(kernel.program)[:SHORT]}"
            )
            click.echo("".join(f"  {line}\n" for line in (lines if lowered else expressions)(kernel.program)))
    else:
        click.echo(found.candidate(number, params).source, nl=False)
