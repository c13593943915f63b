"""The library's operators of a forward: how they are counted."""

import pytest
import torch
import torch.nn.functional as F

from kgen.evaluator.correctness import operators

X, W, B = torch.randn(4, 6), torch.randn(5, 6), torch.randn(5)
IMAGES, FILTERS = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)


def counted(forward):
    with torch.no_grad(), operators.Counted() as found:
        forward()
    return found


@pytest.mark.parametrize("forward, expected", [
    (lambda: F.linear(X, W, B).relu(), {"matmul": 1, "add": 1, "relu": 1}),
    (lambda: F.linear(X, W).add_(B).relu_(), {"matmul": 1, "add": 1, "relu": 1}),
    (lambda: F.conv2d(IMAGES, FILTERS, B[:4]), {"convolution": 1, "add": 1}),
    (lambda: F.conv2d(IMAGES, FILTERS), {"convolution": 1}),
    (lambda: F.scaled_dot_product_attention(IMAGES, IMAGES, IMAGES).softmax(-1), {"attention": 1, "softmax": 1}),
    (lambda: torch.empty_like(X).copy_(X.t().contiguous().t()).reshape(24).double(), {}),
    (lambda: torch.zeros((), dtype=torch.long).add_(1), {}),
])
def test_operators_count_by_what_they_compute(forward, expected):
    assert counted(forward).operators == expected


def test_operators_of_single_elements_are_known():
    assert counted(lambda: F.gelu(F.linear(X, W, B)).softmax(1)).elementwise == {"add", "gelu"}
