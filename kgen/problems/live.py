"""Live modules as problems: a module of the user's program, exported with its inputs.

module, inputs ── export (the batch free where forward allows) ──> program ── exported.source_of ──> Problem
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

from kgen.errors import CaptureError, DiskError
from kgen.problems import exported
from kgen.problems.problem import Problem

if TYPE_CHECKING:
    import torch

#: Flags of torch that change results, by attribute, with torch's defaults: a problem's text sets others.
FLAGS = {"backends.cudnn.allow_tf32": True, "backends.cuda.matmul.allow_tf32": False}

_LARGEST = 1 << 31  # a bound of a size above it is no bound of the forward


def problem_of(module: "torch.nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> Problem:
    """A live module as a problem, under torch's present flags. Raises :class:`CaptureError`."""
    program = program_of(module, args, kwargs)
    title = re.sub(r"\W+", "_", name).strip("_") or "module"
    source = exported.source_of(program, title, (tuple(args), kwargs), flags())
    return Problem(title, f"{title}{exported.SUFFIX}", source)


def save(module: "torch.nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any], file: Path) -> None:
    """Write a live module with its weights and inputs to a file that ``torch.export.load`` reads.

    Raises :class:`CaptureError` where the module cannot be a problem, and :class:`DiskError` where the file cannot be
    written.
    """
    import torch

    program = program_of(module, args, kwargs)
    exported.source_of(program, file.stem)
    try:
        with _quiet():
            torch.export.save(program, file)
    except OSError as error:
        raise DiskError(f"{file}: cannot be written: {error.strerror or error}") from error
    except RuntimeError as error:  # of torch's writer of archives
        raise DiskError(f"{file}: cannot be written: {' '.join(str(error).split())[:200]}") from error


def program_of(module: "torch.nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The exported program of a module, without gradients; the first size of its inputs is free where forward allows
    it.

    A tensor that is given twice is exported as two: another call may give two. Raises :class:`CaptureError`, one line,
    where ``torch.export`` refuses the forward.
    """
    args, kwargs = _distinct(tuple(args), dict(kwargs))
    with contextlib.suppress(Exception):  # arguments of any class, and forwards that ask for the batch
        free = _free_batch(module, args, kwargs)
        if free is not None and _takes_any_batch(program := _export(module, args, kwargs, free)):
            return program
    try:
        return _export(module, args, kwargs, None)
    except Exception as error:
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
        raise CaptureError(
            f"{type(module).__name__}: torch.export raised {type(error).__name__}: {text[:240]}"
        ) from error


def _distinct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with a copy wherever a tensor comes again: export would take both for one."""
    import torch
    import torch.utils._pytree as pytree

    seen: set[int] = set()

    def distinct(x: torch.Tensor) -> torch.Tensor:
        again = id(x) in seen
        seen.add(id(x))
        return x.detach().clone() if again else x

    try:
        return pytree.tree_map_only(torch.Tensor, distinct, (args, kwargs))
    except Exception:  # containers that torch cannot take apart, which export will refuse
        return args, kwargs


def flags() -> dict[str, bool]:
    """The flags of torch that differ from its defaults, by attribute."""
    import torch

    try:
        found = {
            "backends.cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
            "backends.cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        }
    except RuntimeError as error:  # they were set in torch's newer way, which has no answer in the older one
        raise CaptureError(f"flags of torch cannot be read: {' '.join(str(error).split())[:200]}") from error
    return {name: value for name, value in found.items() if value != FLAGS[name]}


def batch_of(leaves: Sequence[Any]) -> int | None:
    """The first size of the first tensor, which is taken for the batch; ``None`` without one."""
    import torch

    return next((int(x.shape[0]) for x in leaves if isinstance(x, torch.Tensor) and x.dim()), None)


def _export(module: "torch.nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Any) -> Any:
    import torch

    with torch.no_grad(), _quiet():
        return torch.export.export(module, tuple(args), dict(kwargs), strict=False, dynamic_shapes=shapes)


def _free_batch(module: "torch.nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The shapes for export, in which sizes like the batch are free; ``None`` where there are none."""
    import torch
    import torch.utils._pytree as pytree

    batch = batch_of(pytree.tree_leaves((tuple(args), dict(kwargs))))
    if batch is None or batch < 2:  # export takes a size of one for a constant
        return None

    def shape(x: Any) -> Any:
        return {0: torch.export.Dim.AUTO} if isinstance(x, torch.Tensor) and x.dim() and x.shape[0] == batch else None

    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    return pytree.tree_map(shape, dict(bound.arguments))


def _takes_any_batch(program: Any) -> bool:
    """Whether a program with free sizes holds for all of them."""
    nodes = (n for module in program.graph_module.modules() if hasattr(module, "graph") for n in module.graph.nodes)
    bounded = any(r.lower > 2 or r.upper < _LARGEST for r in program.range_constraints.values())
    return not bounded and not any("_assert_scalar" in str(n.target) or "sym_constrain" in str(n.target) for n in nodes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warnings and log lines: its errors say enough."""
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
