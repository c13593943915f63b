"""Fences: which tensors get one, how long it stays, and that no memory is kept for it."""

import weakref

import pytest
import torch

from kgen.evaluator.runtime import fences
from kgen.evaluator.runtime.fences import Fences


def behind(x):
    """The bytes of a tensor's memory."""
    return torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage())


def write(x):
    """Write the byte that is just behind a tensor."""
    behind(x)[x.numel() * x.element_size()] = 0


@pytest.fixture
def mode():
    return Fences("cpu")


@pytest.mark.parametrize("make", [
    lambda: torch.empty(3), lambda: torch.ones(3).new_empty(2, 2), lambda: torch.empty_like(torch.ones(3, 2).t()),
    lambda: torch.empty_strided((2, 3), (1, 2)), lambda: torch.zeros(5, dtype=torch.bool), lambda: torch.ones(2).new_zeros(1),
], ids=["empty", "new_empty", "empty_like", "empty_strided", "zeros", "new_zeros"])
def test_byte_behind_a_new_tensor_is_watched(mode, make):
    expected = make()
    with mode:
        x = make()
    assert (x.shape, x.stride(), x.dtype, x.storage_offset()) == (expected.shape, expected.stride(), expected.dtype, 0)
    assert mode.is_whole()
    with mode:
        write(x)
    assert not mode.is_whole()


def test_element_that_nobody_writes_is_no_number(mode):
    with mode:
        x = torch.empty(3)
    assert x.isnan().all()


def test_memory_is_not_kept_between_blocks(mode):
    with mode:
        x = torch.empty(3)
    kept = weakref.ref(x.untyped_storage())
    assert mode.is_whole()
    del x
    assert kept() is None


def test_memory_of_many_workspaces_is_not_held(mode, monkeypatch):
    monkeypatch.setattr(fences, "_MOST_HELD", 10_000)
    with mode:
        kept = [torch.empty(9) for _ in range(5)]
        for _ in range(50):
            torch.empty(9)
    assert len(mode._fences) < 10 and mode.is_whole()
    with mode:
        write(kept[0])
    assert not mode.is_whole()


def test_workspace_that_was_let_go_was_looked_at(mode, monkeypatch):
    monkeypatch.setattr(fences, "_MOST_HELD", 10_000)
    with mode:
        write(torch.empty(9))
        for _ in range(50):
            torch.empty(9)
    assert not mode.is_whole()


@pytest.mark.parametrize(("place", "whole"), [(1023, True), (1024, False), (1279, False), (1280, True)])
def test_gaps_between_the_parts_of_an_allocation_are_watched(mode, place, whole):
    with mode:
        x = torch.empty(3000, dtype=torch.uint8)
        mode.see_launch([x.data_ptr(), x.data_ptr() + 1280, 5, None])
        x[place] = 0
        del x
    assert mode.is_whole() is whole


def test_a_part_of_numbers_has_no_gap_in_front_of_it(mode):
    with mode:
        x = torch.empty(3000)
        mode.see_launch([x.data_ptr() + 1280])
        x.fill_(0.0)
    assert mode.is_whole()


def test_memory_of_another_device_and_pinned_memory_have_no_fence():
    with Fences("cuda"):
        x = torch.empty(3)
    assert x.untyped_storage().nbytes() == 12
