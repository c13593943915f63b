"""Combines in C: how a thread starts a reduction, takes values in, and merges what another thread found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from kgen.codegen.symbols import symbol
from kgen.compiler.operators.reductions import COMBINES

WHOLE = symbol("int64_t")  #: the C type of results of integers
PLACE = "long long"  #: the C type of places; kernels whose places all fit an ``int`` keep them so


@dataclass(frozen=True)
class Combine:
    """One kind of reduction.

    ``starts`` are the results of no values, ``types`` their C types; both in the order of
    :data:`kgen.compiler.operators.reductions.COMBINES`. ``merge`` takes in other results, ``take`` takes in values;
    ``{0}``, ``{1}``, ... stand for the results, then for what is taken in. A kind without ``take`` takes in chunks of
    values, by a function of the device. ``in_order`` is a cheaper ``take`` of a value whose place comes after all
    places before; the last result starts as the first place. ``word`` says what a comment calls it. ``between`` are the
    C types in which threads merge what they found, where ``types`` would round too much.
    """

    word: str
    starts: tuple[str, ...]
    merge: str
    take: str = ""
    types: tuple[str, ...] = ()
    in_order: str = ""
    between: tuple[str, ...] = ()

    def merged(self, results: Sequence[str], others: Sequence[str]) -> str:
        """The statement that merges other results into these."""
        return self.merge.format(*results, *others)


def _scalar(word: str, start: str, merge: str, type_: str = "float") -> Combine:
    return Combine(word, (start,), merge, merge, (type_,))


def _extreme(word: str, kind: str, start: str) -> Combine:
    merge, in_order = (f"{symbol(f'{how}_{kind}')}({{0}}, {{1}}, {{2}}, {{3}});" for how in ("merge", "take"))
    return Combine(word, (start, "9223372036854775807LL"), merge, merge, ("float", PLACE), in_order)


#: How each kind is spelled.
SPELLED = {
    "sum": _scalar("The sum", "0.0f", "{0} += {1};"),
    "product": _scalar("The product", "1.0f", "{0} *= {1};"),
    "max": _scalar("The maximum", "-INFINITY", f"{{0}} = {symbol('nan_max')}({{0}}, {{1}});"),
    "min": _scalar("The minimum", "INFINITY", f"{{0}} = {symbol('nan_min')}({{0}}, {{1}});"),
    "max_finite": _scalar("The maximum, NaN left out,", "-FLT_MAX", "{0} = fmaxf({0}, {1});"),
    "argmax": _extreme("The maximum and its first place", "argmax", "-INFINITY"),
    "argmin": _extreme("The minimum and its first place", "argmin", "INFINITY"),
    "softmax": Combine(
        "Running maxima and sums",
        ("-FLT_MAX", "0.0f"),
        symbol("merge_softmax") + "({0}, {1}, {2}, {3});",
        "",
        ("float",) * 2,
    ),
    # The last merges would round as much as PyTorch errs in all: it may be the error of a running variance.
    "moments": Combine(
        "Moments",
        ("0.0f",) * 3,
        symbol("merge_moments") + "({0}, {1}, {2}, {3}, {4}, {5});",
        types=("float",) * 3,
        between=("double",) * 3,
    ),
    "whole_sum": _scalar("The sum of integers", "0", "{0} += {1};", WHOLE),
    "whole_product": _scalar("The product of integers", "1", "{0} *= {1};", WHOLE),
    "whole_max": _scalar("The maximum of integers", "INT64_MIN", "{0} = {1} > {0} ? {1} : {0};", WHOLE),
    "whole_min": _scalar("The minimum of integers", "INT64_MAX", "{0} = {1} < {0} ? {1} : {0};", WHOLE),
}

assert {kind: len(c.starts) for kind, c in SPELLED.items()} == {kind: len(names) for kind, names in COMBINES.items()}
