"""Inputs of timed calls are mixed anew for every call; some batches are known to nobody."""

import pytest
import torch

from kgen.evaluator.protocol import SCALED
from kgen.evaluator.regimes import (
    REGIMES, change_inputs, change_weights, drawn_batches, recombine, recombine_column,
)


def complete(pool, key, values="given"):
    buffers = [torch.empty_like(x) for x in pool[0]]
    recombine(buffers, pool, key, values)
    return buffers


def mixed(pool, key):
    return complete(pool, key)[0]


def test_every_element_comes_from_its_place_in_one_of_two_input_sets():
    pool = [[torch.randn(7, 33)] for _ in range(4)]
    x = mixed(pool, 12345)
    sources = [int((x == given).sum()) for (given,) in pool]
    assert sum(sources) == x.numel() and sum(count > 0 for count in sources) == 2


def test_no_row_comes_twice():
    pool = [[torch.randn(8, 64)] for _ in range(2)]
    rows = {tuple(row.tolist()) for key in range(50) for row in mixed(pool, key)}
    assert len(rows) == 50 * 8


@pytest.mark.parametrize("axis", range(4))
def test_nothing_comes_twice_along_any_dimension(axis):
    pool = [[torch.randn(16, 16, 16, 16)] for _ in range(2)]
    slices = {tuple(x.flatten().tolist()) for key in range(5) for x in mixed(pool, key).movedim(axis, 0)}
    lines = {tuple(x.tolist()) for key in range(5) for x in mixed(pool, key).movedim(axis, -1).reshape(-1, 16)}
    assert len(slices) == 5 * 16 and len(lines) > 0.99 * 5 * 16**3


@pytest.mark.parametrize("row", [
    lambda: torch.arange(5), lambda: torch.randperm(5), lambda: torch.full((5,), 7)])
def test_a_row_of_integers_that_depend_on_each_other_comes_from_one_set(row):
    pool = [[torch.stack([row() + 10 * number for _ in range(16)])] for number in range(3)]
    x = mixed(pool, 7) // 10
    assert (x == x[:, :1]).all() and len(x[:, 0].unique()) == 2


@pytest.mark.parametrize("made", [
    lambda: torch.arange(0, 50, 10), lambda: torch.tensor([9, 9, 7, 4, 4]), lambda: torch.randperm(50)])
def test_integers_of_one_dimension_that_depend_on_each_other_come_from_one_set(made):
    pool = [[made() + 100 * number] for number in range(3)]
    found = [mixed(pool, key) for key in range(20)]
    assert all(any(torch.equal(x, given) for (given,) in pool) for x in found)
    assert len({int(x[0]) // 100 for x in found}) == 3


def test_class_indices_are_mixed():
    pool = [[torch.randint(10, (256,)) + 100 * number] for number in range(2)]
    assert len((mixed(pool, 7) // 100).unique()) == 2


def test_no_row_of_other_integers_comes_twice():
    pool = [[torch.randint(20, (8, 64))] for _ in range(2)]
    rows = {tuple(row.tolist()) for key in range(50) for row in mixed(pool, key)}
    assert len(rows) == 50 * 8


@pytest.mark.parametrize("values", ["given", SCALED])
@pytest.mark.parametrize("shape", [(), (50,), (1, 1), (7, 33), (3, 4, 5)])
def test_contents_are_complete_when_their_last_column_has_come(shape, values):
    pool = [[torch.randn(shape), torch.randint(9, shape)] for _ in range(3)]
    buffers = [torch.zeros_like(x) for x in pool[0]]
    recombine(buffers, pool, 77, values, but_a_column=True)
    wrong = [x != whole for x, whole in zip(buffers, complete(pool, 77, values))]
    recombine_column(buffers, pool, 77, values)
    assert all(x.equal(whole) for x, whole in zip(buffers, complete(pool, 77, values)))
    lines = wrong[0].reshape(-1, shape[-1] if shape else 1)
    assert bool((lines.sum(1) == 1).all()) and len(lines.unique(dim=0)) == 1


def test_the_same_key_gives_the_same_contents():
    pool = [[torch.randn(5), torch.randn(()), torch.randint(9, (3, 2))] for _ in range(3)]
    assert all(mixed(pool, 3).equal(mixed(pool, 3)) for _ in range(3))


@pytest.mark.parametrize("shape", [(), (7,), (13, 5), (2, 3, 4)])
def test_other_values_are_the_same_mixture_with_its_rows_scaled(shape):
    pool = [[torch.randn(shape), torch.randint(9, (4, 5))] for _ in range(3)]
    assert all(map(torch.equal, complete(pool, 77, SCALED), change_inputs(complete(pool, 77), SCALED, 0)))


def test_scaled_rows_are_of_both_signs_and_of_very_different_size():
    (x,) = change_inputs([torch.ones(64, 3).t().contiguous().t()], SCALED, 0)
    assert (x == x[:, :1]).all() and x.stride() == (1, 64)
    assert x.min() < 0 and x.abs().max() >= 1e3 * x.abs().min() > 0


@pytest.mark.parametrize("how, changed", [("matrices", ["matrix"]), ("vectors", ["number", "vector"])])
def test_one_element_changes_of_each_tensor_of_one_kind(how, changed):
    state = {"matrix": torch.randn(4, 5).t(), "vector": torch.randn(6), "number": torch.tensor(2.0),
             "empty": torch.ones(0), "count": torch.tensor(3)}
    now = change_weights(state, how)
    differs = {name: int((now[name] != value).sum()) for name, value in state.items()}
    assert sorted(name for name, count in differs.items() if count == 1) == changed
    assert sum(differs.values()) == len(changed)


def _few_small() -> torch.Tensor:
    """Small in the middle, where few are looked at."""
    x = torch.rand(300, 100) + 1
    x.view(-1)[12_000:18_000] = 1e-9
    return x


@pytest.mark.parametrize("x", [
    torch.randn(300, 100), torch.randn(300, 100).bfloat16(), torch.randn(300, 100).double(), _few_small(),
    _few_small() * (_few_small() > 1),
], ids=["float32", "bfloat16", "float64", "small in the middle", "zero in the middle"])
def test_one_element_of_a_large_tensor_changes_by_itself_at_least(x):
    now = change_weights({"matrix": x}, "matrices")["matrix"]
    changed = now != x
    assert int(changed.sum()) == 1 and float((now - x).abs().max()) >= float(x[changed].abs())
    assert torch.equal(now, change_weights({"matrix": x}, "matrices")["matrix"])


def test_a_drawn_batch_is_none_that_is_always_tried():
    always = {regime.batch for regime in REGIMES}
    drawn = {regime.batch for secret in range(200) for regime in drawn_batches(secret, 512)}
    assert not drawn & always and len(drawn) > 30 and all(1 < rows < 512 for rows in drawn)


def test_batches_have_every_remainder_of_eight_but_for_a_sign():
    batches = [regime.batch for regime in (*REGIMES, *drawn_batches(5, 512)) if regime.shape_only]
    assert {min(rows % 8, -rows % 8) for rows in batches} | {0} == set(range(5))  # the others are multiples


@pytest.mark.parametrize("secret", range(20))
def test_a_drawn_batch_has_a_whole_tile_and_a_part_of_one(secret):
    largest = drawn_batches(secret, 4096)[-1].batch
    assert all(largest > tile and largest % tile for tile in (16, 32, 64, 128, 256))


@pytest.mark.parametrize("rows", range(10))
def test_drawn_batches_are_smaller_than_the_problems_own(rows):
    assert all(1 < regime.batch < rows for secret in range(9) for regime in drawn_batches(secret, rows))
