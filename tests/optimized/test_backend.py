"""``torch.compile(..., backend="kgen")``: which graphs kgen takes, and which go to Inductor."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch
from optimized_modules import Sweeps, sweeps
from torch import nn

from kgen.optimized import backend, searching

__all__ = ["sweeps"]

X = torch.randn(4, 6)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)).relu()


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The graphs that went to Inductor, which runs them as they are."""
    found: list[Any] = []
    monkeypatch.setattr(backend, "_inductor", lambda graph, inputs: found.append(graph) or graph.forward)
    torch._dynamo.reset()
    yield found
    torch._dynamo.reset()


@pytest.fixture
def compared(sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What graphs became: functions with a report, or the reasons why not."""
    found: list[Any] = []
    made = backend._optimized
    monkeypatch.setattr(backend, "_optimized", lambda *args: found.append(made(*args)) or found[-1])
    return found


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend=backend.compile_graph, options={"progress": False, **options})


def test_the_backend_is_registered() -> None:
    assert [e.value for e in entry_points(group="torch_dynamo_backends", name="kgen")] == ["kgen.optimized.backend:compile_graph"]


def test_an_inference_graph_runs_a_winner(inductor: list[Any], compared: list[Any]) -> None:
    module = Net().eval()
    fast = compiled(module)
    with torch.no_grad():
        torch.testing.assert_close(fast(X), module(X))
        module.linear.weight.mul_(2)
        torch.testing.assert_close(fast(X), module(X))
        module.linear.weight = nn.Parameter(torch.randn(6, 6))
        torch.testing.assert_close(fast(X), module(X))
    assert compared[0].kgen.calls == 3 and not inductor and not compared[0].kgen.fallbacks


def test_functions_and_graph_breaks_are_taken_apart(inductor: list[Any], compared: list[Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).tanh()
        torch._dynamo.graph_break()
        return y + 1

    torch.testing.assert_close(compiled(function)(X), function(X))
    assert len(compared) == 2 and not inductor


def test_graphs_with_gradients_go_to_inductor(inductor: list[Any], compared: list[Any]) -> None:
    module = Net()
    compiled(module)(X).sum().backward()
    assert module.linear.weight.grad is not None and len(inductor) == 1 and not compared


def test_symbolic_sizes_go_to_inductor(inductor: list[Any], compared: list[Any]) -> None:
    fast = compiled(lambda x: x * 2)
    for rows in (4, 5):
        torch.testing.assert_close(fast(torch.ones(rows, 3)), torch.full((rows, 3), 2.0))
    assert len(compared) == 1 and len(inductor) == 1


def test_what_kgen_has_nothing_for_goes_to_inductor(inductor: list[Any], compared: list[Any]) -> None:
    with torch.no_grad():
        compiled(Net().eval(), cached_only=True)(X)
    assert "cached_only" in compared[0] and len(inductor) == 1


def test_a_winner_that_was_not_compared_with_inductor_is_left(
    inductor: list[Any], compared: list[Any], sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    made = sweeps.swept
    monkeypatch.setattr(
        searching.Searching, "_swept_problem", lambda self, *args: replace(made(self, *args), baselines=(("eager", 1.2),))
    )
    compiled(lambda x: x * 2)(X)
    assert "more minutes" in compared[0] and len(inductor) == 1


def test_an_unknown_option_is_refused(inductor: list[Any]) -> None:
    with pytest.raises(Exception, match="'hours' is none of minutes"):
        compiled(lambda x: x * 2, hours=3)(X)
