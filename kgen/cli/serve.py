"""``kgen serve``: judge candidates that others send over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from kgen.cli.group import main, tell
from kgen.cli.listing import db_option


@main.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Listen on this address; others than loopback need a token."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8002,
    show_default=True,
    help="Listen on this port; 0 takes any that is free.",
)
@click.option(
    "--device",
    metavar="NAMES",
    help="Judge on these devices: cpu, cuda, or cuda:0,cuda:1.  [default: CUDA if there is one, else the CPU]",
)
@click.option(
    "--tokens",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Tokens of clients, one a line. KGEN_TOKEN adds one more.",
)
@click.option(
    "--problems",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    multiple=True,
    help="Let requests name the problem files of FOLDER, too; repeatable.",
)
@click.option("--accept-problems", is_flag=True, help="Let requests bring texts of problems, which run in the sandbox.")
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    metavar="N",
    default=1024,
    show_default=True,
    help="Accept at most N evaluations ahead.",
)
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True, max=60),
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    help="Time a right candidate beside the baselines for about SECONDS; below 1, in 10 sample blocks and not 20.",
)
@click.option(
    "--evaluators",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep N problems' evaluators and baselines ready on each device.  [default: 1 on a GPU, 2 on the CPU]",
)
@db_option
def serve(
    host: str,
    port: int,
    device: str | None,
    tokens: Path | None,
    problems: tuple[Path, ...],
    accept_problems: bool,
    queue: int,
    seconds: float,
    evaluators: int | None,
    db: str | None,
) -> None:
    """Judge candidates that clients send over HTTP.

    Every candidate is judged as `kgen eval` judges a file. An accepted evaluation is kept in the database, and gets one
    answer, whatever happens to the service. SIGTERM and Ctrl-C finish what runs; the next service goes on with the
    rest. The page /docs lists all requests. Needs `pip install 'kgen[serve]'`.
    """
    from kgen.errors import ExtraError

    try:
        from kgen.serve import server
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "h11"):
            raise
        raise ExtraError("kgen serve needs Starlette and uvicorn: pip install 'kgen[serve]'") from error

    options = server.Options(
        host=host,
        port=port,
        devices=tuple(filter(None, map(str.strip, (device or "").split(",")))),
        tokens=tokens,
        problems=problems,
        accepts_texts=accept_problems,
        queue=queue,
        seconds=seconds,
        evaluators=evaluators,
        db=db,
    )
    server.serve(options, lambda address: click.echo(f"{address} (Ctrl-C ends it)"), tell)
