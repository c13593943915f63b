"""The combinations of parameters that cannot work for a contraction in CUDA, or cannot win."""

from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from kgen.codegen.space import Constraint
from kgen.templates.cuda.contraction.cost import microseconds
from kgen.templates.cuda.contraction.schedule import LIBRARY_INTERVAL, SHORT_K, Contraction, Shape
from kgen.templates.cuda.contraction.tiles import STEP, TILES

# PyTorch's own contraction of fewer rows and shorter sums is more exact than the library's over such intervals. It
# shares the sums of a few rows among many threads.
_MANY_ROWS = 512  # rows
_LONG_K = 8192  # elements of k

#: Bytes; the most that the library's sums may take. A candidate gets some GiB beside what PyTorch needs.
_SUMS_BYTES = 1 << 30
_MMA_SHARE = 0.65  # of the time of wgmma; with the factor of "slow", mma may be predicted to take 1.3 times as long


def slow(allowed: Sequence[Contraction], others_than_slices: float) -> Constraint[Contraction]:
    """The constraint that rules out combinations that cannot win."""
    fastest: dict[str, float] = {}
    for s in allowed:
        us = microseconds(s)
        fastest[s.variant] = min(us, fastest.get(s.variant, us))
    own = min((us for variant, us in fastest.items() if variant != "library"), default=0.0)
    fastest["whole"] = own  # that variant is for small contractions alone
    fastest["slices"] = others_than_slices / 2
    if (
        "mma" in fastest and "sm90" in fastest
    ):  # and mma, beside wgmma, for results of few tiles, where its small tiles win
        fastest["mma"] = min(fastest["mma"], _MMA_SHARE * fastest["sm90"])
    return Constraint(
        "slow",
        ("variant", "products", "tile", "splits", "cluster", "multicast", "stages", "term_bits"),
        "by waves of tiles, another combination of the variant (for whole rows, of any of ours) takes less than half "
        "the time;"
        " slices of k, which blocks split themselves, are to be faster than anything else",
        lambda s: microseconds(s) <= 2.0 * fastest.get(s.variant, 0.0),
    )


def constraints(shape: Shape, tf32: bool) -> tuple[Constraint[Contraction], ...]:
    """The constraints of every space; :func:`slow` needs the predicted times of what they allow."""
    one_product = Constraint(
        "one_product",
        ("products",),
        "one product of float16 terms is only as accurate as TF32, and the accuracy class asks for more",
        lambda s: s.products == 3 or tf32 or shape.narrow,
    )
    return (
        one_product,
        *(_of_variants(False, c) for c in _own_constraints(shape)),
        *(_of_variants(True, c) for c in _library_constraints(shape)),
    )


def _of_variants(library: bool, of: Constraint[Contraction]) -> Constraint[Contraction]:
    """The constraint for the library alone, or for all other variants alone."""
    return replace(of, reads=("variant", *of.reads), holds=lambda s: s.library is not library or of.holds(s))


def _library_constraints(shape: Shape) -> tuple[Constraint[Contraction], ...]:
    return (
        Constraint(
            "matrices",
            (),
            "the library is given one matrix on the right; batches of them are left to kernels of our own",
            lambda s: not shape.grouped,
        ),
        Constraint(
            "few_rows",
            (),
            f"short sums of {shape.rows} rows are more exact in PyTorch than the library's over {LIBRARY_INTERVAL} of "
            "k",
            lambda s: not shape.few and (shape.rows >= _MANY_ROWS or shape.k >= _LONG_K),
        ),
        Constraint(
            "promotion_intervals",
            ("splits", "products"),
            "three products are promoted after short intervals of k; one product, as accurate as TF32, is not",
            lambda s: s.splits == (shape.intervals if s.products == 3 else 1),
        ),
        Constraint(
            "sums_memory",
            ("splits", "products"),
            "the sums of so many intervals would take more than a GiB",
            lambda s: 4 * s.partials * shape.rows * shape.cols <= _SUMS_BYTES,
        ),
    )


def _own_constraints(shape: Shape) -> tuple[Constraint[Contraction], ...]:
    rows, cols = shape.rows, shape.cols
    shared = ("128x256", "128x128") if shape.k <= SHORT_K else ("128x256",)  # tiles, where there are many rows of them

    room = ("variant", "tile", "stages", "splits")  # that shared memory is taken by
    return (
        Constraint(
            "spans",
            ("variant", "tile", "splits", "cluster"),
            f"a warp does not finish whole spans of the {shape.span} columns that are reduced together",
            lambda s: s.holds_spans,
        ),
        Constraint(
            "promotion_of_one_product",
            ("products", "promotion_interval"),
            "the sums of one product of float16 terms stay in the tensor cores' accumulators to the end",
            lambda s: s.products == 3 or s.promotion_interval == 64,
        ),
        Constraint(
            "registers",
            ("promotion_interval", "tile"),
            "sums of 256 columns leave no registers for accumulators of their own for the small products",
            lambda s: s.promotion_interval != 128 or s.tile != "128x256",
        ),
        Constraint(
            "rounded_terms",
            ("term_bits", "products"),
            "one product has one term, which is not rounded",
            lambda s: not s.rounded or s.products == 3,
        ),
        Constraint(
            "short_sums",
            ("variant", "products", "promotion_interval"),
            "PyTorch's sums over so few of k, or of so few results, are more exact than a promotion interval, in which "
            "positive products lose to"
            " truncation",
            lambda s: s.variant != "sm90" or s.products == 1 or shape.takes(s.promotion_interval),
        ),
        Constraint(
            "idle_promotions",
            ("variant", "promotion_interval"),
            "sums over so many of k need no promotion after every 16",
            lambda s: s.variant != "sm90" or s.promotion_interval != 16 or not shape.takes(64),
        ),
        Constraint(
            "one_promotion",
            ("promotion_interval", "splits", "cluster"),
            "sums over no more than 64 of k are promoted once in any case",
            lambda s: s.promotion_interval != 128 or s.ld > STEP * s.parts,
        ),
        Constraint(
            "whole_rows",
            ("variant",),
            "blocks that split whole rows of x themselves need those in memory, and a w that was split beforehand: a "
            "weight of one matrix",
            lambda s: s.variant != "whole" or (shape.weight and not shape.grouped and not shape.turned),
        ),
        Constraint(
            "slices_of_inputs",
            ("variant",),
            "blocks split slices of k of inputs whose rows lie in memory in groups of 16 bytes; a weight is split once",
            lambda s: s.variant != "slices" or not (shape.weight or shape.grouped or shape.turned or shape.ragged),
        ),
        Constraint(
            "more_stages",
            ("variant", "stages"),
            f"k = {shape.k} has no step for a fourth stage",
            lambda s: s.variant != "whole" or s.stages <= max(3, -(-shape.k // STEP)),
        ),
        Constraint(
            "shared_memory",
            room,
            "the stages, and whole rows, need more shared memory than a block, or its neighbours on a multiprocessor, "
            "can have",
            lambda s: s.fits(s.stages),
        ),
        Constraint(
            "short_ring", room, "seven stages fit", lambda s: s.variant != "sm90" or s.stages == 7 or not s.fits(7)
        ),
        Constraint(
            "two_blocks",
            (*room, "products", "cluster"),
            "two blocks of a multiprocessor have registers for the sums of one product, and pay off where k <= "
            f"{SHORT_K} and the chip is full",
            lambda s: (
                s.tile != "2x128x128"
                or (s.products == 1 and s.parts == 1 and shape.k <= SHORT_K and s.tiles >= s.at_once)
            ),
        ),
        Constraint(
            "tiles_apart",
            (*room, "products", "cluster", "promotion_interval"),
            f"one warpgroup stores while another multiplies three products, which pays off where {STEP} < k <= "
            f"{SHORT_K} and the chip is full",
            lambda s: (
                s.tile != "128x128+"
                or (
                    s.products == 3
                    and s.stages == 7
                    and s.parts == 1
                    and s.promotion_interval != 128
                    and STEP < shape.k <= SHORT_K
                    and s.tiles >= 2 * s.at_once
                )
            ),
        ),
        Constraint(
            "tiles_in_turns",
            (*room, "products", "cluster", "promotion_interval"),
            "two warpgroups store while a third multiplies three products of all of k, which pays off where k <= "
            f"{STEP} and the chip is full",
            lambda s: (
                s.tile != "192x128"
                or (
                    s.products == 3
                    and s.stages == 7
                    and s.parts == 1
                    and s.promotion_interval == 16
                    and shape.k <= STEP
                    and s.tiles >= 2 * s.at_once
                )
            ),
        ),
        Constraint(
            "shallow_pipeline",
            room,
            "one stage is filled while the other is used, where three stages fit",
            lambda s: s.stages != 2 or not s.fits(3),
        ),
        Constraint(
            "idle_rows",
            ("variant", "tile"),
            f"half of a tile's rows or more would lie beyond {rows}",
            lambda s: s.of_tile.rows < 2 * rows or s.of_tile.rows == min(t.rows for t in TILES[s.variant].values()),
        ),
        Constraint(
            "idle_columns",
            ("variant", "tile"),
            f"half of a tile's columns or more would lie beyond {cols}",
            lambda s: s.of_tile.cols < 2 * cols or s.of_tile.cols == 64,
        ),
        Constraint(
            "two_ways_to_split",
            ("splits", "cluster"),
            "k is split over the blocks of a cluster, or over independent blocks",
            lambda s: s.splits == 1 or s.cluster == 1,
        ),
        Constraint(
            "splits_of_large_tiles",
            ("splits", "cluster", "tile"),
            "a smaller tile gives as many blocks as half the k of this one would, with nothing to add up",
            lambda s: s.parts == 1 or s.tile not in ("128x256", "128x192"),
        ),
        Constraint(
            "terms_of_wide_tiles",
            ("tile", "products"),
            "operands of half types alone have tiles of 192 columns; terms are loaded 128 columns at a time",
            lambda s: s.variant != "sm90" or s.tile != "128x192" or shape.narrow,
        ),
        Constraint(
            "short_splits",
            ("splits", "cluster"),
            f"splits of k = {shape.k} so short that filling the pipeline is most of their time",
            lambda s: s.parts == 1 or s.ld >= (512 if s.splits > 1 else 128) * s.parts,
        ),
        Constraint(
            "splits_to_fill",
            (*room, "cluster"),
            "the chip is full without so many splits of k",
            lambda s: s.parts == 1 or s.tiles * s.parts <= s.at_once,
        ),
        Constraint(
            "multicast_of_splits",
            ("variant", "multicast", "splits", "cluster"),
            "blocks that share tiles have all of k, and the same matrix",
            lambda s: not s.shares_terms or (s.parts == 1 and not shape.grouped),
        ),
        Constraint(
            "multicast_of_full_chips",
            (*room, "multicast"),
            "only with a chip full of the largest tiles, or of those for short sums, is sharing those of w faster than "
            "anything else",
            lambda s: not s.shares_terms or s.one_row_of_tiles or (s.tile in shared and s.tiles >= s.at_once),
        ),
        Constraint(
            "multicast_of_slices",
            ("variant", "multicast", "tile"),
            "blocks side by side share slices of x in pairs of tiles",
            lambda s: s.multicast == 1 or s.variant != "slices" or -(-cols // s.of_tile.cols) % 2 == 0,
        ),
        Constraint(
            "multicast_along_columns",
            (*room, "multicast"),
            "blocks side by side share tiles of x in pairs of whole tiles, of the largest, where there are nearly "
            "enough for the chip",
            lambda s: (
                not s.shares_terms
                or not s.one_row_of_tiles
                or (s.tile == "128x256" and cols % (2 * s.of_tile.cols) == 0 and 4 * s.tiles >= 3 * s.at_once)
            ),
        ),
        Constraint(
            "wide_clusters",
            (*room, "cluster"),
            "clusters of four find room for themselves on three quarters of the chip",
            lambda s: s.cluster < 4 or s.tiles * s.cluster <= s.at_once * 3 // 4,
        ),
        Constraint(
            "one_swizzle_group",
            ("variant", "tile", "swizzle_group"),
            "all tiles of rows are in one swizzle group, as they are with 16, or blocks go along rows of tiles",
            lambda s: s.swizzle_group == 16 or (-(-rows // s.of_tile.rows) > s.swizzle_group and s.tile != "192x128"),
        ),
    )
