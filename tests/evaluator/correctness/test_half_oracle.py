"""Half precision: the reference is float64 on the same rounded values, and its error PyTorch's own in that dtype."""

from __future__ import annotations

import pytest
import torch

from kgen.errors import ProblemError
from kgen.evaluator.correctness.health import health
from kgen.evaluator.correctness.oracle import Oracle
from kgen.problems.problem import HALF, Problem
from kgen.protocol import Accuracy

TEXT = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 24)

    def forward(self, x):
        y = torch.nn.functional.gelu(self.linear(x))
        return torch.softmax(y, 1), y.argmax(1)


def get_inputs():
    return [torch.randn(16, 32)]


__dtype__ = "{dtype}"  # kgen converts the model
"""


def oracle(dtype: str, accuracy: Accuracy = Accuracy.PYTORCH) -> Oracle:
    return Oracle(Problem("p", "p.py", TEXT.format(dtype=dtype), (), "eval", "eval"), "cpu", accuracy, 1, 2, shared=False, strict=True)


@pytest.mark.parametrize("dtype", HALF)
def test_one_rounding_at_the_end_is_right_in_each_distribution_and_zeros_are_not(dtype: str) -> None:
    of = oracle(dtype)
    assert of.accuracy is Accuracy.PYTORCH and not health(of)
    wide = of.loaded.model().float()
    for name, mode in of.names():
        case = of.case(name, mode, "drawn")
        wide.load_state_dict({key: value.float() for key, value in of.state(case.distribution, "drawn").items()})
        with torch.no_grad():
            values, places = wide(case.inputs[0].float())
        assert case.inputs[0].dtype == getattr(torch, dtype)
        once, _ = of.judge(case, [values.to(getattr(torch, dtype)), places])
        assert once["ok"] and once["ratio"] <= 1.0, (name, once)
        assert not of.judge(case, [torch.zeros_like(values), places])[0]["ok"], name


def test_half_types_are_refused_in_other_classes() -> None:
    with pytest.raises(ProblemError, match="it is in bfloat16, which is judged by PyTorch's own error: use --accuracy pytorch"):
        oracle("bfloat16", Accuracy.FP32)
