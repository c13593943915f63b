"""The functions that ``import kgen`` offers. This module imports no torch: each function does, when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Sequence

if TYPE_CHECKING:
    import torch


def optimize(
    module: "torch.nn.Module",
    inputs: "torch.Tensor | Sequence[Any]",
    *,
    kwargs: Mapping[str, Any] | None = None,
    minutes: float = 5.0,
    sizes: "Sequence[torch.Tensor | Sequence[Any] | Mapping[Any, Any]]" = (),
    accuracy: str = "pytorch",
    modules: str | Sequence[str] = "auto",
    device: str | None = None,
    db: str | None = None,
    cached_only: bool = False,
    weight_copies: bool = True,
    progress: bool = True,
) -> "torch.nn.Module":
    """A module that computes what ``module`` computes, faster where kgen has proven that, and never another result.

    The result shares the parameters and buffers of ``module``, and has its class, hooks, modes and state dict. It runs
    kgen's kernels for calls like those given here, without gradients; any batch is like them where ``forward`` takes
    any. All other calls run the module's own ``forward``: with gradients, under autocast, with other shapes or dtypes,
    after a change of the module. ``.kgen`` of the result is a :class:`kgen.optimized.report.Report`.

    ``inputs`` are the arguments of ``forward`` (one tensor, or a sequence), ``kwargs`` those by name. ``sizes`` are
    further ``inputs`` with other shapes, or ranges as ``torch.export`` takes them (``{1: Dim("length", min=64,
    max=512)}``): both ends of a range are such shapes. The search takes about ``minutes``, unless the store has this
    module already. ``cached_only=True`` never searches. ``accuracy`` is a class of accuracy: ``pytorch``, ``fp32`` or
    ``tf32``. ``modules`` is ``"whole"`` (the module as one problem), ``"auto"`` (else its submodules that take the
    time), or paths of submodules. ``weight_copies=False`` leaves out kernels that keep a weight in another form beside
    it, so that peak memory is PyTorch's. ``device`` is a check only: the device of the inputs is used. ``db`` names a
    database, as ``--db`` does.

    Raises PyTorch's own error where the module does not take the inputs, and :class:`kgen.errors.KgenError` for other
    faults. ``module`` then stays as it was.
    """
    import torch

    from kgen.errors import InputError
    from kgen.optimized.calls import call_of
    from kgen.optimized.dims import calls_of, has_dims
    from kgen.optimized.found import Options
    from kgen.optimized.optimize import optimize as optimized
    from kgen.protocol import Accuracy

    if not isinstance(module, torch.nn.Module):
        raise InputError(f"optimize() takes a torch.nn.Module, not a {type(module).__name__}")
    try:
        wanted = Accuracy(accuracy)
    except ValueError:
        raise InputError(f"accuracy={accuracy!r} is none of {', '.join(Accuracy)}") from None
    if isinstance(modules, str) and modules not in ("auto", "whole"):
        raise InputError(f"modules={modules!r} is neither 'auto' nor 'whole': give paths of submodules as a list")
    if not isinstance(modules, str):
        known = {name for name, _ in module.named_modules()}
        missing = next((name for name in modules if name not in known), None)
        if missing is not None:
            raise InputError(f"modules: {missing!r} is no submodule of {type(module).__name__}")
        modules = tuple(modules)
    first = call_of(inputs, kwargs)
    calls = [first]
    for given in sizes:
        calls += calls_of(given, first, module.forward) if has_dims(given) else [call_of(given, kwargs)]

    def tell(text: str) -> None:
        if progress:
            print(f"kgen: {text}", file=sys.stderr)

    with torch.inference_mode(False), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        return optimized(
            module,
            calls,
            Options(minutes, wanted, modules, device, db, cached_only, weight_copies=weight_copies, tell=tell),
        )


def save_problem(
    module: "torch.nn.Module", inputs: Sequence[Any], file: str | Path, *, kwargs: Mapping[str, Any] | None = None
) -> None:
    """Save a module with its inputs as a problem: an exported program that ``kgen sweep FILE`` takes.

    ``inputs`` are the arguments of ``forward``: tensors, numbers, and lists, tuples and dicts of them. ``kwargs`` are
    those by name. The module is exported in its present mode, without gradients. The file holds its weights and the
    inputs. The evaluator draws others with the same shapes and about the same statistics.

    Raises :class:`kgen.errors.CaptureError` where ``torch.export`` refuses the forward,
    :class:`kgen.errors.ProblemError` where kgen cannot write it as a problem, and :class:`kgen.errors.DiskError` where
    the file cannot be written.
    """
    from kgen.problems import live

    live.save(module, inputs, kwargs or {}, Path(file))


def save(fast: "torch.nn.Module", folder: str | Path) -> None:
    """Write what :func:`optimize` put behind a module into a folder, for :func:`load`: kernels, libraries and a
    manifest.

    The folder holds no weights. Raises :class:`kgen.errors.InputError` for a module that ``optimize`` did not make, and
    :class:`kgen.errors.DiskError` where the folder cannot be written.
    """
    from kgen.optimized import folder as folders

    folders.save(fast, Path(folder))


def load(folder: str | Path, module: "torch.nn.Module") -> "torch.nn.Module":
    """The module with the kernels of a folder behind it, as :func:`optimize` returned it. Nothing is swept.

    Each part is checked by a forward of both on drawn inputs; one that does not fit runs the original. Files of the
    folder are code: load only folders that you trust. Hashes are checked before anything is imported.

    Raises :class:`kgen.errors.FolderError` for a folder that another version wrote, or whose files were changed.
    """
    from kgen.optimized import folder as folders

    return folders.load(Path(folder), module)
