"""Modules of all kinds: the result has the module's own outputs, states and gradients, and kgen raises nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from kinds import KINDS
from optimized_modules import Sweeps, sweeps
from torch import nn

import kgen

__all__ = ["sweeps"]


def seeded() -> None:
    torch.manual_seed(7)
    random.seed(7)


def leaves(value: Any) -> list[Any]:
    found = [x for leaf in pytree.tree_leaves(value) for x in (vars(leaf).values() if type(leaf).__name__ == "Result" else [leaf])]
    return [x.as_subclass(torch.Tensor) if isinstance(x, torch.Tensor) else x for x in found]


def check_same(mine: Any, theirs: Any) -> None:
    assert type(mine) is type(theirs)
    for a, b in zip(leaves(mine), leaves(theirs), strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
            assert a.stride() == b.stride() and a.requires_grad == b.requires_grad
        else:
            assert a == b


def state(module: nn.Module) -> dict[str, Any]:
    return {name: x.detach().clone() for name, x in module.state_dict().items()}


def clones(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if type(value) in (tuple, list):
        return type(value)(map(clones, value))
    return {key: clones(x) for key, x in value.items()} if type(value) is dict else value


def called(module: nn.Module, call: Any, times: int = 2) -> list[Any]:
    seeded()
    return [module(*copied[0], **copied[1]) for copied in (clones(call) for _ in range(times))]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", KINDS)
def test_a_kind(name: str, sweeps: Sweeps) -> None:
    module, call = KINDS[name]()
    twin, _ = KINDS[name]()  # made from the same seed, and never seen by kgen
    before = state(module)
    fast = kgen.optimize(module, call[0], kwargs=call[1], progress=False)
    for key, x in state(module).items():  # optimising changes nothing
        assert torch.equal(x, before[key])
    with torch.no_grad():
        check_same(called(fast, call), called(twin, call))
    for key, x in state(fast).items():
        torch.testing.assert_close(x, state(twin)[key])
    if name not in ("empty_input", "tensor_subclass_as_input", "tensor_subclass_as_buffer"):
        check_same(called(fast, call, 1), called(twin, call, 1))  # with gradients, the original runs
