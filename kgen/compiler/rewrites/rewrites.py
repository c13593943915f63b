"""The named rewrites: algebraic changes of a graph that keep its value.

    decompose                 operators without an entry in the table become operators that have one
    drop_identity             what returns its operand (dropout in eval mode, detach, views to the same shape) goes
    matmul_to_linear          x @ w.t() becomes a linear layer: the transpose goes
    permute_behind, rows_in_order, views_in_one
                              fewer copies of what modules transpose (:mod:`kgen.compiler.rewrites.views`)
    stack_to_maps             torch.stack((x, y), 1).sum(1) becomes x + y
    softplus_to_mish          x * tanh(softplus(x)) becomes mish(x), which takes one exponential
    merge_scalar_factors      x * 2.0, x + x, x / 4.0, -x after one another become one factor
    batchnorm_to_affine       batch norm in eval mode becomes x * scale + shift for each feature
    split_batchnorm           batch norm in train mode becomes moments over the batch, then a normalisation
    group_norm_to_moments     group norm becomes moments of each group, then a normalisation
    reduce_images_first       norms and sums behind a convolution: over each channel of an image first, then over those
    reduce_groups_first       sums, means and extremes of rows behind group norm of a product: over each group first
    split_norms               layer norm and softmax become their reductions, then what uses them: two kernels can share the row
    merge_affine              scales and shifts for each feature after one another become one
    fold_batchnorm_into_linear, pull_scale_into_linear
                              scale and shift behind a linear layer go into its weight rows and bias
    sum_into_linear, average_into_linear, product_to_sum, diagonal_to_scale, pool_to_reduction
                              small products, and pools behind one (:mod:`kgen.compiler.rewrites.linear`)
    mean_into_convolution, average_into_convolution, affine_into_convolution, extreme_into_pool
                              small convolutions (:mod:`kgen.compiler.rewrites.convolution`)
    convolutions_channels_last
                              convolutions of images whose channels lie side by side, where schedules read them so
    order_outputs             outputs have PyTorch's order of dimensions in memory

Each takes a graph and returns a graph: the same one where it does not apply. A value with other users than the one
that a rewrite swallows is left alone. :func:`variants` lists the combinations worth planning for.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Callable

from kgen.compiler.graph import complex_numbers
from kgen.compiler.graph.dtypes import HALF, is_float
from kgen.compiler.graph.graph import FoldedWeight, Node, OpGraph, Operand, Tensor
from kgen.compiler.graph.library_call import W, X, Y, Z, LibraryCall, Value, aten, functional, rounded, torch_, widened
from kgen.compiler.graph.source import reshape_call
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS, is_view
from kgen.compiler.rewrites import norms
from kgen.compiler.rewrites.convolution import (affine_into_convolution, average_into_convolution,
                                                convolutions_channels_last, extreme_into_pool, mean_into_convolution)
from kgen.compiler.rewrites.linear import average_into_linear, diagonal_to_scale, pool_to_reduction, product_to_sum, sum_into_linear
from kgen.compiler.rewrites.views import order_outputs, permute_behind, rows_in_order, views_in_one

Rewrite = Callable[[OpGraph], OpGraph]


@dataclass(frozen=True)
class Variant:
    """A graph with the names of the rewrites that changed it."""

    rewrites: tuple[str, ...]
    graph: OpGraph


def decompose(graph: OpGraph, whole: frozenset[str] = frozenset()) -> OpGraph:
    """Nodes that have a decomposition as its operators, but for those in ``whole``.

    Parts compute with pairs of real numbers where nodes compute with complex ones.
    """
    pairs: dict[str, str] = {}
    for name in [n.name for n in graph.nodes if n.parts and n.name not in whole]:
        node, users = graph.node(name), graph.users(name)  # as it reads now: an operand may have been taken apart before
        found = node.parts
        if any(_is_complex(graph, v) and _memory(graph, v) in graph.changed for v in node.values):
            continue  # the pairs would be read after a write, too
        several = node.type is None  # of a list of one result, too
        if several and any(u.op != "_operator.getitem" for u in users):
            continue
        is_complex = _is_complex(graph, node.name)
        nodes = _paired_operands(graph, node, pairs)
        names: dict[str, Operand] = {f"@{number}": pairs.get(value, value) for number, value in enumerate(node.inputs)}
        for part in found.nodes:
            is_result = not several and not is_complex and part.name == found.results[0]
            names[part.name] = node.name if is_result else graph.fresh(f"{node.name}_{part.name}")
            inputs = tuple(names[i] if isinstance(i, str) else i for i in part.inputs)
            nodes.append(replace(part, name=names[part.name], inputs=inputs, origin=node.name))
        results = [names[r] for r in found.results]
        if is_complex:
            pairs[node.name] = results[0]
            nodes.append(replace(node, op=complex_numbers.TO_COMPLEX, inputs=(results[0],), call=complex_numbers.TO_COMPLEX_CALL, parts=None))
        graph = graph.with_nodes_for(node.name, nodes)
        if several:
            for user in users:
                graph = graph.without(user.name, results[user["at"]])
        elif not is_complex and results[0] != node.name:
            graph = graph.without(node.name, results[0])
    return graph.pruned()


def _is_complex(graph: OpGraph, value: str) -> bool:
    type_ = graph.known_type(value)
    return type_ is not None and type_.dtype == complex_numbers.DTYPE


def _paired_operands(graph: OpGraph, node: Node, pairs: dict[str, str]) -> list[Node]:
    """Views of the node's complex operands that have no ``pairs`` yet, which are put there."""
    nodes = []
    for value in dict.fromkeys(node.values):
        if _is_complex(graph, value) and value not in pairs:
            type_ = graph.type(value)
            pairs[value] = graph.fresh(f"{value}_pairs")
            seen_as = Tensor((*type_.shape, 2), "float32", (*type_.multiples, 0))
            nodes.append(Node(pairs[value], complex_numbers.TO_PAIRS, (value,), seen_as, complex_numbers.TO_PAIRS_CALL))
    return nodes


def drop_identity(graph: OpGraph) -> OpGraph:
    """Drop nodes that return their first operand unchanged, and factors of one.

    A copy that forward returns is kept: without it, two outputs, or an output and an input, would share memory. So is
    one of a buffer that changes: it has the values of before.
    """
    changed = graph.changed
    for name in [n.name for n in graph.nodes]:
        node = graph.node(name)  # as it reads now: its operand may have been dropped before it
        source = node.inputs[0] if node.inputs else None
        if not isinstance(source, str) or (node.op in _COPIES and (name in graph.returns or _memory(graph, source) in changed)):
            continue
        if _is_identity(graph, node) or (_factor(node) == (source, 1) and graph.type(source).dtype == node.type.dtype):
            graph = graph.without(name, source)
    return graph


#: Operators whose results may have memory of their own.
_COPIES = ("clone", "cast", "contiguous")


def _memory(graph: OpGraph, value: str) -> str:
    """The value whose memory this one has, as far as views and writes in place tell."""
    while (node := graph.producer(value)) and node.values and (node.effect or is_view(node)):
        value = node.values[0]
    return value


def _is_identity(graph: OpGraph, node: Node) -> bool:
    """Whether the node returns its first operand as it is."""
    if node.op == "permute":
        return node["dims"] == tuple(range(len(node["dims"])))
    if node.op in ("view", "expand", "cast"):  # `x.float()` of float32, too
        return node.type == graph.type(node.inputs[0])
    return node.op in OPS and OPS[node.op].kind is Kind.IDENTITY


def fold_casts(graph: OpGraph) -> OpGraph:
    """Keep a weight that each call casts for a contraction, as autocast does, in the other dtype."""
    known: dict[tuple[str, str], str] = {}
    for node in graph.nodes:
        if node.op != "cast" or not graph.is_weight(node.inputs[0]) or not any(map(_is_contraction, graph.users(node.name))):
            continue
        key = node.inputs[0], node.type.dtype
        if key not in known:
            known[key] = graph.fresh(f"{node.inputs[0]}_{node.type.dtype}")
            graph = graph.with_folded(FoldedWeight(known[key], node.type, f"{{0}}.to(torch.{node.type.dtype})", key[:1]))
        graph = graph.without(node.name, known[key])
    return graph


def _is_contraction(node: Node) -> bool:
    return node.op in OPS and OPS[node.op].kind is Kind.CONTRACTION


#: The calls that transpose a matrix.
_TRANSPOSES = (*(aten(f"{name}.default", X) for name in ("t", "numpy_T", "mT")),
               *(aten("transpose.int", X, *dims) for dims in ((0, 1), (1, 0), (-2, -1), (-1, -2))))  # fmt: skip


def matmul_to_linear(graph: OpGraph) -> OpGraph:
    """A contraction with the transpose of a matrix, and a bias for each column, as a linear layer."""
    for node in graph.nodes:
        if node.op not in ("matmul", "mm", "addmm"):
            continue
        x, right, *bias = node.inputs
        turned = graph.producer(right)
        if turned is None or turned.call not in _TRANSPOSES or len(turned.type.shape) != 2:
            continue
        if len(graph.type(x).shape) < 2 or any(graph.type(b).shape != node.type.shape[-1:] for b in bias):
            continue
        inputs = (x, turned.inputs[0], *bias)
        call = functional("linear", *map(Value, range(len(inputs))))
        graph = graph.with_node(replace(node, op="linear", inputs=inputs, call=call, attrs=()))
    return graph


#: Reductions of few values as maps of two of them.
_OF_TWO = {
    "sum": ("add", torch_("add", X, Y)),
    "mean": ("add", torch_("add", X, Y)),
    "prod": ("mul", torch_("mul", X, Y)),
    "amax": ("maximum", torch_("maximum", X, Y)),
    "amin": ("minimum", torch_("minimum", X, Y)),
}
MOST_STACKED = 16  # tensors; a map of more would hold too many values


def stack_to_maps(graph: OpGraph) -> OpGraph:
    """A reduction of the tensors of a stack as maps of two of them after one another, in float32 on the way."""
    for node in graph.nodes:
        stack = graph.producer(node.inputs[0]) if node.op in _OF_TWO and is_float(node.type.dtype) else None
        if stack is None or stack.op != "cat" or node["dims"] != (stack["dim"],) or not graph.feeds_only(stack.name, node):
            continue
        types = [graph.type(part) for part in stack.inputs]
        stacked = len(types[0].shape) < len(stack.type.shape)
        if len(set(types)) > 1 or not 1 < len(types) <= MOST_STACKED or not (stacked or types[0].shape[stack["dim"]] == 1):
            continue
        op, call = _OF_TWO[node.op]
        found, *others = stack.inputs
        maps = []
        for other in others:
            maps.append(Node(graph.fresh(f"{node.name}_{len(maps) + 1}"), op, (found, other), replace(types[0], dtype="float32"), widened(call, node.type.dtype)))
            found = maps[-1].name
        if node.op == "mean":
            maps.append(Node(graph.fresh(f"{node.name}_mean"), "div", (found, len(types)), maps[-1].type, torch_("div", X, len(types))))
        maps[-1] = replace(maps[-1], type=types[0], call=rounded(maps[-1].call, node.type.dtype))
        if types[0].shape != node.type.shape:
            maps.append(Node(node.name, "view", (maps[-1].name,), node.type, reshape_call(node.type)))
            graph = graph.with_nodes_for(node.name, maps)
        else:
            graph = graph.with_nodes_for(node.name, maps).without(node.name, maps[-1].name)
    return graph


_USUAL_SOFTPLUS = {"beta": 1, "threshold": 20}  # the one in mish


def softplus_to_mish(graph: OpGraph) -> OpGraph:
    """``x * tanh(softplus(x))`` as ``mish(x)``."""
    for node in graph.nodes:
        if node.op != "mul":
            continue
        for x, factor in (node.inputs, node.inputs[::-1]):
            tanh = graph.producer(factor)
            if tanh is None or tanh.op != "tanh" or not graph.feeds_only(factor, node):
                continue
            softplus = graph.producer(tanh.inputs[0])
            if softplus is None or softplus.op != "softplus" or not graph.feeds_only(softplus.name, tanh):
                continue
            if softplus.inputs == (x,) and dict(softplus.attrs).items() >= _USUAL_SOFTPLUS.items():
                graph = graph.with_node(replace(node, op="mish", inputs=(x,), call=functional("mish", X), attrs=())).pruned()
                break
    return graph


def merge_scalar_factors(graph: OpGraph) -> OpGraph:
    """Make one factor of constant factors after one another; ``x + x`` counts as a factor of two."""
    for node in graph.nodes:
        outer = _factor(node)
        if outer is None:
            continue
        source, factor = outer
        inner_node = graph.producer(source)
        inner = _factor(inner_node) if inner_node is not None and graph.feeds_only(source, node) else None
        if inner is not None:
            graph = graph.without(source, inner[0])
            source, factor = inner[0], factor * inner[1]
        if inner is not None or node.op in ("add", "neg", "div"):
            graph = graph.with_node(
                replace(node, op="mul", inputs=(source, factor), call=torch_("mul", X, factor), attrs=())
            )
    return graph


def batchnorm_to_affine(graph: OpGraph) -> OpGraph:
    """Batch norm in eval mode as ``x * scale + shift``, both computed from its weights in float64."""
    for node in graph.nodes:
        if node.op != "batch_norm" or node["training"] or "running_mean" not in node["roles"]:
            continue
        roles = dict(zip(node["roles"], node.inputs))
        rank = len(node.type.shape)
        channels = node.type.shape[1] if rank > 1 else node.type.shape[0]
        tail = f".reshape({', '.join(['-1'] + ['1'] * (rank - 2))})" if rank > 2 else ""
        type_ = Tensor((channels,) + (1,) * (rank - 2))
        eps = node["eps"]
        weight = roles.get("weight")
        scale, shift = graph.fresh(f"{node.name}_scale"), graph.fresh(f"{node.name}_shift")
        inverse = f"({{0}}.double() + {eps!r}).rsqrt()"
        scale_sources = (roles["running_var"], *((weight,) if weight else ()))
        scale_text = f"({{1}}.double() * {inverse})" if weight else inverse
        # The shift repeats the scale in float64: through the rounded one it would lose what large means need.
        shift_sources = (*scale_sources, roles["running_mean"], *((roles["bias"],) if "bias" in roles else ()))
        mean = len(scale_sources)
        shift_text = f"-{{{mean}}}.double() * {scale_text}"
        if "bias" in roles:
            shift_text = f"{{{mean + 1}}}.double() - {{{mean}}}.double() * {scale_text}"
        graph = graph.with_folded(
            FoldedWeight(scale, type_, f"{scale_text}.float(){tail}", scale_sources),
            FoldedWeight(shift, type_, f"({shift_text}).float(){tail}", shift_sources),
        )
        graph = graph.with_node(
            replace(
                node,
                op="lerp_affine",
                inputs=(roles["input"], scale, shift),
                call=_affine_call(node.type),
                attrs=(),
            )
        )
    return graph


def _affine_call(type_: Tensor) -> LibraryCall:
    """The library call of ``x * scale + shift`` with scale and shift in float32."""
    return rounded(widened(torch_("addcmul", Z, X, Y), type_.dtype), type_.dtype)


def split_batchnorm(graph: OpGraph) -> OpGraph:
    """Batch norm in train mode as moments over the batch (a node of its own) and a normalisation.

    The moments are a (2, channels) tensor: the mean, and ``weight / sqrt(var + eps)``. Their node updates the
    running statistics and counts the batch. With more than two dimensions, mean, variance and updates are nodes.
    """
    for node in graph.nodes:
        if node.op != "batch_norm" or not node["training"]:
            continue
        roles = dict(zip(node["roles"], node.inputs))
        x = roles["input"]
        if len(node.type.shape) < 2 or node.type.multiples[1] or ("running_mean" in roles) != ("running_var" in roles):
            continue
        if len(node.type.shape) > 2:
            graph = norms.split_channels(graph, node, roles)
            continue
        channels = node.type.shape[1]
        counting = _counting(graph, roles.get("running_mean"))
        if counting is not None:
            roles["counter"] = counting.inputs[0]
            graph = replace(graph, nodes=tuple(n for n in graph.nodes if n is not counting))
        names = [r for r in ("input", "weight", "running_mean", "running_var", "counter") if r in roles]
        moments = Node(
            graph.fresh(f"{node.name}_moments"),
            "batch_moments",
            tuple(roles[r] for r in names),
            Tensor((2, channels)),
            None,
            (("roles", tuple(names)), ("momentum", node["momentum"]), ("eps", node["eps"])),
            effect="running_mean" in roles,
        )
        vector = Tensor((channels,))
        mean = Node(f"{node.name}_mean", "select", (moments.name,), vector, X[0], (("dim", 0), ("at", 0)))
        scale = Node(f"{node.name}_scale", "select", (moments.name,), vector, X[1], (("dim", 0), ("at", 1)))
        inputs = (x, mean.name, scale.name, *((roles["bias"],) if "bias" in roles else ()))
        apply = Node(
            node.name,
            "normalise_affine" if "bias" in roles else "normalise",
            inputs,
            node.type,
            rounded((X - Y) * Z + W if "bias" in roles else (X - Y) * Z, node.type.dtype),
        )
        graph = graph.with_nodes_for(node.name, (moments, mean, scale, apply))
    return graph


def _counting(graph: OpGraph, running_mean: str | None) -> Node | None:
    """The node that adds one to the batch counter that belongs to a running mean, if nothing else reads it."""
    paths = {w.name: w.path for w in graph.weights}
    if running_mean is None:
        return None
    counter = paths[running_mean].removesuffix("running_mean") + "num_batches_tracked"
    for node in graph.nodes:
        counts = node.op == "aten.add_.Tensor" and node.call == aten("add_.Tensor", X, 1)
        if counts and paths.get(node.inputs[0]) == counter and graph.users(node.inputs[0]) == (node,):
            return node if not graph.users(node.name) and node.name not in graph.returns else None
    return None


def merge_affine(graph: OpGraph) -> OpGraph:
    """Make one scale and shift of those after one another, where both are weights or numbers."""
    return _merge_pairs(graph, _merge_affine_pair)


def fold_batchnorm_into_linear(graph: OpGraph) -> OpGraph:
    """``linear(x) * scale + shift`` with scale and shift in the layer's weight rows and bias."""
    return _merge_pairs(graph, lambda g, inner, outer: _fold(g, inner, outer, "lerp_affine"))


def pull_scale_into_linear(graph: OpGraph) -> OpGraph:
    """``linear(x) * scale``, for each feature or for all, with the scale in the layer's weight rows and bias."""
    return _merge_pairs(graph, lambda g, inner, outer: _fold(g, inner, outer, "mul"))


#: Every rewrite by its name.
REWRITES: dict[str, Rewrite] = {
    f.__name__: f
    for f in (
        drop_identity,
        fold_casts,
        matmul_to_linear,
        permute_behind,
        rows_in_order,
        views_in_one,
        order_outputs,
        stack_to_maps,
        softplus_to_mish,
        merge_scalar_factors,
        batchnorm_to_affine,
        split_batchnorm,
        merge_affine,
        fold_batchnorm_into_linear,
        pull_scale_into_linear,
        sum_into_linear,
        average_into_linear,
        product_to_sum,
        diagonal_to_scale,
        pool_to_reduction,
        mean_into_convolution,
        average_into_convolution,
        affine_into_convolution,
        extreme_into_pool,
        convolutions_channels_last,
        norms.group_norm_to_moments,
        norms.reduce_images_first,
        norms.reduce_groups_first,
        norms.split_norms,
    )
}

_CHANNELS_LAST = "convolutions_channels_last"
_LAST = "order_outputs"  # of every pipeline: rewrites choose where values lie

#: Those that every graph is better with.
_FIRST = ("drop_identity", "fold_casts", "matmul_to_linear", "permute_behind", "rows_in_order", "views_in_one", "stack_to_maps", "softplus_to_mish")
_WHOLE = (
    *_FIRST,
    "merge_scalar_factors",
    "mean_into_convolution",
    "average_into_convolution",
    "batchnorm_to_affine",
    "merge_affine",
    "affine_into_convolution",
    "pull_scale_into_linear",
    "fold_batchnorm_into_linear",
    "split_batchnorm",
    "merge_affine",
    "group_norm_to_moments",
)

#: Combinations worth planning for, the plainest first; those that come to the same graph count once.
PIPELINES = (
    _FIRST,
    (*_FIRST, "batchnorm_to_affine", "split_batchnorm", "group_norm_to_moments"),
    (*_FIRST, "merge_scalar_factors", "batchnorm_to_affine", "split_batchnorm", "merge_affine", "group_norm_to_moments"),
    _WHOLE,
    (*_WHOLE, "sum_into_linear", "average_into_linear", "product_to_sum", "diagonal_to_scale"),
    (*_WHOLE, "pool_to_reduction"),
    (*_WHOLE, "split_norms"),
    (*_WHOLE, "extreme_into_pool"),
    ("reduce_images_first", *_WHOLE, "reduce_images_first"),
    ("reduce_groups_first", *_WHOLE),
    (*_WHOLE, _CHANNELS_LAST),
)


#: Rewrites for float32 alone. Most make new weights, which products of half types would round so that sums err more than
#: PyTorch's.
_FLOAT32_ONLY = frozenset({
    "pull_scale_into_linear", "fold_batchnorm_into_linear", "average_into_linear", "diagonal_to_scale",
    "mean_into_convolution", "average_into_convolution", "affine_into_convolution",
})  # fmt: skip


def variants(graph: OpGraph, whole: frozenset[str] = frozenset(), *, channels_last: bool = False) -> tuple[Variant, ...]:
    """The graphs that the pipelines come to, each once, with the rewrites that took part in it.

    Pipelines begin with the graph as it is, and with its decomposition but for the nodes in ``whole``; that comes last.
    ``channels_last`` says whether schedules run along the channels of images that have them side by side.
    """
    found: list[Variant] = []
    decomposed = decompose(graph, whole)
    left_out = _FLOAT32_ONLY if any(v.type is not None and v.type.dtype in HALF for v in (*graph.inputs, *graph.weights, *graph.nodes)) else frozenset()
    pipelines = [p for p in PIPELINES if channels_last or _CHANNELS_LAST not in p]
    for start, pipeline in itertools.product(dict.fromkeys((graph, decomposed)), pipelines):
        current, names = start, ["decompose"] if start != graph else []
        for name in (n for n in (*pipeline, _LAST) if n not in left_out):
            changed = REWRITES[name](current)
            if changed != current:
                if name not in names:
                    names.append(name)
                current = changed.pruned()
        if all(current != v.graph for v in found):
            found.append(Variant(tuple(names), current))
    return tuple(found)


def _merge_pairs(graph: OpGraph, merge: Callable[[OpGraph, Node, Node], OpGraph | None]) -> OpGraph:
    """Apply ``merge(graph, inner, outer)`` to producer-user pairs until nothing changes."""
    changed = True
    while changed:
        changed = False
        for outer in graph.nodes:
            for name in outer.values:
                inner = graph.producer(name)
                merged = merge(graph, inner, outer) if inner is not None and graph.feeds_only(name, outer) else None
                if merged is not None:
                    graph, changed = merged, True
                    break
            if changed:
                break
    return graph


def _factor(node: Node | None) -> tuple[str, float] | None:
    """``(value, factor)`` where the node is a constant multiple of one value, in float32."""
    if node is None or node.type is None or node.type.dtype != "float32":
        return None
    if node.op == "neg":
        return node.inputs[0], -1.0
    if node.op == "add" and node.inputs[0] == node.inputs[1] and isinstance(node.inputs[0], str):
        return node.inputs[0], 2.0
    if node.op == "mul":
        for value, number in (node.inputs, node.inputs[::-1]):
            if isinstance(value, str) and isinstance(number, (int, float)):
                return value, float(number)
    if node.op == "div" and isinstance(node.inputs[0], str) and isinstance(node.inputs[1], (int, float)):
        divisor = float(node.inputs[1])
        # Only a power of two has an exact reciprocal: x / 3 is not x * (1 / 3).
        if divisor and math.frexp(abs(divisor))[0] == 0.5:
            return node.inputs[0], 1.0 / divisor
    return None


@dataclass(frozen=True)
class _Affine:
    """``x * scale + shift``; ``scale`` is a weight's name or a number, ``shift`` a weight's name or absent."""

    x: str
    scale: str | float
    shift: str | None


def _affine(graph: OpGraph, node: Node) -> _Affine | None:
    """The node as scale and shift by weights, if it is that."""
    if node.op == "lerp_affine" and graph.is_weight(node.inputs[1]) and graph.is_weight(node.inputs[2]):
        return _Affine(node.inputs[0], node.inputs[1], node.inputs[2])
    if node.op == "mul" and node.type.dtype == "float32":
        for x, scale in (node.inputs, node.inputs[::-1]):
            if isinstance(x, str) and graph.producer(x) is not None:
                if isinstance(scale, (int, float)) or (graph.is_weight(scale) and graph.type(scale).dtype == "float32"):
                    return _Affine(x, scale if isinstance(scale, str) else float(scale), None)
    return None


def _merge_affine_pair(graph: OpGraph, inner: Node, outer: Node) -> OpGraph | None:
    a, b = _affine(graph, inner), _affine(graph, outer)
    if a is None or b is None or b.x != inner.name or outer.type.shape != inner.type.shape:
        return None
    if a.shift is None and isinstance(a.scale, float) and isinstance(b.scale, float):
        return None  # constant factors are merge_scalar_factors' business
    graph, scale = _folded(graph, f"{outer.name}_scale", "{0} * {1}", (a.scale, b.scale))
    shift = b.shift
    if a.shift is not None:
        text = "{0} * {1} + {2}" if b.shift else "{0} * {1}"
        graph, shift = _folded(graph, f"{outer.name}_shift", text, (a.shift, b.scale, *((b.shift,) if b.shift else ())))
    graph = graph.without(inner.name, a.x)
    if shift is None:
        node = replace(outer, op="mul", inputs=(a.x, scale), call=torch_("mul", X, Y), attrs=())
    else:
        call = _affine_call(outer.type)
        node = replace(outer, op="lerp_affine", inputs=(a.x, scale, shift), call=call, attrs=())
    return graph.with_node(node)


def _folded(graph: OpGraph, stem: str, text: str, operands: tuple[str | float, ...]) -> tuple[OpGraph, str]:
    """A new folded weight from weights and numbers."""
    sources = tuple(o for o in operands if isinstance(o, str))
    spelled = [f"{{{sources.index(o)}}}" if isinstance(o, str) else repr(o) for o in operands]
    shape: tuple[int, ...] = ()
    for source in sources:
        shape = _broadcast(shape, graph.type(source).shape)
    name = graph.fresh(stem)
    return graph.with_folded(FoldedWeight(name, Tensor(shape), text.format(*spelled), sources)), name


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(max(x, y) for x, y in zip(a, b))


def _fold(graph: OpGraph, inner: Node, outer: Node, op: str) -> OpGraph | None:
    """``inner`` (linear) with the scale and shift of ``outer`` in its weight and bias."""
    found = _affine(graph, outer) if outer.op == op else None
    if inner.op != "linear" or found is None or found.x != inner.name or not isinstance(found.scale, str):
        return None
    features = inner.type.shape[-1]
    shape = graph.type(found.scale).shape
    if outer.type.shape != inner.type.shape or shape not in ((features,), (1,), ()):
        return None
    if not graph.is_weight(inner.inputs[1]) or (len(inner.inputs) > 2 and not graph.is_weight(inner.inputs[2])):
        return None
    x, weight, *bias = inner.inputs
    column = "{1}[:, None]" if shape == (features,) and features > 1 else "{1}"
    new_weight = graph.fresh(f"{inner.name}_weight")
    folded = [FoldedWeight(new_weight, graph.type(weight), f"{{0}} * {column}", (weight, found.scale))]
    operands = [x, new_weight]
    if bias or found.shift:
        new_bias = graph.fresh(f"{inner.name}_bias")
        if bias and found.shift:
            text, sources = "{0} * {1} + {2}", (bias[0], found.scale, found.shift)
        elif bias:
            text, sources = "{0} * {1}", (bias[0], found.scale)
        else:
            text, sources = "{0}.expand({1})".replace("{1}", str(features)), (found.shift,)
        folded.append(FoldedWeight(new_bias, Tensor((features,)), text, sources))
        operands.append(new_bias)
    call = functional("linear", *map(Value, range(len(operands))))
    graph = graph.with_folded(*folded)
    graph = graph.with_node(replace(inner, inputs=tuple(operands), call=call))
    return graph.without(outer.name, inner.name)
