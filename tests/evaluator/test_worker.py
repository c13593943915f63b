"""What a worker looks at of an output when its call ended."""

import pytest
import torch

from kgen.evaluator.arena import describe, tensors
from kgen.evaluator.worker import _sampled

PAGE = 4096


@pytest.mark.parametrize("key", [0, 1, 12345, 2**48 - 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8])
def test_some_of_every_page_is_read(dtype, key):
    pages = 4096 * 2
    x = torch.zeros(pages * PAGE // dtype.itemsize, dtype=dtype)
    for page in (0, 7, pages - 1):
        x.zero_()
        x[page * PAGE // dtype.itemsize : (page + 1) * PAGE // dtype.itemsize] = 1
        (found,) = _sampled(x, key)
        assert found.sum() >= 1


@pytest.mark.parametrize("x", [
    torch.arange(12.0).view(3, 4).t(), torch.ones(1).expand(5, 6), torch.tensor(3.0), torch.ones(4, 8)[1:3, 2:5],
], ids=["transposed", "expanded", "a scalar", "a window"])
def test_outputs_of_any_layout_are_read_inside_their_memory(x):
    for key in range(9):
        (found,) = _sampled(x, key)
        everything = x.as_strided((x.untyped_storage().nbytes() // 4,), (1,), 0)
        assert found.numel() and set(found.tolist()) <= set(everything.tolist())


def test_an_empty_output_has_nothing_to_read():
    assert [found.numel() for found in _sampled([torch.ones(0, 3)], 5)] == [0]


def test_the_order_of_a_dict_does_not_tell_its_parts_apart():
    a, b = torch.ones(2), torch.zeros(3)
    assert describe({"a": a, "b": b}) == describe({"b": b, "a": a})
    assert [x.numel() for x in tensors({"b": b, "a": a})] == [2, 3]
    assert describe({1: a}) != describe({"1": a})


def test_a_class_that_says_it_is_a_tensor_is_none():
    kind = type("Equal", (type(torch.Tensor),), {"__eq__": lambda *_: True, "__hash__": type.__hash__})
    lazy = torch.ones(2).as_subclass(kind("Lazy", (torch.Tensor,), {}))
    assert describe(lazy)[0]["kind"] == "other" and tensors([lazy]) == []
