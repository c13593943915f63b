"""Combines in C: how a thread starts a reduction, takes values in, and merges what another thread found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from kgen.compiler.operators import COMBINES


@dataclass(frozen=True)
class Combine:
    """One kind of reduction.

    ``starts`` are the results of no values, ``types`` their C types; both in the order of
    :data:`kgen.compiler.operators.COMBINES`. ``merge`` takes in other results, ``take`` takes in values; ``{0}``, ``{1}``,
    ... stand for the results, then for what is taken in. A kind without ``take`` takes in chunks of values, by a function of
    the device. ``word`` says what a comment calls it.
    """

    word: str
    starts: tuple[str, ...]
    merge: str
    take: str = ""
    types: tuple[str, ...] = ()

    def merged(self, results: Sequence[str], others: Sequence[str]) -> str:
        """The statement that merges other results into these."""
        return self.merge.format(*results, *others)


def _scalar(word: str, start: str, merge: str) -> Combine:
    return Combine(word, (start,), merge, merge, ("float",))


_EXTREME = "merge_{kind}({{0}}, {{1}}, {{2}}, {{3}});"
_NO_PLACE = "9223372036854775807LL"

#: How each kind is spelled.
SPELLED = {
    "sum": _scalar("The sum", "0.0f", "{0} += {1};"),
    "product": _scalar("The product", "1.0f", "{0} *= {1};"),
    "max": _scalar("The maximum", "-INFINITY", "{0} = nan_max({0}, {1});"),
    "min": _scalar("The minimum", "INFINITY", "{0} = nan_min({0}, {1});"),
    "max_finite": _scalar("The maximum, NaN left out,", "-FLT_MAX", "{0} = fmaxf({0}, {1});"),
    "argmax": Combine("The maximum and its first place", ("-INFINITY", _NO_PLACE), *[_EXTREME.format(kind="argmax")] * 2, ("float", "long long")),
    "argmin": Combine("The minimum and its first place", ("INFINITY", _NO_PLACE), *[_EXTREME.format(kind="argmin")] * 2, ("float", "long long")),
    "softmax": Combine("Running maxima and sums", ("-FLT_MAX", "0.0f"), "merge_softmax({0}, {1}, {2}, {3});", "", ("float",) * 2),
    "moments": Combine("Moments", ("0.0f",) * 3, "merge_moments({0}, {1}, {2}, {3}, {4}, {5});", "", ("float",) * 3),
}  # fmt: skip

assert {kind: len(c.starts) for kind, c in SPELLED.items()} == {kind: len(names) for kind, names in COMBINES.items()}
