"""What schedules of attention are told of a program: its operands, the scale, the diagonal, and what is made of whole rows."""

from __future__ import annotations

from models import graph, made, source

from kgen.codegen.registry import templates
from kgen.compiler.fusion.fusion import plans
from kgen.compiler.fusion.steps import FusionPlan
from kgen.compiler.loops.attention import Attention, attention

QKV = "q, k, v = (t.transpose(1, 2) for t in x.view(2, 12, 3, 4, 8).unbind(2))"


def _plan(forward: str, inputs: str, arguments: str = "x") -> FusionPlan:
    """The most fused plan of the forward on a GPU."""
    return plans(graph(made(source(forward, inputs, "", arguments))), tuple(templates("cuda").values()))[0]


def found(forward: str, inputs: str = "torch.randn(2, 12, 96)", arguments: str = "x") -> Attention:
    """The parts of the plan's one kernel of attention."""
    plan = _plan(forward, inputs, arguments)
    (parts,) = (of for kernel in plan.kernels if (of := attention(plan.program(kernel))) is not None)
    return parts


def test_heads_of_one_projection_are_read_where_they_lie() -> None:
    parts = found(f"{QKV}\nreturn F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)")
    assert (parts.q.tensor, parts.k.tensor, parts.v.tensor) == ("x", "x", "x")
    assert [(of.line, of.element, of.offset) for of in (parts.q, parts.k, parts.v)] == [(96, 1, 0), (96, 1, 32), (96, 1, 64)]
    assert parts.q.place("matrix") == "(matrix / 4) * 1152ll + (matrix % 4) * 8ll"


def test_groups_of_queries_share_keys() -> None:
    parts = found("return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)", "torch.randn(2, 6, 5, 8), torch.randn(2, 2, 7, 8)", "q, k")
    assert (parts.k.repeats, parts.k.unique("matrix"), parts.queries, parts.keys) == (3, "(matrix / 6) * 2 + matrix / 3 % 2", 5, 7)


def test_a_scale_alone_is_no_map() -> None:
    parts = found(f"{QKV}\nreturn (q @ k.mT * 0.3).softmax(-1) @ v")
    assert (parts.scale, parts.diagonal) == (0.3, None)


def test_a_diagonal_is_found_by_hand_too() -> None:
    hand = "i, j = torch.arange(12), torch.arange(12)\nreturn torch.where({}, q @ k.mT, -torch.inf).softmax(-1) @ v"
    reaches = {"i[:, None] >= j": 0, "j < i[:, None]": -1}
    assert {mask: found(f"{QKV}\n{hand.format(mask)}").diagonal for mask in reaches} == reaches
    assert found(f"{QKV}\nreturn F.scaled_dot_product_attention(q, k, v, is_causal=True)").diagonal == 0


def test_a_window_is_made_by_maps() -> None:
    parts = found(f"{QKV}\nd = torch.arange(12)[:, None] - torch.arange(12)\nreturn torch.where(d.abs() < 3, q @ k.mT, -torch.inf).softmax(-1) @ v")
    assert parts.scale is None and parts.diagonal is None and parts.elements


def test_a_mask_of_truth_values_is_read_by_maps() -> None:
    parts = found(f"{QKV}\nreturn (q @ k.mT).masked_fill(m, -torch.inf).softmax(-1) @ v", "torch.randn(2, 12, 96), torch.eye(12) < 0", "x, m")
    assert [(load.tensor, load.dtype) for load in parts.loads] == [("m", "bool")]


def test_probabilities_that_are_returned_are_stored_by_another_kernel() -> None:
    plan = _plan(f"{QKV}\np = (q @ k.mT).softmax(-1)\nreturn p, p @ v", "torch.randn(2, 12, 96)")
    assert all(attention(plan.program(kernel)) is None for kernel in plan.kernels)


def test_two_linear_layers_are_two_kernels() -> None:
    plan = _plan("return (x @ x.mT).relu() @ x", "torch.randn(2, 12, 8)")
    assert all(attention(plan.program(kernel)) is None for kernel in plan.kernels) and len(plan.kernels) == 2
