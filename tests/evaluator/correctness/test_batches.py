"""Whether the reference takes other batches, and how their outputs lie in memory."""

from __future__ import annotations

import pytest
import torch

from kgen.evaluator.correctness.batches import Batches, OfBatchError

TABLE = torch.arange(8)


def batches(forward, *, lost: bool = False) -> Batches:
    """Of one input of eight rows; the device is ``lost`` from the first error on."""
    failed = []

    def run(inputs, mode):
        try:
            return forward(*inputs), {}
        except IndexError:
            failed.append(lost)
            raise

    def wait() -> None:
        if any(failed):
            raise RuntimeError("device-side assert triggered")

    return Batches(run, wait, [torch.rand(8, 3, 2, 2)], {})


@pytest.mark.parametrize(("forward", "found"), [
    (lambda x: x + 1.0, (True, True)), (lambda x: x - x.mean(0), (True, False)), (lambda x: x.sum(0), (False, False)),
    (lambda x: x[TABLE], (False, False)),
])  # fmt: skip
def test_rows_are_taken_alone_or_not(forward, found: tuple[bool, bool]) -> None:
    assert batches(forward).goes_by_rows("eval", 4) == found


def test_an_index_beyond_fewer_rows_ends_a_devices_work() -> None:
    with pytest.raises(OfBatchError):
        batches(lambda x: x[TABLE], lost=True).goes_by_rows("eval", 4)
    with pytest.raises(OfBatchError):
        batches(lambda x: x[TABLE], lost=True).layouts_of_one_row("eval")
    assert batches(lambda x: x[TABLE]).layouts_of_one_row("eval") == []


def test_a_contraction_of_one_row_lies_otherwise_than_one_of_more() -> None:
    of = batches(lambda x: torch.einsum("bchw,dc->bdhw", x, torch.rand(3, 3)))
    assert of.layouts_of_one_row("eval") == [[[1, 3, 2, 2], [12, 4, 2, 1]]]
