"""``kgen agent``: candidates that a language model, a folder or an enumeration proposes, judged and kept."""

from __future__ import annotations

from typing import Mapping

import click

from kgen.cli.group import NO_SUCCESS, main, say, tell
from kgen.cli.listing import db_option
from kgen.cli.options import check_accuracy, judging_options, problem_options
from kgen.cli.sweep import STRATEGIES


@main.command()
@click.argument("problem")
@click.option("--model", metavar="NAME", help="The language model to ask.")
@click.option(
    "--url",
    metavar="URL",
    help="The server, which speaks OpenAI's protocol; by default OPENAI_BASE_URL. Nothing else is sent data.",
)
@click.option(
    "--proposer",
    metavar="NAME",
    default="model",
    show_default=True,
    help="Who proposes: model, folder, enumeration, search, or an entry point.",
)
@click.option("--folder", metavar="FOLDER", help="The files of the proposer folder.")
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES[:-1]),
    default="additive",
    show_default=True,
    help="The strategy of the proposer search.",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), metavar="N", default=8, show_default=True, help="Ask at most N times."
)
@click.option("--budget", type=click.IntRange(min=1), metavar="N", help="Judge at most N proposals.")
@click.option("--no-stream", is_flag=True, help="Take each reply in one piece.")
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time the best beside the baselines for about SECONDS.  [default: 20 on a GPU, 12 on the CPU]",
)
@problem_options
@judging_options
@click.option("--fresh", is_flag=True, help="Start over: do not continue an earlier run.")
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print each verdict, and the end, as one line of JSON.")
def agent(
    problem: str,
    model: str | None,
    url: str | None,
    proposer: str,
    folder: str | None,
    strategy: str,
    rounds: int,
    budget: int | None,
    no_stream: bool,
    seconds: float | None,
    overrides: Mapping[str, str],
    mode: str | None,
    dtype: str | None,
    device: str | None,
    accuracy: str,
    baselines: tuple[str, ...],
    fresh: bool,
    db: str | None,
    as_json: bool,
) -> int:
    """Have a language model propose kernels for PROBLEM, and judge them.

    A proposal is a file with class ModelNew, judged as strictly as files from outside. It may also be a choice among
    kgen's own plans and parameters, which kgen renders. Prompts, replies, tokens and verdicts are kept in the database.
    The key comes from OPENAI_API_KEY, and is kept nowhere. `kgen best --origin any` counts proposals in.

    After Ctrl-C, a kill or a fault of the server, the same command continues. Exit code 1: no proposal beats PyTorch.
    Asking a model needs `pip install 'kgen[agent]'`.
    """
    from kgen.problems.problem import read_problem
    from kgen.protocol import Accuracy

    check_accuracy(dtype, accuracy)
    asked = read_problem(problem, overrides, mode, dtype)

    from kgen.agent import proposer as proposers
    from kgen.agent.client import shown
    from kgen.agent.run import AgentRequest, run
    from kgen.views import plain

    settings = proposers.Settings(
        model=model, url=url, folder=folder, strategy=strategy, stream=not no_stream, notice=tell
    )
    request = AgentRequest(
        asked,
        proposer,
        model or "",
        shown(url or ""),
        rounds,
        budget,
        device,
        Accuracy(accuracy),
        baselines,
        seconds,
        fresh,
        db,
    )

    def told(number: int, verdict: proposers.Verdict) -> None:
        found = {
            "number": number,
            "language": verdict.proposal.language,
            **{k: v for k, v in vars(verdict).items() if k != "proposal"},
        }
        if as_json:
            click.echo(plain.dumps({"event": "verdict", **found}, indent=None))
        else:
            figures = (
                f"{verdict.ms:.4g} ms" + (f", {verdict.speedup:.3g}x" if verdict.speedup else "")
                if verdict.ms is not None
                else verdict.reason
            )
            click.echo(
                f"{number:4}  {verdict.proposal.language:5} {(verdict.candidate or '-')[:12]:12}  {verdict.status:14} "
                f"{' '.join(figures.split())[:160]}"
            )

    ended = run(request, lambda: proposers.make(proposer, settings), told, tell)
    if as_json:
        speedup = vars(ended.speedup) if ended.speedup else None
        click.echo(
            plain.dumps(
                {"event": "finished", **vars(ended), "speedup": speedup, "beats_baseline": ended.beats_baseline},
                indent=None,
            )
        )
    elif ended.best and ended.speedup:
        click.echo(
            f"best {ended.best[:12]}: {ended.ms:.4g} ms, {ended.speedup.mid:.3f}x [{ended.speedup.low:.3f}, "
            f"{ended.speedup.high:.3f}] over {ended.baseline}"
        )
    if not ended.beats_baseline:
        return say(f"no proposal beats PyTorch; more: kgen show {ended.sweep}", NO_SUCCESS)
    if not as_json:
        click.echo(f"write it to a file: kgen best {problem} --origin any -o {asked.name}_fast.py")
    return 0
