"""Operators: the kernels of many small forwards on the CPU, against float64 and eager; none is left to the library."""

from __future__ import annotations

import pytest
import torch
import torch.utils._pytree as pytree
from forwards import CASES, problem
from kinds_of_modules import MODULES
from models import design, graph, made, module, source

from kgen.compiler.operators.table import OPS
from kgen.problems.problem import LoadedProblem
from kgen.tuning.search import Point

#: Cases that always run without a compiler, in the tests of lowering, and whose operators stand in other cases, too.
RARE = {
    "bags, weighted and largest", "images written in parts", "moved and turned", "rows selected", "cross entropy, smoothed", "norms", "the smallest",
    "windows of several sizes",
}  # fmt: skip


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.exhaustive] if case in RARE else []) for case in CASES])
def test_values_are_those_of_eager(case: str) -> None:
    assert_as_eager(problem(case))


#: Of the modules that people write, those whose kernels differ most from those of the cases.
SOME_MODULES = ("a hash of corners", "groups of four bits", "dice", "a softmax of segments", "messages along edges", "a warped image", "sums of a chunk")


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize("name", SOME_MODULES)
def test_modules_compute_what_eager_does(name: str) -> None:
    forward, inputs, init = MODULES[name]
    assert_as_eager(made(source(forward, inputs, init, ", ".join("xyz"[: inputs.count("torch.r")]))))


def assert_as_eager(loaded: LoadedProblem) -> None:
    """The first candidate that leaves nothing to the library, against float64 and eager."""
    of = design(loaded)
    number = next(n for n, option in enumerate(of.options) if "(library)" not in option.name)
    new = module(of.candidate(Point(number, (0,) * len(of.options[number].kernels)))).ModelNew().eval()
    torch.manual_seed(0)
    inputs, model = loaded.inputs(), loaded.model().eval()
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        found = pytree.tree_leaves(new(*inputs))
        expected = pytree.tree_leaves(model(*inputs))
        exact = pytree.tree_leaves(model.double()(*(v.double() if v.is_floating_point() else v for v in inputs)))
    for got, eager, truth in zip(found, expected, exact, strict=True):
        assert (got.dtype, got.shape) == (eager.dtype, eager.shape)
        if eager.is_floating_point():
            scale = truth[truth.isfinite()].abs().max()
            torch.testing.assert_close((got / scale).float(), (truth / scale).float(), rtol=0, atol=1e-6, equal_nan=True)
        else:
            assert torch.equal(got, eager)


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize("forward", ["x[:, few]", "x.gather(1, at)", "F.embedding(at, table)"])
def test_index_out_of_range_reads_inside_of_the_tensor(forward: str) -> None:
    inputs = "torch.randn(4, 33), torch.full((4, 7), 1 << 40), torch.full((3, 7), -(1 << 40)), torch.randn(9, 5)"
    loaded = made(source(f"return {forward}", inputs, arguments="x, at, few, table"))
    of = design(loaded)
    new = module(of.candidate(Point(0, (0,)))).ModelNew().eval()
    x, at, few, table = loaded.inputs()
    assert torch.isin(new(x, at, few, table), torch.cat([x.flatten(), table.flatten()])).all()


@pytest.mark.parametrize(
    "forward",
    [
        "torch.sort(x, dim=1)[0]",  # no decomposition
        "F.dropout(x, 0.5, True)",  # random
        "torch.cat([x, x], dim=0)",  # along the batch
        "x.roll(1, 0)",  # along the batch
    ],
)
def test_call_without_a_lowering_stays_whole(forward: str) -> None:
    found = graph(made(source(f"return {forward}")))
    assert not any(node.op in OPS or node.parts for node in found.nodes)
