"""Options that several commands share, and the database of the ``--db`` option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence, TypeVar

import click

from kgen.cli.group import tell

if TYPE_CHECKING:
    from kgen.store import Database

Command = TypeVar("Command", bound=Callable[..., Any])

MODES = ("train", "eval", "both")
DTYPES = ("float32", "bfloat16", "float16")
ACCURACIES = ("pytorch", "fp32", "tf32", "kernelbench")
ORIGINS = ("own", "any")
BASELINES = ("eager", "compile", "compile-max-autotune")
KNOWN_BASELINES = (*BASELINES, "compile-reduce-overhead")


def open_database(db: str | None) -> Database:
    """The existing database, opened. Raises :class:`kgen.errors.NotFoundError` where there is none."""
    from kgen.store import Database

    return Database.open(db, notice=tell, create=False)


def problem_options(function: Command) -> Command:
    """The options that select a problem, beside its file or name."""
    function = click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        help="Convert the model and its floating inputs.  [default: as constructed]",
    )(function)
    function = click.option(
        "--mode", type=click.Choice(MODES), help="Mode of the model.  [default: as constructed, which is train]"
    )(function)
    return click.option(
        "-D",
        "overrides",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_parse_overrides,
        help="Replace a module-level constant of the problem's file; repeatable.",
    )(function)


def origin_option(function: Command) -> Command:
    """The option that counts candidates in which kgen did not render."""
    return click.option(
        "--origin", type=click.Choice(ORIGINS), default=ORIGINS[0], show_default=True,
        help="Whose candidates count: kgen's own, or any, with those of eval, tune and agent.",
    )(function)  # fmt: skip


def weight_copies_option(function: Command) -> Command:
    """The option that leaves out candidates which keep a weight in another form beside it."""
    return click.option(
        "--weight-copies/--no-weight-copies",
        default=True,
        help=(
            "Whether candidates may keep packed, split or folded weights beside these; without, peak memory is "
            "PyTorch's.  [default: may]"
        ),
    )(function)


def kinds_of(origin: str) -> Sequence[str]:
    """The kinds of sweeps whose candidates count."""
    from kgen.store import models

    return models.OWN_KINDS if origin == ORIGINS[0] else models.KINDS


def _parse_overrides(context: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise click.BadParameter(f"{name + equals + value!r} is not NAME=VALUE", context, option)
    return {name.strip(): value for name, _, value in pairs}


def check_accuracy(dtype: str | None, accuracy: str) -> None:
    """Raise where half precision is asked for in another class of accuracy than ``pytorch``."""
    if dtype in DTYPES[1:] and accuracy != ACCURACIES[0]:
        raise click.UsageError(
            f"--accuracy {accuracy} is for float32: {dtype} is judged by PyTorch's own error, --accuracy "
            f"{ACCURACIES[0]}",
            click.get_current_context(),
        )


def _parse_baselines(context: click.Context, option: click.Parameter, value: str) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in KNOWN_BASELINES:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(KNOWN_BASELINES)}", context, option)
    if "eager" not in names:
        raise click.BadParameter("eager has to be among them", context, option)
    return tuple(name for name in KNOWN_BASELINES if name in names)


def judging_options(function: Command) -> Command:
    """The options of commands that judge candidates: device, accuracy class and baselines."""
    function = click.option(
        "--baselines",
        metavar="NAMES",
        default=",".join(BASELINES),
        show_default=True,
        callback=_parse_baselines,
        help="Baselines of PyTorch to compare with; fewer take less time to prepare.",
    )(function)
    function = click.option(
        "--accuracy",
        type=click.Choice(ACCURACIES),
        default="pytorch",
        show_default=True,
        help="Class of accuracy: the errors that a right candidate may have.",
    )(function)
    return click.option(
        "--device", metavar="cpu|cuda|cuda:N", help="Where to run.  [default: CUDA if there is one, else the CPU]"
    )(function)
