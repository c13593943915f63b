"""The rewrites: algebraic changes of a graph that keep its value, one record for each, in the order in which they
apply.

A value with other users than the one that a rewrite swallows is left alone. :func:`variants` lists the graphs that are
worth planning for.
"""

from __future__ import annotations

import itertools
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.rewrites import (
    affine,
    attention,
    cleanup,
    convolution,
    cudnn,
    einsum,
    exact,
    few,
    images,
    linear,
    norms,
    patches,
    prepared,
    recurrence,
    sampling,
    scans,
    scatters,
    siblings,
    unrolled,
    views,
)
from kgen.compiler.rewrites.rewrite import Offer, Place, Rewrite, Stage, pipelines

#: Every rewrite by its name, in order. Behind :func:`cleanup.decompose`, which every graph has a variant of.
REWRITES: dict[str, Rewrite] = {
    of.name: of
    for of in (
        Rewrite(unrolled.unrolled_to_scan, Stage.ONCE, shown=False),
        Rewrite(einsum.parts_of_einsums, Stage.ONCE, shown=False),
        Rewrite(exact.exact_statistics, Stage.ONCE, shown=False),
        Rewrite(cleanup.drop_identity, Stage.ALWAYS, shown=False),
        Rewrite(cleanup.bags_to_sums, Stage.ALWAYS, shown=False),
        Rewrite(views.places_in_order, Stage.ALWAYS, shown=False),
        Rewrite(prepared.keep_tables, Stage.ALWAYS, shown=False),
        Rewrite(scatters.scatter_to_sum, Stage.ALWAYS, shown=False),
        Rewrite(cleanup.fold_casts, Stage.ALWAYS),
        Rewrite(patches.patches_as_rows, Stage.ALWAYS, shown=False),
        Rewrite(cleanup.matmul_to_linear, Stage.ALWAYS, shown=False),
        Rewrite(views.product_of_viewed_rows, Stage.ALWAYS, shown=False),
        Rewrite(views.permute_behind, Stage.ALWAYS, shown=False),
        Rewrite(views.rows_in_order, Stage.ALWAYS, shown=False),
        Rewrite(views.views_in_one, Stage.ALWAYS, shown=False),
        Rewrite(cleanup.stack_to_maps, Stage.ALWAYS, shown=False),
        Rewrite(scans.shift_in_front_of_scan, Stage.ALWAYS, shown=False),
        Rewrite(cleanup.softplus_to_mish, Stage.ALWAYS, shown=False),
        Rewrite(cleanup.quotient_to_remainder, Stage.ALWAYS, shown=False),
        Rewrite(prepared.prepare_weights, Stage.FOLD, level=1),
        Rewrite(cleanup.merge_scalar_factors, Stage.FOLD, level=2),
        Rewrite(convolution.mean_into_convolution, Stage.FOLD, level=3, float32_only=True),
        Rewrite(convolution.average_into_convolution, Stage.FOLD, level=3, float32_only=True),
        Rewrite(affine.batchnorm_to_affine, Stage.FOLD, level=1),
        Rewrite(affine.merge_affine, Stage.FOLD, level=3, again=("split_batchnorm", 2)),
        Rewrite(convolution.affine_into_convolution, Stage.FOLD, level=3, float32_only=True),
        Rewrite(affine.pull_scale_into_linear, Stage.FOLD, level=3, float32_only=True),
        Rewrite(affine.fold_batchnorm_into_linear, Stage.FOLD, level=3, float32_only=True),
        Rewrite(affine.split_batchnorm, Stage.FOLD, level=1, shown=False),
        Rewrite(norms.group_norm_to_moments, Stage.FOLD, level=1, shown=False),
        Rewrite(siblings.siblings_in_one, Stage.OPTION, also=("attention_apart",)),
        Rewrite(linear.sum_into_linear, Stage.OPTION, group="small products"),
        Rewrite(linear.average_into_linear, Stage.OPTION, group="small products", float32_only=True),
        Rewrite(linear.product_to_sum, Stage.OPTION, group="small products"),
        Rewrite(linear.diagonal_to_scale, Stage.OPTION, group="small products", float32_only=True),
        Rewrite(linear.pool_to_reduction, Stage.OPTION),
        Rewrite(attention.attention_apart, Stage.OPTION, half_needs=Offer.ATTENTION),
        Rewrite(recurrence.layers_as_wave, Stage.OPTION, place=Place.IN_FRONT),
        Rewrite(recurrence.layers_apart, Stage.OPTION, place=Place.IN_FRONT),
        Rewrite(norms.split_norms, Stage.OPTION, shown=False),
        Rewrite(norms.images_in_order, Stage.OPTION),
        Rewrite(images.windows_channels_last, Stage.OPTION, needs=Offer.WINDOWS_ACROSS),
        Rewrite(sampling.sample_channels_last, Stage.OPTION),
        Rewrite(linear.tiny_product_to_sums, Stage.OPTION, group="few"),
        Rewrite(few.reduce_few_by_threads, Stage.OPTION, group="few"),
        Rewrite(convolution.extreme_into_pool, Stage.OPTION),
        Rewrite(norms.reduce_images_first, Stage.OPTION, place=Place.AROUND, shown=False),
        Rewrite(norms.reduce_groups_first, Stage.OPTION, place=Place.IN_FRONT, shown=False),
        Rewrite(convolution.convolutions_channels_last, Stage.OPTION, needs=Offer.CHANNELS_LAST),
        Rewrite(exact.few_channels_by_threads, Stage.OPTION, needs=Offer.CUDNN),
        Rewrite(cudnn.convolutions_in_cudnn, Stage.OPTION, needs=Offer.CUDNN),
        Rewrite(attention.masks_as_biases, Stage.LAST, shown=False),
        Rewrite(attention.queries_as_rows, Stage.LAST, shown=False),
        Rewrite(views.store_as_read, Stage.LAST, shown=False),
        Rewrite(views.order_outputs, Stage.LAST, shown=False),
    )
}

_FEW_BYTES = 1 << 16  # of a weight in another form, which no graph does without: scales and shifts of a norm, say
#: The name of the decomposition among a variant's rewrites.
_DECOMPOSE = "decompose"


def add(rewrite: Rewrite) -> None:
    """Take a further rewrite into the table, behind the others of its stage."""
    REWRITES[rewrite.name] = rewrite


@dataclass(frozen=True)
class Variant:
    """A graph with the names of the rewrites that changed it."""

    rewrites: tuple[str, ...]
    graph: OpGraph

    @property
    def shown(self) -> tuple[str, ...]:
        """The rewrites that a plan's name shows."""
        return tuple(name for name in self.rewrites if name != _DECOMPOSE and REWRITES[name].shown)


def _copies(graph: OpGraph, changed: OpGraph) -> bool:
    """Whether a rewrite keeps a weight in another form, of more than a few bytes."""
    known = {of.name for of in graph.folded}
    return any(of.name not in known and of.type.nbytes > _FEW_BYTES for of in changed.pruned().folded)


def variants(
    graph: OpGraph, whole: frozenset[str] = frozenset(), offers: AbstractSet[Offer] = frozenset()
) -> tuple[Variant, ...]:
    """The graphs that the pipelines come to, each once, with the rewrites that took part in it.

    Pipelines begin with the graph as it is, and with its decomposition but for attention and the nodes in ``whole``;
    that comes last. ``offers`` are those of a device.
    """
    found: list[Variant] = []
    once = []
    for rewrite in (r for r in REWRITES.values() if r.stage is Stage.ONCE):
        changed = rewrite.run(graph)
        if changed != graph:
            once.append(rewrite.name)
            graph = changed
    decomposed = cleanup.decompose(graph, whole | attention.of_attention(graph))
    half = any(v.type is not None and is_narrow(v.type.dtype) for v in (*graph.inputs, *graph.weights, *graph.nodes))
    every = tuple(pipelines(tuple(REWRITES.values()), half=half, offers=offers))
    for start, pipeline in itertools.product(dict.fromkeys((graph, decomposed)), every):
        current, names = start, [*once, *([_DECOMPOSE] if start != graph else [])]
        for rewrite in pipeline:
            changed = rewrite.run(current)
            if changed != current and (graph.weight_copies or not _copies(current, changed)):
                if rewrite.name not in names:
                    names.append(rewrite.name)
                current = changed.pruned()
        if all(current != v.graph for v in found):
            found.append(Variant(tuple(names), current))
    return tuple(found)
