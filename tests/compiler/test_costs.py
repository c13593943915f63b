"""Costs: what library calls and kernels move."""

from __future__ import annotations

import pytest
from models import graph, made, source

from kgen.codegen.registry import templates
from kgen.compiler.fusion.costs import Cost, kernel_cost, library_cost
from kgen.compiler.fusion.fusion import plans
from kgen.compiler.fusion.steps import FusionPlan
from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.operators.facts import is_view

ROW_BYTES = 128 << 10


def captured(forward: str, inputs: str = "torch.randn(6, 12)", init: str = "", arguments: str = "x", mode: str = "eval") -> OpGraph:
    return graph(made(source(forward, inputs, init, arguments), mode))


def costs(found: OpGraph) -> list[Cost]:
    return [library_cost(found, node) for node in found.nodes]


def fused(found: OpGraph) -> FusionPlan:
    return plans(found, tuple(templates("cuda").values()))[0]


def test_library_call_moves_operands_and_result_once() -> None:
    assert costs(captured("return x + x.relu()")) == [Cost(4 * 72 * 2), Cost(4 * 72 * 3)]


def test_product_of_rows_that_values_choose_counts_no_operations() -> None:
    found = captured("rows = torch.where(x[:, 0] > 0)[0]\nreturn x.index_add(0, rows, x[rows] @ self.w)", init="self.w = nn.Parameter(torch.eye(12))")
    assert [cost.flops for cost in costs(found)] == [0] * len(found.nodes) and fused(found)


def test_operand_that_stands_twice_is_read_once() -> None:
    assert costs(captured("return x * x")) == [Cost(4 * 72 * 2)]


@pytest.mark.parametrize(
    "forward", ["return x.t()", "return x.view(12, 6)", "return x[2:]", "return x.unsqueeze(0)", "return x.expand(3, 6, 12)"]
)
def test_view_moves_nothing(forward: str) -> None:
    found = captured(forward)
    assert [is_view(node) for node in found.nodes] == [True] * len(found.nodes)
    assert sum(cost.nbytes for cost in costs(found)) == 0


def test_expanded_view_is_read_as_far_as_it_has_memory() -> None:
    *_, multiplied = costs(captured("return x * y.expand(6, 12)", "torch.randn(6, 12), torch.randn(1, 12)", "", "x, y"))
    assert multiplied.nbytes == 4 * (72 + 12 + 72)


def test_results_of_several_are_those_that_are_used() -> None:
    found = captured("return x.max(1)[0]")
    assert costs(found)[0].nbytes == 4 * (72 + 6)


def test_embedding_reads_the_rows_that_it_gives() -> None:
    found = captured("return self.table(x)", "torch.zeros(5, dtype=torch.int64)", "self.table = nn.Embedding(1000, 8)")
    assert costs(found)[0].nbytes == 4 * 5 * 8 * 2 + 8 * 5


def test_row_is_shared_by_one_block_of_the_library() -> None:
    assert costs(captured("return torch.softmax(x, -1)"))[0].blocks == 6


def test_kernel_moves_each_tensor_once() -> None:
    plan = fused(captured("return torch.softmax(x.relu(), -1)"))
    assert kernel_cost(plan, plan.kernels[0], ROW_BYTES, 3) == Cost(4 * 72 * 2, blocks=6)


def test_kernel_reads_rows_again_that_no_block_can_keep() -> None:
    plan = fused(captured("return torch.softmax(x, -1)"))
    assert kernel_cost(plan, plan.kernels[0], row_bytes=16, products=3).nbytes == 4 * 72 * 3


def test_kernel_of_a_product_counts_its_tensor_core_products() -> None:
    found = captured("return self.linear(x).relu()", init="self.linear = nn.Linear(12, 20)")
    plan = fused(found)
    assert kernel_cost(plan, plan.kernels[0], ROW_BYTES, 3) == Cost(4 * (72 + 240 + 20 + 120), 2 * 6 * 12 * 20, 3)


@pytest.mark.parametrize(
    ("forward", "init", "inputs", "moved", "scattered"),
    [
        ("return self.n(x)", "self.n = nn.LayerNorm(16)", "torch.randn(2, 3, 16)", 4 * (96 + 96 + 32), 0),
        ("return self.n(x.permute(0, 2, 1))", "self.n = nn.LayerNorm(16)", "torch.randn(2, 16, 3)", 4 * (96 + 96 + 32), 28 * 96),
        ("return F.max_pool2d(x, 2)", "", "torch.randn(2, 8, 4, 4)", 4 * (256 + 64), 0),
        ("return F.max_pool2d(x.permute(0, 3, 1, 2), 2)", "", "torch.randn(2, 4, 4, 8)", 4 * (256 + 64), 0),
        ("return F.max_pool2d(x.permute(0, 3, 1, 2), 2)", "", "torch.randn(2, 4, 4, 7)", 4 * (224 + 56), 28 * (224 + 56)),
    ],
)
def test_kernel_on_a_gpu_moves_a_sector_for_each_element_across_memory(forward: str, init: str, inputs: str, moved: int, scattered: int) -> None:
    found = plans(captured(forward, inputs, init), tuple(templates("cuda").values()))
    plan = next(p for p in found if len(p.kernels) == 1)
    costs = [kernel_cost(plan, plan.kernels[0], ROW_BYTES, 3, shares).nbytes for shares in (1, 132)]
    assert costs == [moved, moved + scattered]


def test_float32_products_of_batches_move_their_terms() -> None:
    """Each operand is written as terms and read again; half types and a device of one block a row have none."""
    found = fused(captured("return x @ y", "torch.randn(2, 64, 64), torch.randn(2, 64, 64)", arguments="x, y"))
    one = 4 * 2 * 64 * 64
    (kernel,) = found.kernels
    moved = {(products, shares): kernel_cost(found, kernel, ROW_BYTES, products, shares).nbytes for products in (1, 3) for shares in (1, 132)}
    assert moved == {(1, 1): 3 * one, (1, 132): 3 * one, (3, 1): 3 * one, (3, 132): 7 * one}
