"""How users call an exported network on a GPU, launched kernel by kernel and as a CUDA graph."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from models import design, made, module, source

from kgen.candidate import GRAPH
from kgen.devices.hardware import gpu
from kgen.tuning.search import Point

pytestmark = pytest.mark.gpu

FORWARD = """
for norm, first, second in zip(self.norms, self.firsts, self.seconds):
    x = x + second(F.gelu(first(norm(x)))) * y
return x, F.scaled_dot_product_attention(x[None, None], x[None, None], y[None, None])[0, 0]
"""
INIT = """
self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(2))
self.firsts = nn.ModuleList(nn.Linear(64, 128) for _ in range(2))
self.seconds = nn.ModuleList(nn.Linear(128, 64) for _ in range(2))
"""
LAUNCHINGS = ["", GRAPH]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, types.ModuleType]]:
    of = design(made(source(FORWARD, "torch.randn(48, 64), torch.randn(48, 64)", INIT, "x, y")), gpu("cuda"))
    number = next(n for n, o in enumerate(of.options) if o.kernels and o.plainest is not None)
    assert of.obstacle(Point(number, of.options[number].plainest, GRAPH)) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("builds")))
        yield {how: module(of.candidate(Point(number, of.options[number].plainest, how))) for how in LAUNCHINGS}


@pytest.fixture
def models(modules: dict[str, types.ModuleType], request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """PyTorch's module, and the export with its weights, both on the GPU and in eval mode."""
    torch.manual_seed(0)
    model = made(source(FORWARD, "torch.randn(48, 64), torch.randn(48, 64)", INIT, "x, y")).model().cuda().eval()
    new = modules[request.param].ModelNew().cuda().eval()
    new.load_state_dict(model.state_dict())
    return model, new


def given(rows: int = 48) -> list[torch.Tensor]:
    return [torch.randn(rows, 64, device="cuda") for _ in range(2)]


def compare(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("models", LAUNCHINGS, indirect=True)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_calls_with_other_inputs_follow_each_other(models: Any, mode: Any) -> None:
    model, new = models
    with mode():
        inputs = [given() for _ in range(6)]
        found = [new(*x) for x in inputs]
        for x, y in zip(inputs, found):  # no call has written over an earlier one's output
            compare(y, model(*x))
        assert all(y.is_inference() == (mode is torch.inference_mode) for y in found[-1])
    with torch.no_grad():
        compare(new(*(x := given())), model(*x))  # the same graph, out of inference mode


@pytest.mark.parametrize("models", LAUNCHINGS, indirect=True)
def test_streams_take_turns(models: Any) -> None:
    model, new = models
    streams = [torch.cuda.Stream() for _ in range(3)]
    with torch.no_grad():
        inputs = [given() for _ in range(9)]
        expected = [model(*x) for x in inputs]
        new(*inputs[0]), new(*inputs[0])
        torch.cuda.synchronize()
        found = []
        for n, x in enumerate(inputs):
            with torch.cuda.stream(streams[n % 3]):
                torch.cuda._sleep(2_000_000 * (2 - n % 3))  # a later stream would overtake
                found.append(new(*x))
        torch.cuda.synchronize()
    for y, z in zip(found, expected):
        compare(y, z)


@pytest.mark.parametrize("models", LAUNCHINGS, indirect=True)
def test_changed_and_replaced_weights_count(models: Any) -> None:
    model, new = models
    x = given()
    with torch.no_grad():
        for change in (lambda m: m.firsts[0].weight.mul_(1.5), lambda m: m.norms[1].bias.add_(1.0), lambda m: m.load_state_dict(
                {name: w * 0.5 for name, w in m.state_dict().items()}), lambda m: setattr(m.seconds[1], "weight", torch.nn.Parameter(m.seconds[1].weight * 2))):
            for _ in range(3):
                compare(new(*x), model(*x))
            change(model), change(new)
        compare(new(*x), model(*x))


@pytest.mark.parametrize("models", [GRAPH], indirect=True)
def test_many_shapes_threads_and_copies(models: Any) -> None:
    model, new = models
    with torch.no_grad():
        for rows in (2, 3, 4, 5, 6, 7, 2, 48):
            for _ in range(3):
                compare(new(*(x := given(rows))), model(*x))
        assert len(new._graphs.recorded) == 4 and all(new._graphs.recorded.values())

        def call(x: list[torch.Tensor]) -> None:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                for _ in range(20):
                    compare(new(*x), model(*x))

        drawn = [given(4 + number % 2) for number in range(4)]  # PyTorch refuses to draw beside a thread that records
        torch.cuda.synchronize()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(call, drawn))
        torch.cuda.synchronize()
        other = copy.deepcopy(new)
        assert other._graphs is None is new.__getstate__()["_graphs"]
        for _ in range(3):
            compare(other(*(x := given())), model(*x))


@pytest.mark.parametrize("models", [GRAPH], indirect=True)
def test_it_may_be_captured_by_the_user_and_draws_no_random_numbers(models: Any) -> None:
    model, new = models
    x = given()
    with torch.no_grad():
        for _ in range(3):
            new(*x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = new(*x)
        for own in x:
            own.copy_(torch.randn_like(own))
        graph.replay()
        compare(y, model(*x))
        before = torch.cuda.get_rng_state()
        new(*x)
        assert torch.equal(torch.cuda.get_rng_state(), before)
    with pytest.raises(RuntimeError, match="forward only"):
        new(*x)[0].sum().backward()
