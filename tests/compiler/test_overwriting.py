"""No kernel of any plan writes over what another element of its loops still reads, by a count of all elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import sympy
import windows_and_scans
from models import NAMES, captured, made, reference, source
from overlaps import faults
from test_fusion import ALL, CASES, CHAINS, planned

from kgen.compiler.fusion.fusion import plans
from kgen.compiler.graph.library_call import BatchSize
from kgen.compiler.loops.access import Loop, Place
from kgen.compiler.loops.indices import FloorDiv
from kgen.problems.problem import LoadedProblem

#: Problems whose kernels read an element of an operand that is free to be written over at several elements of their loops:
#: forward, inputs, arguments.
SHARED = {
    "gates of all channels": (
        "w = torch.sigmoid(s)\ny = torch.einsum('bt,btd->bd', w, v)\nreturn (w.unsqueeze(-1) * torch.tanh(v)).sum(1) + y, w * g",
        "torch.randn(5, 7), torch.randn(5, 7, 4), torch.randn(5, 7)", "s, v, g",
    ),
    "weights of three colours": (
        "w = a * b\ny = (w[..., None] * torch.sigmoid(c)).sum(dim=1)\nreturn y + (1 - w.sum(dim=1, keepdim=True)), (w * d).sum(dim=1)",
        "torch.rand(5, 8), torch.rand(5, 8), torch.randn(5, 8, 3), torch.rand(5, 8)", "a, b, c, d",
    ),
    "neighbours": ("y = torch.tanh(x)\nreturn (y.unfold(0, 4, 1).softmax(1)), torch.exp(y) * 2", "torch.randn(12)", "x"),
    "a diagonal": ("y = torch.exp(x)\nreturn y.diagonal().sum(), y * 2", "torch.randn(6, 6)", "x"),
    "a transpose": ("y = torch.exp(x)\nreturn y.t() + y.cumsum(0)", "torch.randn(6, 6)", "x"),
}  # fmt: skip

PROBLEM_SETS: dict[str, Callable[[], Iterator[LoadedProblem]]] = {
    "known": lambda: (reference(n, m) for n, m in itertools.product(NAMES, ("train", "eval"))),
    "chains": lambda: (made(source(forward, inputs, init, arguments), mode) for forward, init, inputs, arguments, mode in CASES.values()),
    "windows and scans": lambda: iter([windows_and_scans.problem(windows_and_scans.INPUTS)]),
    "shared": lambda: (made(source(forward, inputs, "", arguments)) for forward, inputs, arguments in SHARED.values()),
}


@pytest.mark.parametrize("name", PROBLEM_SETS)
def test_no_kernel_overwrites_what_it_or_a_later_step_reads(name: str) -> None:
    graphs = [graph for problem in PROBLEM_SETS[name]() for _, graph in captured(problem).graphs]
    assert not [fault for graph in graphs for of in (ALL, CHAINS) for fault in faults(plans(graph, of))]


def test_result_is_written_over_its_own_element() -> None:
    over = [k.overwrites for plan in planned("return x.exp().softmax(dim=1)") for k in plan.kernels]
    assert "exp" in over


ROW, COL = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("row", "col"))


def place(offset: sympy.Expr, cols: int = 4) -> Place:
    return Place(offset, (Loop(ROW, BatchSize(1)),), (Loop(COL, cols),))


@pytest.mark.parametrize(
    ("offset", "injective"),
    [(4 * ROW + COL, True), (5 * ROW + COL, True), (3 - COL + 4 * ROW, True), (ROW + COL, False), (3 * ROW + COL, False),
     (ROW, False), (COL, False), (ROW + 4 * COL, False), (4 * ROW + FloorDiv(COL, 2), False)],
)  # fmt: skip
def test_place_is_injective_where_no_two_elements_share_it(offset: sympy.Expr, injective: bool) -> None:
    assert place(offset).injective == injective


def test_axis_of_one_element_needs_no_step() -> None:
    assert place(ROW, cols=1).injective
