"""What the oracle expects of a timed call."""

from textwrap import indent

import pytest
import torch

from kgen.errors import ProblemError
from kgen.evaluator.arena import map_tensors
from kgen.evaluator.oracle import Oracle
from kgen.evaluator.protocol import ALL_ROWS, SCALED, Accuracy
from kgen.evaluator.regimes import REGIMES, recombine
from kgen.problem import Problem

TEXT = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        y = self.linear(x)
{forward}

def get_inputs():
    return [torch.randn(64, 8)]

def get_init_inputs():
    return []
"""
KEY = 5


def oracle(forward: str) -> Oracle:
    text = TEXT.format(forward=indent(forward, " " * 8))
    return Oracle(Problem("p", "p.py", text, (), "eval", "eval"), "cpu", Accuracy.FP32, 1, 2, shared=False)


def output(of: Oracle, values: str = "given") -> torch.Tensor:
    """PyTorch's own, of the timed call."""
    inputs = map_tensors(of.pool()[0], torch.empty_like)
    recombine(inputs, of.pool(), KEY, values)
    return of.reference.eager(inputs, of._timed_state("drawn", KEY, "eval"), "eval", KEY)[0]


def ok(of: Oracle, value: torch.Tensor, regime: str = REGIMES[0].name) -> bool:
    (row,) = of.judge_timed(KEY, regime, "eval", "drawn", [value], own_numbers=False, lines=False)
    return row["ok"]


@pytest.fixture
def ties(monkeypatch: pytest.MonkeyPatch) -> Oracle:
    """Of a maximum that stands in two places in every third row: it is rounding that says which is larger. So many runs are
    made of it that both have been."""
    monkeypatch.setattr("kgen.evaluator.oracle.NOISY_RUNS", 24)
    return oracle("z = torch.cat([y, y], 1)\nz[::3, 4:] *= 1.0\nz[1::3, 4:] -= 1.0\nz[2::3, 4:] -= 1.0\nreturn z.argmax(1)")


def test_index_of_either_of_two_equal_maxima_is_right_in_a_timed_call(ties: Oracle) -> None:
    found = output(ties)
    other = found.clone()
    other[::3] = (other[::3] + 4) % 8
    assert ok(ties, found) and ok(ties, other)


def test_any_other_index_is_wrong_in_a_timed_call(ties: Oracle) -> None:
    found = output(ties)
    found[1] = (found[1] + 1) % 4
    assert not ok(ties, found)


def test_complex_numbers_are_judged_in_a_timed_call() -> None:
    of = oracle("return torch.fft.rfft(y)")
    assert ok(of, output(of)) and not ok(of, torch.zeros_like(output(of)))


def test_a_timed_call_with_other_values_is_judged_by_these() -> None:
    of = oracle("return torch.softmax(y, 1)")
    given, scaled = output(of), output(of, SCALED)
    assert ok(of, given) and ok(of, scaled, ALL_ROWS)
    assert not ok(of, scaled) and not ok(of, given, ALL_ROWS)


def test_what_is_right_for_given_values_only_is_wrong_where_all_rows_are_scaled() -> None:
    of = oracle("return torch.softmax(y, 1)")
    case = of.case(ALL_ROWS, "eval", "drawn")
    y = of.reference.single.linear(case.inputs[0] * 10).exp()
    (row,) = of.judge(case.leaves, [(y / y.sum(1, keepdim=True)).detach()])
    assert len(y) == 64 and not row["ok"]


def test_a_problem_that_does_not_run_in_float64_is_refused():
    of = oracle("kept = torch.frombuffer(bytearray(64 * 4 * 4), dtype=torch.float32).view(64, 4)\n"
                "return kept.index_add_(0, torch.arange(64), y)")
    with pytest.raises(ProblemError, match="p.py: it does not run in float64"):
        of.case(REGIMES[0].name, "eval", "drawn")
