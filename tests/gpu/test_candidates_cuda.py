"""Rendered candidates on a GPU: their values against float64, and the contract of a ModelNew."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from models import NAMES, design, made, module, plainest, reference, source

from kgen.candidate import CALL, Trust
from kgen.devices.hardware import gpu
from kgen.evaluator.evaluator import Evaluator
from kgen.protocol import Accuracy, Status
from kgen.tuning.search import Point

pytestmark = pytest.mark.gpu

#: An odd batch, and columns that are a multiple of the widest vectors.
SIZES = {"batch_size": "261", "in_features": "200", "out_features": "1000"}
CASES = [(name, mode) for name in NAMES for mode in ("train", "eval")]


@pytest.fixture(scope="module", autouse=True)
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("builds")))
        yield


@pytest.fixture(scope="module")
def modules(builds: None) -> dict[tuple[str, str], list[types.ModuleType]]:
    """The most fused candidates of each case, and the last allowed point of each."""
    sources = {}
    for name, mode in CASES:
        of = design(reference(name, mode, **SIZES), gpu("cuda"))
        last = Point(0, tuple(len(kernel) - 1 for kernel in of.options[0].kernels))
        sources[name, mode] = [*plainest(of, 2), of.candidate(last)]
    candidates = {candidate.source: candidate for found in sources.values() for candidate in found}
    with ThreadPoolExecutor() as pool:  # all of them at once, each text once: torch counts versions of what it builds
        built = dict(zip(candidates, pool.map(module, candidates.values())))
    return {case: [built[candidate.source] for candidate in found] for case, found in sources.items()}


def models(modules: dict, name: str, mode: str, number: int = 0) -> tuple[Any, Any, list[torch.Tensor]]:
    """The problem's model, the candidate's with the same weights, and inputs, all on the GPU."""
    loaded = reference(name, mode, **SIZES)
    torch.manual_seed(0)
    model = loaded.model().cuda().train(mode == "train")
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + 0.1 * torch.randn_like(p))
    new = modules[name, mode][number].ModelNew(*loaded.init_inputs()).cuda().train(mode == "train")
    new.load_state_dict(model.state_dict())
    return model, new, [x.cuda() for x in loaded.inputs()]


def rms(error: torch.Tensor) -> float:
    return error.square().mean().sqrt().item()


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_is_as_accurate_as_pytorch(modules: dict, name: str, mode: str, number: int) -> None:
    model, new, inputs = models(modules, name, mode, number)
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        expected = exact(*(x.double() for x in inputs))
        eager, mine = model(*inputs), new(*inputs)
    assert rms(mine - expected) <= 2 * rms(eager - expected) + 1e-7 * rms(expected)
    for key, value in exact.state_dict().items():
        torch.testing.assert_close(new.state_dict()[key].double(), value.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 7, 1024])
@pytest.mark.parametrize("name", NAMES)
def test_any_batch_is_right(modules: dict, name: str, rows: int) -> None:
    model, new, (x,) = models(modules, name, "eval")
    x = torch.randn(rows, x.shape[1], device="cuda")
    with torch.no_grad():
        torch.testing.assert_close(new(x), model(x), rtol=1e-4, atol=1e-5)


def test_no_rows_give_no_rows(modules: dict) -> None:
    _, new, (x,) = models(modules, "linear_gelu_softmax", "eval")
    with torch.no_grad():
        assert new(x[:0]).shape == (0, 1000)


@pytest.mark.parametrize(("name", "mode"), [("linear_gelu_softmax", "eval"), ("linear_batchnorm_scale_softmax", "train")])
def test_a_cuda_graph_replays_it(modules: dict, name: str, mode: str) -> None:
    model, new, (x,) = models(modules, name, mode)
    with torch.no_grad():
        new(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = new(x)
        x.copy_(torch.rand_like(x))
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(y, model(x), rtol=1e-4, atol=1e-6)


def test_a_side_stream_orders_it(modules: dict) -> None:
    model, new, (x,) = models(modules, "linear_gelu_softmax", "eval")
    side = torch.cuda.Stream()
    with torch.no_grad():
        expected = model(x + 1)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            y = new(x + 1)
        side.synchronize()
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-6)


def test_calls_behind_one_another_do_not_overtake(modules: dict) -> None:
    model, new, (x,) = models(modules, "linear_batchnorm_scale_softmax", "train")
    with torch.no_grad():
        outputs = [new(x * k) for k in range(1, 9)]
        for k, y in enumerate(outputs, 1):
            torch.testing.assert_close(y, model(x * k), rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # what torch's own compiler warns of is another matter
def test_a_compiled_model_may_hold_it(modules: dict) -> None:
    model, new, (x,) = models(modules, "linear_gelu_softmax", "eval")
    torch.compiler.reset()
    with torch.no_grad():
        # What is tried is the capture around it, which breaks there; code for the rest is made by no compiler.
        compiled = torch.compile(torch.nn.Sequential(new, torch.nn.ReLU()), backend="eager")
        torch.testing.assert_close(compiled(x), model(x).relu(), rtol=1e-4, atol=1e-6)


def test_strided_and_misaligned_inputs_are_right(modules: dict) -> None:
    model, new, (x,) = models(modules, "linear_gelu_softmax", "eval")
    strided = torch.randn(x.shape[1], x.shape[0], device="cuda").T
    shifted = torch.randn(x.numel() + 1, device="cuda")[1:].view_as(x)
    with torch.no_grad():
        for given in (strided, shifted):
            torch.testing.assert_close(new(given), model(given), rtol=1e-4, atol=1e-6)


def test_changed_weights_are_noticed(modules: dict) -> None:
    model, new, (x,) = models(modules, "linear_batchnorm_scale_softmax", "eval")
    assert "fold_batchnorm_into_linear" in (modules["linear_batchnorm_scale_softmax", "eval"][0].__doc__ or "")
    with torch.no_grad():
        new(x)
        changed = {k: v * 1.5 if v.is_floating_point() else v for k, v in model.state_dict().items()}
        model.load_state_dict(changed)
        new.load_state_dict(changed)
        torch.testing.assert_close(new(x), model(x), rtol=1e-4, atol=1e-6)


def test_an_input_elsewhere_is_refused(modules: dict) -> None:
    _, new, (x,) = models(modules, "linear_gelu_softmax", "eval")
    with pytest.raises(ValueError, match="x is on cpu"):
        new(x.cpu())


def test_a_copy_works_alone(modules: dict) -> None:
    model, new, (x,) = models(modules, "linear_gelu_softmax", "eval")
    twin = copy.deepcopy(new)
    del new
    with torch.no_grad():
        torch.testing.assert_close(twin(x), model(x), rtol=1e-4, atol=1e-6)


def test_every_result_has_memory_of_its_own(modules: dict) -> None:
    _, new, (x,) = models(modules, "linear_gelu_softmax", "eval")
    with torch.no_grad():
        first = new(x)
        kept = first.clone()
        new(x + 1)
    assert torch.equal(first, kept)




def test_write_beyond_a_temporary_of_a_run_is_seen_though_its_result_is_right(tmp_path: Path) -> None:
    """Both temporaries lie in one allocation, and the first one's bytes are a multiple of 256."""
    text = source("return torch.softmax(x, 1) + torch.cumsum(x, 1) + x.sum(1, keepdim=True)", "torch.randn(37, 256)")
    loaded = made(text)
    of = design(loaded, gpu("cuda"))
    number = next(n for n, o in enumerate(of.options) if o.name.startswith("inner_reduction[softmax, sum] + scan["))
    right = of.candidate(Point(number, (0,) * len(of.options[number].kernels)))
    assert right.source.count("data_ptr(), at, at + sum_1,") == 1
    wrong = replace(right, source=right.source.replace("data_ptr(), at, at + sum_1,", "data_ptr(), at + 16, at + sum_1,"))
    with Evaluator(
        loaded.problem, device="cuda", accuracy=Accuracy.FP32, home=tmp_path, baselines=("eager",), trust=Trust.OWN
    ) as evaluator:
        found = [evaluator.evaluate(c, evaluator.builder().build(c.source), timed=False) for c in (right, wrong)]
    assert [(e.status, "behind" in e.reason) for e in found] == [(Status.OK, False), (Status.MUTATED_INPUT, True)]


def test_the_usual_call_is_one_call_of_c(builds: None) -> None:
    """Also on another stream, in inference mode and after a change of weights; without it, results have the same bits."""
    of = design(reference("linear_gelu_softmax", "eval", **SIZES), gpu("cuda"))
    file = module(of.candidate(Point(0, of.options[0].plainest, CALL)))
    model, new, (x,) = models({("linear_gelu_softmax", "eval"): [file]}, "linear_gelu_softmax", "eval")
    with torch.no_grad():
        expected = new(x)
        assert torch.equal(file._entry(new._prepared, x), expected) and torch.equal(new._call(x), expected)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert torch.equal(new(x), expected) and torch.equal(file._entry(new._prepared, x), expected)
        torch.cuda.current_stream().wait_stream(side)
        assert torch.equal(new(x), expected) and file._entry(new._prepared, x) is not None
        new.linear.weight.mul_(2.0)
        assert file._entry(new._prepared, x) is None
        model.linear.weight.mul_(2.0)
        torch.testing.assert_close(new(x), model(x), rtol=1e-4, atol=1e-6)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            assert file._entry(new._prepared, x) is None
            x + 1  # an empty graph is an error
    with torch.inference_mode():
        assert file._entry(new._prepared, x).is_inference()
    assert file._entry(new._prepared, x) is None  # with gradients
