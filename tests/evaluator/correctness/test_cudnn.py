"""How cuDNN multiplies: the calls that are noted, and what their errors say. The errors themselves need a GPU."""

from dataclasses import asdict

import pytest
import torch
from torch.nn import functional as F

from kgen.evaluator.correctness import cudnn
from kgen.protocol import LibraryProduct, read_product

EXACT, ROUNDED = 1.5e-7, 2.9e-4  # relative errors of float32 and of TF32


def calls(*shapes: tuple[int, ...]) -> list[cudnn.Call]:
    """The calls of convolutions of three channels of images of these shapes."""
    weight = torch.randn(4, 3, 3, 3)
    with cudnn.Noted() as noted:
        for shape in shapes:
            F.conv2d(torch.randn(shape), weight, stride=2, padding=1)
    return noted.calls


def test_a_call_is_noted_by_the_shapes_and_strides_of_its_operands() -> None:
    weight, x = torch.randn(4, 3, 3, 3), torch.randn(2, 3, 8, 8)
    with cudnn.Noted() as noted:
        F.conv2d(x, weight)
        F.conv2d(x + 1, weight)
        F.conv2d(x.to(memory_format=torch.channels_last), weight)
    first, again, other = noted.calls
    assert first == again != other


@pytest.mark.parametrize("forward, multiplies", [("x @ x.t()", True), ("F.linear(x, x)", True), ("x.relu()", False)])
def test_matmuls_are_noted(forward: str, multiplies: bool) -> None:
    with cudnn.Noted() as noted:
        eval(forward, {"F": F}, {"x": torch.randn(4, 4)})
    assert noted.matmuls is multiplies


def test_a_product_has_the_shapes_of_the_problems_own_batch_and_the_errors_of_every_one() -> None:
    (found,) = cudnn.products(calls((16, 3, 8, 8)), {16: (ROUNDED,), 1: (EXACT,)})
    assert (found.input, found.weight, found.stride, found.padding) == ((16, 3, 8, 8), (4, 3, 3, 3), (2, 2), (1, 1))
    assert found.errors == ((16, ROUNDED), (1, EXACT))
    assert not found.tf32 and found.tf32_at_most_rows
    assert found.reason == "cuDNN used float32 at a batch of 1"


def test_equal_calls_are_one_product_as_exact_as_the_most_exact() -> None:
    (found,) = cudnn.products(calls((2, 3, 8, 8), (2, 3, 8, 8)), {2: (ROUNDED, EXACT)})
    assert found.errors == ((2, EXACT),)


def test_other_calls_at_another_batch_count_as_float32() -> None:
    (found,) = cudnn.products(calls((2, 3, 8, 8)), {2: (ROUNDED,), 1: ()})
    assert not found.tf32 and found.tf32_at_most_rows


@pytest.mark.parametrize("errors, reason", [
    (((4, ROUNDED), (1, ROUNDED)), "cuDNN used TF32"), (((4, EXACT),), "cuDNN used float32"), ((), "it was not measured"),
])
def test_the_reason_names_what_cudnn_used(errors: tuple[tuple[int, float], ...], reason: str) -> None:
    assert LibraryProduct("aten.convolution", (1,), (1,), errors=errors).reason == reason


def test_a_product_comes_back_from_json() -> None:
    (found,) = cudnn.products(calls((2, 3, 8, 8)), {2: (ROUNDED,)})
    assert read_product(asdict(found)) == found


def test_the_error_of_a_convolution_is_that_of_its_own_arithmetic() -> None:
    (error,) = cudnn.Products("cpu").errors(calls((2, 3, 8, 8)))
    assert 1e-9 < error < 1e-6


def test_half_types_have_no_error_in_tf32() -> None:
    with cudnn.Noted() as noted:
        F.conv2d(torch.randn(1, 3, 8, 8).bfloat16(), torch.randn(4, 3, 3, 3).bfloat16())
    assert cudnn.Products("cpu").errors(noted.calls) == (0.0,)
