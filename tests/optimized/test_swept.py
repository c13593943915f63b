"""One sweep from Python, as a user's program has it: found again afterwards, and right whether it won or not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from kgen.devices.kinds import KINDS
from kgen.optimized.found import Options
from kgen.optimized.optimize import optimize
from kgen.store import Database, queries


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(256)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return self.norm(x) * torch.sigmoid(gate)


def test_a_module_is_swept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "cpu", replace(KINDS["cpu"], final_seconds=1.0))
    torch.manual_seed(0)
    module, call = Gated(), ((torch.randn(64, 256), torch.randn(64, 256)), {})
    told: list[str] = []
    options = Options(minutes=5, modules="whole", budget=2, baselines=("eager",), tell=told.append)
    fast = optimize(module, [call], options)
    with torch.no_grad():
        torch.testing.assert_close(fast(*call[0]), module(*call[0]))
    assert not fast.kgen.from_store and fast.kgen.fallbacks == {} and told
    with Database.open() as database:
        (row,) = queries.sweeps(database)
    assert row.problem.name == "Gated" and row.problem.path == "Gated.pt2" and row.state == "finished"
    again = optimize(Gated(), [call], options)
    assert again.kgen.from_store and again.kgen.replaced == fast.kgen.replaced
    with torch.no_grad():
        torch.testing.assert_close(again(*call[0]), module(*call[0]))
