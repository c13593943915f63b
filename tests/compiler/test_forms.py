"""Other forms of operators: what is read, what is refused, and what a kernel of one computes."""

from __future__ import annotations

import pytest
import torch
from models import design, made, module, source

from kgen.compiler.fusion.chosen import Cut, CutError
from kgen.compiler.loops.expr import Expr, where, x, y, z
from kgen.compiler.loops.functions import absolute, erf, nan_max, sqrt
from kgen.compiler.operators.forms import FormError, read
from kgen.devices.hardware import cpu
from kgen.tuning.cutting import cut
from kgen.tuning.search import Point


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.5 * x * (1 + erf(x * 0.7))", 0.5 * x * (1.0 + erf(x * 0.7))),
        (" where(x > 0, x, -y)", where(x > 0.0, x, -y)),
        ("max(x, 2)**3", nan_max(x, 2.0) * nan_max(x, 2.0) * nan_max(x, 2.0)),
        ("x / sqrt(y) - abs(z)", x / sqrt(y) - absolute(z)),
    ],
)
def test_expressions_are_read(text: str, expected: Expr) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x +", "1.0", "v", "x.real", "__import__('os')", "x if x else y", "exp(x, y)", "exp(x=1)", "x > 0", "where(x, y, z)", "x**99", "x**y", "True * x",
     "1e999 * x", "f'{x}'", "[x for x in y]", "(lambda: x)()", "x" * 600, "(" * 240 + "x" + ")" * 240],
)  # fmt: skip
def test_what_is_no_expression_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(FormError) as refused:
        read(text)
    assert "\n" not in str(refused.value)


TEXT = source("return F.gelu(x) * y + 1", "torch.randn(6, 20), torch.randn(6, 20)", "", "x, y")


def test_kernel_computes_the_form_in_place_of_the_operator() -> None:
    of = design(made(TEXT), cpu())
    chosen = [cut(of, Cut((("gelu", "mul", "add"),), expressions=forms)) for forms in ((), (("gelu", "x * 2"),), (("gelu", "x * 3"),), (("mul", "y - x"),))]
    assert len(set(chosen)) == 4
    a, b = torch.randn(6, 20), torch.randn(6, 20)
    with torch.no_grad():
        found = [module(of.candidate(Point(number, of.options[number].plainest or ()))).ModelNew()(a, b) for number in chosen]
    gelu = torch.nn.functional.gelu(a)
    expected = [gelu * b + 1, 2 * a * b + 1, 3 * a * b + 1, b - gelu + 1]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("kernels", "form", "words"),
    [
        (("gelu",), ("gelu", "y * 2"), "gelu has no operand y: it has x"),
        (("gelu",), ("mul", "x"), "'mul' has an expression, and is in no kernel"),
        (("gelu",), ("gelu", "open(x)"), "'open(x)' is not known"),
    ],
)
def test_form_that_does_not_fit_is_refused(kernels: tuple[str, ...], form: tuple[str, str], words: str) -> None:
    of = design(made(TEXT), cpu())
    with pytest.raises(CutError) as refused:
        cut(of, Cut((kernels,), expressions=(form,)))
    assert words in str(refused.value)
