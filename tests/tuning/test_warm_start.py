"""What a search begins with: what the database knows to be fast of the same plans, on the same problem or on others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from models import design, made, source
from samples import Filled

from kgen.store import Database
from kgen.tuning.design import Design
from kgen.tuning.search import Point
from kgen.tuning.sweep import promising


@pytest.fixture(scope="module")
def larger() -> Design:
    return design(made(source("return torch.softmax(F.gelu(x), 1)", "torch.randn(64, 2048)")))


@pytest.fixture(scope="module")
def smaller() -> Design:
    return design(made(source("return torch.softmax(F.gelu(x), 1)", "torch.randn(32, 1024)")))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(str(tmp_path / "kgen.db")) as opened:
        yield opened


def swept(database: Database, of: Design, **ms_by_choice: float) -> Filled:
    """A sweep of a design's problem, with points of its first plan by their numbers (``n3``)."""
    filled = Filled(database, of.problem)
    for name, ms in ms_by_choice.items():
        filled.judge(of.candidate(Point(0, (int(name[1:]),))), ms=ms)
    return filled


def params(of: Design, points: list[Point]) -> list[dict]:
    return [dict(of.options[0].kernels[0][point.choice[0]]) for point in points]


def test_search_begins_with_what_was_fastest_at_another_size(database: Database, larger: Design, smaller: Design) -> None:
    fast = [n for n, of in enumerate(smaller.options[0].kernels[0]) if of in larger.options[0].kernels[0]][-2:]
    swept(database, smaller, n0=3.0, **{f"n{n}": 1.0 + i for i, n in enumerate(fast)})
    found = promising(database, Filled(database, larger.problem).sweep, larger, 2)
    assert params(larger, found) == params(smaller, [Point(0, (n,)) for n in fast])


def test_combinations_that_are_not_allowed_at_this_size_are_left_out(
    database: Database, larger: Design, smaller: Design
) -> None:
    mine, other = larger.options[0].kernels[0], smaller.options[0].kernels[0]
    too_large = next(n for n, of in enumerate(mine) if of not in other)
    swept(database, larger, **{f"n{too_large}": 1.0, "n0": 2.0})
    assert promising(database, Filled(database, smaller.problem).sweep, smaller, 5) == [Point(0, (0,))]


def test_search_of_an_unknown_problem_begins_with_nothing(database: Database, larger: Design) -> None:
    assert promising(database, Filled(database, larger.problem).sweep, larger, 5) == []


def test_no_point_is_begun_with_twice(database: Database, larger: Design) -> None:
    swept(database, larger, n1=1.0)
    swept(database, larger, n1=1.0)
    assert promising(database, Filled(database, larger.problem).sweep, larger, 5) == [Point(0, (1,))]
