"""Ranges of values, and the choices that they decide."""

from __future__ import annotations

import pytest
import torch
from models import graph, made, source

from kgen.compiler.loops.evaluation import evaluate
from kgen.compiler.loops.expr import Where, nodes
from kgen.compiler.loops.indices import FloorDiv, Modulo
from kgen.compiler.lower.lowering import lower
from kgen.compiler.rewrites.cleanup import decompose


def program(forward: str, inputs: str = "torch.randn(3, 4, 16, 8)"):
    of = decompose(graph(made(source(forward, inputs))))
    return of, lower(of, [n.name for n in of.nodes], [of.returns[0]])


def choices(forward: str) -> int:
    """How many choices the program of a forward makes."""
    _, found = program(forward)
    return sum(isinstance(node, Where) for step in found.steps if (of := getattr(step, "expression", None)) is not None for node in nodes(of))


PAD = "return F.pad(x, ({}), mode='{}')"


@pytest.mark.parametrize(("forward", "count"), [
    (PAD.format("1, 1, 0, 0", "replicate"), 2), (PAD.format("0, 1, 0, 0", "replicate"), 1), ("return x[..., torch.arange(8).clamp(0, 7)]", 0),
    ("return x[..., torch.arange(8) + 1 - 1]", 0), ("return x[..., torch.arange(9) - 1]", 1), ("return F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=True)", 2),
])  # fmt: skip
def test_an_index_of_positions_is_checked_where_it_may_lie_outside(forward: str, count: int) -> None:
    assert choices(forward) == count


def test_a_place_that_is_looked_up_takes_part_in_indices_without_divisions() -> None:
    _, found = program("y = (x * x[:1, :1, :1]).view(3, 4, 4, 4, 8)\nreturn y[:, :, (y[0, 0, 0, 0] * 4).long()]")
    assert found.looks_up and not any(at.access.offset.atoms(FloorDiv, Modulo) for at in found.reads)


@pytest.mark.parametrize("forward", [
    PAD.format("2, 1, 3, 2", "replicate"), PAD.format("2, 1, 3, 2", "reflect"), PAD.format("2, 1, 3, 2", "circular"), "return x[..., torch.arange(9) - 1]",
    "at = (torch.arange(40) * 0.1999999).long()\nreturn x[..., at]", "at = (torch.arange(200).to(torch.uint8) + 100).long() % 8\nreturn x[..., at]",
    "return x[:, :, torch.arange(15, -1, -1)[:, None], torch.arange(8) // 2]", "return F.interpolate(x, size=(9, 13), mode='bicubic')",
])  # fmt: skip
def test_programs_without_decided_choices_compute_the_same(forward: str) -> None:
    of, found = program(forward)
    x = torch.randn(3, 4, 16, 8, dtype=torch.float64)
    expected = made(source(forward, "torch.randn(3, 4, 16, 8)")).model()(x)
    torch.testing.assert_close(evaluate(found, {"x": x})[of.returns[0]].reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)
