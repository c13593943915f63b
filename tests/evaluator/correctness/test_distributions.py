"""Inputs of timed calls are mixed anew for every call; some batches are known to nobody."""

import pytest
import torch

from kgen.evaluator.correctness.distributions import (
    ALIKE,
    DISTRIBUTIONS,
    SCALED,
    VALUES,
    change_inputs,
    change_weights,
    drawn_batches,
    mixtures,
    seed_of,
)


def mixed(pool, key):
    buffers = [torch.empty_like(x) for x in pool[0]]
    for mixture in mixtures(buffers, pool, key):
        mixture.fill()
    return buffers[0]


def test_every_element_comes_from_its_place_in_one_of_two_input_sets():
    pool = [[torch.randn(7, 65)] for _ in range(4)]
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


@pytest.mark.parametrize("row", [lambda: torch.arange(5), lambda: torch.full((5,), 7)])
def test_a_row_of_integers_that_depend_on_each_other_comes_from_one_set(row):
    pool = [[torch.stack([row() + 10 * number for _ in range(16)])] for number in range(3)]
    x = mixed(pool, 7) // 10
    assert (x == x[:, :1]).all() and len(x[:, 0].unique()) == 2


@pytest.mark.parametrize("made", [
    lambda: torch.arange(0, 50, 10), lambda: torch.tensor([9, 9, 7, 4, 4])])
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


def test_the_same_key_gives_the_same_contents():
    pool = [[torch.randn(5), torch.randn(()), torch.randint(9, (3, 2))] for _ in range(3)]
    assert all(mixed(pool, 3).equal(mixed(pool, 3)) for _ in range(3))


def test_scaled_rows_are_of_both_signs_and_of_very_different_size():
    (x,) = change_inputs([torch.ones(64, 3).t().contiguous().t()], SCALED, 0)
    sizes = x.abs()[x[:, 0] != 0]
    assert (x == x[:, :1]).all() and x.stride() == (1, 64)
    assert x.min() < 0 and sizes.max() >= 1e3 * sizes.min() > 0 and (x == 31).any() and (x == 0).any()


def test_which_rows_are_others_is_drawn():
    x = torch.randn(1000, 4)
    found = [(change_inputs([x], "non-finite", seed)[0] != x).any(1).nonzero().flatten().tolist() for seed in range(20)]
    assert {len(rows) for rows in found} == {6} and len(set(map(tuple, found))) == 20


def test_a_row_is_another_but_for_one_element():
    x = torch.randn(1000, 4)
    (changed,) = change_inputs([x], "non-finite", 0)
    alike = [int((row == x).sum(1).max()) for row, before in zip(changed, x) if not torch.equal(row, before)]
    assert sorted(alike) == [0, 0, 3, 3, 3, 3]


def test_in_a_few_rows_outliers_lie_together():
    (x,) = change_inputs([torch.ones(64, 512)], "outliers", 0)
    large = x == 100
    most = torch.cat([large, large[:, :31]], 1).unfold(1, 32, 1).sum(2).amax(1)  # in 32 columns, around the end too
    assert (most == 32).sum() == 4 and (most <= 4).sum() == 60 and (most > 0).sum() > 10
    assert large.sum() < 300


def _nearest(rows, others):
    """How far each of ``rows`` is from the nearest of ``others``, in shares of that."""
    apart = torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist")
    distance, index = apart.masked_fill(apart == 0, float("inf")).min(1)
    return distance / others[index].norm(dim=1)


def test_every_other_row_is_all_but_a_row_of_its_own_of_an_input_before_or_of_a_matrix():
    matrix, wide = torch.randn(30, 64), torch.randn(64, 50)
    x, y, flat = change_inputs([torch.randn(40, 3, 64), torch.randn(100, 64), torch.ones(9)], ALIKE, 0,
                               [matrix, wide, torch.randn(64)])
    for rows, others in ((x.view(-1, 64), [x.view(-1, 64), matrix, wide.T]), (y, [y, x.view(-1, 64), matrix, wide.T])):
        near = torch.stack([_nearest(rows, other) < 0.005 for other in others])
        assert all(near.any(1)) and 0.5 <= near.any(0).double().mean() < 0.9
    assert torch.equal(flat, torch.ones(9))


@pytest.mark.parametrize("how", ["non-finite", "outliers", SCALED, ALIKE])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 3), (0, 4), (7, 0), (7, 1)])
def test_few_rows_can_be_others_too(shape, how):
    assert change_inputs([torch.ones(shape)], how, 0)[0].shape == shape


@pytest.mark.parametrize("how", [*VALUES, ALIKE])
def test_complex_numbers_change_as_pairs_of_real_ones(how: str) -> None:
    x = torch.randn(40, 8, dtype=torch.complex64)
    (changed,), (pairs,) = change_inputs([x], how, 0), change_inputs([torch.view_as_real(x)], how, 0)
    assert changed.dtype == x.dtype
    torch.testing.assert_close(torch.view_as_real(changed), pairs, rtol=0.0, atol=0.0, equal_nan=True)


def test_the_seed_of_a_timed_call_does_not_tell_its_key():
    seeds = [seed_of(key) for key in range(100)]
    assert len(set(seeds)) == 100 and max(seeds) < 1 << 48 and max(seeds) > 1 << 40


def test_a_drawn_batch_is_none_that_is_always_tried():
    always = {one.batch for one in DISTRIBUTIONS}
    drawn = {one.batch for secret in range(200) for one in drawn_batches(secret, 512)}
    assert not drawn & always and len(drawn) > 30 and all(1 < rows < 512 for rows in drawn)


def test_batches_have_every_remainder_of_eight_but_for_a_sign():
    batches = [one.batch for one in (*DISTRIBUTIONS, *drawn_batches(5, 512)) if one.shape_only]
    assert {min(rows % 8, -rows % 8) for rows in batches} | {0} == set(range(5))  # the others are multiples


@pytest.mark.parametrize("secret", range(20))
def test_a_drawn_batch_has_a_whole_tile_and_a_part_of_one(secret):
    largest = drawn_batches(secret, 4096)[-1].batch
    assert all(largest > tile and largest % tile for tile in (16, 32, 64, 128, 256))


@pytest.mark.parametrize("rows", range(10))
def test_drawn_batches_are_smaller_than_the_problems_own(rows):
    assert all(1 < one.batch < rows for secret in range(9) for one in drawn_batches(secret, rows))


def test_permutations_stay_permutations():
    pool = [[torch.rand(8, 50).argsort()] for _ in range(2)]
    found = [mixed(pool, key) for key in range(50)]
    assert all(torch.equal(x.sort(1).values, torch.arange(50).expand(8, 50)) for x in found)


def test_own_candidates_get_twelve_distributions_and_every_distribution_has_a_purpose():
    every = (*DISTRIBUTIONS, *drawn_batches(0, 512))
    assert sum(one.own for one in every) == 12 and all(one.purpose for one in every)
    assert every[0].own


@pytest.mark.parametrize("how", ["drawn", "rolled", "positive"])
def test_tied_parameters_stay_tied(how):
    state = {"a": torch.randn(4, 3), "b": torch.zeros(4, 3), "count": torch.tensor(3)}
    now = change_weights(state, how, ties={"b": "a"})
    assert now["b"] is now["a"] and torch.equal(now["a"], state["a"]) is (how == "drawn")
