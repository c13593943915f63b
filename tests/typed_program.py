"""A program that uses the public names of kgen; `test_types.py` has a strict type checker read it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import kgen


def faster(module: nn.Module, x: torch.Tensor) -> nn.Module:
    length = torch.export.Dim("length", min=2, max=8)
    try:
        return kgen.optimize(
            module, [x], kwargs={"scale": 2.0}, minutes=1.5, sizes=[x, [x], {1: length}], accuracy="fp32", modules=["block"],
            device="cpu", db=None, cached_only=True, progress=False,
        )  # fmt: skip
    except kgen.KgenError as error:
        print(error.exit_code + 1)
        return module


def kept(module: nn.Module, x: torch.Tensor, folder: Path) -> nn.Module:
    fast: nn.Module = kgen.optimize(module, x)
    kgen.save(fast, folder)
    kgen.save_problem(module, (x,), "problem.pt2", kwargs={})
    return kgen.load(str(folder), module)


VERSION: str = kgen.__version__.upper()
