"""CUDA graphs of an exported forward: which forwards have one, and when a graph is recorded, replayed and dropped."""

from __future__ import annotations

import ast
import contextlib
import threading
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Callable

import pytest
import torch
from models import design, made, plainest, source

from kgen.candidate import GRAPH, LAUNCHING
from kgen.compiler.capture.recordable import obstacle
from kgen.devices.hardware import cpu, for_arch
from kgen.tuning.design import Design
from kgen.tuning.search import Point

SM_90 = for_arch("sm_90")


@lru_cache(maxsize=None)
def designed() -> Design:
    return design(made(source("return torch.softmax(self.linear(x), 1)", init="self.linear = nn.Linear(20, 20)"), mode="eval"), SM_90)


def graph_candidate() -> Any:
    first = designed().options[0]
    return designed().candidate(Point(0, first.plainest, GRAPH))


def test_a_candidate_with_a_graph_is_found_by_its_parameters() -> None:
    found = graph_candidate()
    compile(found.source, "file.py", "exec")
    assert found.params[LAUNCHING] == GRAPH and "launching=graph" in found.source and "class Graphs" in found.source
    assert designed().renders(found.plan_data, found.params, found.source)
    plain = {name: value for name, value in found.params.items() if name != LAUNCHING}
    assert "class Graphs" not in designed().candidate(designed().point(found.plan, plain)).source


@pytest.mark.parametrize(("forward", "init", "mode", "reason"), [
    ("return F.dropout(torch.relu(x), 0.5, self.training)", "", "train", "draws random numbers"),
    ("return torch.softmax(x, 1), torch.nonzero(x)", "", "eval", "size depends on values"),
    ("return self.norm(x)", "self.norm = nn.BatchNorm1d(20)", "train", "changes a buffer"),
    ("y = torch.relu(x)\nreturn y, y", "", "eval", "twice"),
])  # fmt: skip
def test_a_forward_that_a_replay_would_change_has_no_graph(forward: str, init: str, mode: str, reason: str) -> None:
    of = design(made(source(forward, init=init), mode=mode), SM_90)
    ((_, graph), *_) = of.capture.graphs
    assert reason in obstacle(graph)
    assert all(of.obstacle(Point(number, option.plainest or (), GRAPH)) for number, option in enumerate(of.options))


def test_a_cpu_and_a_control_have_no_graph() -> None:
    of = design(made(source("return torch.softmax(x, 1)")), cpu())
    assert "no CUDA graphs" in of.obstacle(Point(0, of.options[0].plainest, GRAPH))
    assert designed().obstacle(replace(designed().control, launching=GRAPH)) == "the plan has no kernel"
    assert designed().point(designed().options[0].name, graph_candidate().params | {LAUNCHING: "other"}) is None


class Recorded:
    """A CUDA graph that runs on the CPU: what is noted between begin and end is done again by a replay.

    As in PyTorch, a pool of memory ends with the last graph that has it.
    """

    current: "Recorded | None" = None
    pools: list[object] = []  # of graphs that live
    ended: set[object] = set()

    def __init__(self) -> None:
        self.work: list[Callable[[], object]] = []

    def capture_begin(self, pool: object, capture_error_mode: str) -> None:
        assert pool not in self.ended
        Recorded.current, self._pool = self, pool
        self.pools.append(pool)

    def pool(self) -> object:
        return self._pool

    def __del__(self) -> None:
        self.pools.remove(self._pool)
        self.ended.update({self._pool} - {*self.pools})

    def capture_end(self) -> None:
        Recorded.current = None

    def replay(self) -> None:
        for do in self.work:
            do()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of an exported file, with CUDA's part done by :class:`Recorded`."""
    (text,) = [n for n in ast.parse(graph_candidate().source).body if isinstance(n, ast.ClassDef) and n.name == "Graphs"]
    stream = SimpleNamespace(cuda_stream=7, wait_event=lambda event: None, record_event=lambda: "event")
    for name, value in {"CUDAGraph": Recorded, "Stream": lambda: stream, "graph_pool_handle": object, "stream": contextlib.nullcontext,
                        "current_stream": lambda: stream, "ExternalStream": lambda handle: stream}.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    names: dict[str, Any] = {"torch": torch, "threading": threading}
    exec(ast.unparse(text), names)
    return names["Graphs"]()


class Doubled:
    """A forward that counts its calls, and whose work a graph records."""

    def __init__(self, weight: float) -> None:
        self.weights, self.weight, self.calls = [], weight, 0

    def __call__(self, module: object, kept: object, stream: int, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = x * self.weight
        if Recorded.current is not None:
            Recorded.current.work.append(lambda: torch.mul(x, self.weight, out=y))
        return y


def test_a_graph_is_recorded_at_the_second_call_and_replayed_from_then_on(graphs: Any) -> None:
    forward = Doubled(2.0)
    outputs = [graphs.run(forward, None, forward, 3, (torch.full((2, 3), float(n)),)) for n in range(5)]
    assert forward.calls == 2
    assert [y.unique().item() for y in outputs] == [0.0, 2.0, 4.0, 6.0, 8.0]  # no later call writes over an output


def test_strides_are_those_of_the_forward(graphs: Any) -> None:
    forward = Doubled(2.0)
    for shape, form in ((torch.Size((2, 3)), torch.ones(3, 2).t()), (torch.Size((4, 3)), torch.ones(3).expand(4, 3))):
        assert [graphs.run(forward, None, forward, 3, (form,)).stride() for _ in range(3)] == [(form * 2.0).stride()] * 3
        assert form.shape == shape


def test_four_shapes_have_a_graph_and_the_oldest_is_dropped(graphs: Any) -> None:
    forward = Doubled(3.0)
    for rows in (1, 2, 3, 4, 5):
        for _ in range(3):
            assert graphs.run(forward, None, forward, 3, (torch.ones(rows, 2),)).shape == (rows, 2)
    assert [shape[0][0][0] for shape in graphs.recorded] == [2, 3, 4, 5]
    assert len({found[0].pool() for found in graphs.recorded.values()}) == 1


def test_other_weights_are_recorded_again(graphs: Any) -> None:
    for forward in (Doubled(2.0), Doubled(5.0)):
        assert [graphs.run(forward, None, forward, 3, (torch.ones(2),))[0].item() for _ in range(3)] == [forward.weight] * 3
        assert forward.calls == 2


def test_results_that_are_inputs_or_weights_are_not_replayed(graphs: Any) -> None:
    kept = SimpleNamespace(weights=[torch.ones(2)])
    for result in (lambda x: x, lambda x: kept.weights[0], lambda x: (x + 1, x[:1])):
        graphs.recorded.clear()
        for _ in range(3):
            graphs.run(lambda module, kept, stream, x: result(x), None, kept, 3, (torch.ones(2),))
        assert [*graphs.recorded.values()] == [()]


def test_a_forward_that_raises_leaves_no_graph_and_no_lock(graphs: Any) -> None:
    def raising(module: object, kept: object, stream: int, x: torch.Tensor) -> torch.Tensor:
        if Recorded.current is not None:
            raise ValueError("too few rows")
        return x + 1

    kept = SimpleNamespace(weights=[])
    graphs.run(raising, None, kept, 3, (torch.ones(2),))
    with pytest.raises(ValueError, match="too few rows"):
        graphs.run(raising, None, kept, 3, (torch.ones(2),))
    assert not graphs.lock.locked() and Recorded.current is None


def test_replays_on_several_streams_follow_each_other(graphs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    stream = SimpleNamespace(wait_event=waited.append, record_event=lambda: "event")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    forward = Doubled(2.0)
    for handle in (3, 3, 3, 4, 4, 3):
        graphs.run(forward, None, forward, handle, (torch.ones(2),))
    assert len(waited) == 2


def test_the_header_says_how_much_is_prepared_from_weights() -> None:
    big = source("return self.linear(x).relu()", "torch.randn(64, 512)", "self.linear = nn.Linear(512, 512)")
    own = next(c for c in plainest(design(made(big), SM_90)) if ".new_empty(" in c.source.partition("def _prepare_weights")[2])
    size = int(own.source.partition("linear_weight.new_empty(")[2].partition(")")[0])
    assert f"Keeps {size * 4 / 1e6:.1f} MB" in own.source or f"Keeps {size * 2 / 1e6:.1f} MB" in own.source
    assert "MB that are prepared" not in graph_candidate().source  # few bytes
