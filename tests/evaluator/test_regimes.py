"""Inputs of timed calls are mixed anew for every call; one batch is known to nobody."""

import torch

from kgen.evaluator.regimes import REGIMES, drawn_batch, recombine


def mixed(pool, key):
    buffers = [torch.empty_like(x) for x in pool[0]]
    recombine(buffers, pool, key)
    return buffers[0]


def test_every_element_comes_from_its_place_in_one_of_two_input_sets():
    pool = [[torch.randn(7, 33)] for _ in range(4)]
    x = mixed(pool, 12345)
    sources = [int((x == given).sum()) for (given,) in pool]
    assert sum(sources) == x.numel() and sum(count > 0 for count in sources) == 2


def test_no_row_comes_twice():
    pool = [[torch.randn(8, 64)] for _ in range(2)]
    rows = {tuple(row.tolist()) for key in range(50) for row in mixed(pool, key)}
    assert len(rows) == 50 * 8


def test_a_row_of_integers_comes_from_one_set():
    pool = [[torch.full((16, 5), number)] for number in range(3)]
    x = mixed(pool, 7)
    assert (x == x[:, :1]).all() and len(x[:, 0].unique()) == 2


def test_the_same_key_gives_the_same_contents():
    pool = [[torch.randn(5), torch.randn(()), torch.randint(9, (3, 2))] for _ in range(3)]
    assert all(mixed(pool, 3).equal(mixed(pool, 3)) for _ in range(3))


def test_a_drawn_batch_is_none_that_is_always_tried():
    always = {regime.batch for regime in REGIMES}
    drawn = {drawn_batch(secret).batch for secret in range(200)}
    assert not drawn & always and len(drawn) > 30 and all(1 < rows < 63 for rows in drawn)
