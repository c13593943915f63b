"""Thinning: fewer points where many overlap, so that a page stays small and draws at once."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Iterable, Sequence, TypeVar

T = TypeVar("T")


def thin(items: Iterable[T], cells: int, x: Callable[[T], float], y: Callable[[T], float]) -> list[tuple[T, int]]:
    """The first item in each cell of a grid over the points, with the number of items in the cell.

    The grid has ``cells`` columns and rows. With about fifty of them, a cell is as large as the mark of a point.
    A dropped point then lies under one that is kept.
    """
    found = list(items)
    columns, rows = (_binned([place(item) for item in found], cells) for place in (x, y))
    places = list(zip(columns, rows, strict=True))
    counts = Counter(places)
    first = dict(zip(reversed(places), reversed(found), strict=True))  # of equal keys the last one stays
    return [(first[place], count) for place, count in counts.items()]


def _binned(values: Sequence[float], cells: int) -> list[int]:
    """The place of each value among equal parts of their range."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    width = (high - low) / cells or 1.0
    return [min(int((value - low) / width), cells - 1) for value in values]
