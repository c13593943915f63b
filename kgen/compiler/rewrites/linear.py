"""Rewrites of products that what stands around them makes small.

    sum_into_linear     sum(linear(x)) over the features becomes sum(x * w), with w the sum of the weight's rows
    product_to_sum      a product with one column becomes the sum of a row's elements times that column's
    tiny_product_to_sums  a product of rows of a few elements with a few columns becomes sums, which a thread computes
    by itself
    diagonal_to_scale   diag(d) @ b scales the rows of b, and b @ diag(d) its columns
    average_into_linear avg_pool1d(linear(x), k) becomes linear(x) with the average of each k rows of the weight
    pool_to_reduction   max_pool1d(linear(x), k) becomes the largest of each k features, which the product's kernel
    takes

Weights that are added up lose their signs. An infinity times each of them gives NaN in PyTorch where the signs differ,
and an infinity times their sum gives none. So a sum of weights is kept as two weights: ``x * first + x * second``. They
have one sign where all weights of the sum have it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterable, Sequence

from kgen.compiler.graph.graph import FoldedWeight, Node, Operand, OpGraph, Tensor
from kgen.compiler.graph.library_call import (
    DEVICE,
    Applied,
    Bound,
    Each,
    Infix,
    LibraryCall,
    Many,
    Span,
    Value,
    X,
    Y,
    Z,
    dtype_named,
    functional,
    rounded,
    torch_,
    widened,
)
from kgen.compiler.graph.source import reshape_call
from kgen.compiler.operators.facts import is_view
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS

_MATMULS = ("matmul", "mm", "mv")
#: The two weights from a sum of :func:`weights_to_sum`.
SUMMED_WEIGHTS = tuple(
    X[0] * torch_("where", Infix("==", X[1].method("abs"), X[2]), 0.5, other) for other in (1.5, -0.5)
)

ROWS = Bound("rows")
_DIAGONALS = ("aten.diag.default", "aten.diag_embed.default")


def sum_into_linear(graph: OpGraph) -> OpGraph:
    """Fold a sum or mean over a linear layer's features into its weight and bias, with the affine steps between
    them."""
    for node in graph.nodes:
        if node.op not in ("sum", "mean"):
            continue
        source = graph.type(node.inputs[0])
        if node["dims"] != (len(source.shape) - 1,) or len(source.shape) < 2:
            continue
        found = _affine_of_linear(graph, node)
        if found is not None:
            graph = _summed(graph, node, *found)
    return graph


def _affine_of_linear(graph: OpGraph, node: Node) -> tuple[Node, list[Node]] | None:
    """The linear layer behind a node's operand, and the affine steps from it to there; each has one user."""
    steps: list[Node] = []
    user = node
    while True:
        name = user.inputs[0]
        inner = graph.producer(name)
        if inner is None or not graph.feeds_only(name, user):
            return None
        if inner.op == "linear":
            weights = all(graph.is_weight(w) for w in inner.inputs[1:])
            return (inner, steps[::-1]) if weights else None
        if inner.op not in _STEPS or not all(_by_feature(graph, o, inner.type.shape) for o in inner.inputs[1:]):
            return None
        steps.append(inner)
        user = inner


def weights_to_sum(weights: LibraryCall) -> LibraryCall:
    """Weights in float64 with their signs and ones, to be added up together."""
    return torch_("stack", (weights, weights.method("sign"), torch_("ones_like", weights)))


#: How an affine step changes the factor and the shift of a linear layer's features: by signs and the step's operands in
#: order.
_STEPS = {
    "mul": (("*",), ("*",)),
    "div": (("/",), ("/",)),
    "add": ((), ("+",)),
    "sub": ((), ("-",)),
    "lerp_affine": (("*",), ("*", "+")),
}


def _chained(of: Any, signs: Sequence[str], others: Iterable[Any]) -> Any:
    """The value with a sign and another one behind it, and so on."""
    for sign, other in zip(signs, others):
        of = Infix(sign, of, other)
    return of


def _by_feature(graph: OpGraph, operand: str | int | float, shape: tuple[int, ...]) -> bool:
    """Whether the operand is a number, or a weight with one element for all features or one for each."""
    if not isinstance(operand, str):
        return True
    own = graph.type(operand)
    return (
        graph.is_weight(operand)
        and own.numel in (1, shape[-1])
        and len(own.shape) <= len(shape)
        and own.shape[-1:] in ((), (own.numel,))
    )


def _summed(graph: OpGraph, node: Node, linear: Node, steps: list[Node]) -> OpGraph:
    """The graph with the sum as one over the elements of a row, each times the sum of its weights."""
    x, weight, *bias = linear.inputs
    sources = [weight]

    def wide(operand: str | int | float) -> LibraryCall | float:
        if not isinstance(operand, str):
            return float(operand)
        if operand not in sources:
            sources.append(operand)
        return Value(sources.index(operand)).method("double").method("reshape", -1)

    features = linear.type.shape[-1]
    filled = {"dtype": dtype_named("float64"), "device": DEVICE}
    factor = torch_("ones", features, **filled)
    shift = wide(bias[0]) if bias else 0.0
    for step in steps:
        others = [*map(wide, step.inputs[1:])]
        factor, shift = (_chained(of, signs, others) for of, signs in zip((factor, shift), _STEPS[step.op]))
    divided = (("/",), (features,)) if node.op == "mean" else ((), ())
    sums, offset = graph.fresh(f"{linear.name}_row_sums"), graph.fresh(f"{linear.name}_bias_sum")
    # A vector times the matrix in float64 would need the matrix in float64: rows are scaled in parts instead.
    factors, weights = Bound("f"), Bound("w")
    products = factors[Span(), None].method("mul", weights)
    parts = Each(products, (factors, weights), Applied("zip", (factor.method("split", 256), X.method("split", 256))))
    columns, inputs = graph.type(weight).shape[1], graph.type(x)
    total = _chained(Applied("sum", (Each(weights_to_sum(ROWS).method("sum", 1), (ROWS,), parts),)), *divided)
    folded = [FoldedWeight(sums, Tensor((3, columns)), total.method("float"), tuple(sources))]
    folded += [
        FoldedWeight(graph.fresh(f"{sums}_{number}"), Tensor((columns,)), of, (sums,))
        for number, of in enumerate(SUMMED_WEIGHTS)
    ]
    operands = (x, *(new.name for new in folded[1:]))
    call = widened(torch_("addcmul", X * Y, X, Z), inputs.dtype)
    terms = Node(
        graph.fresh(f"{linear.name}_terms"), "distributed_product", operands, replace(inputs, dtype="float32"), call
    )
    if shift != 0.0:
        total = _chained(_added(torch_("zeros", features, **filled), shift).method("sum", 0, keepdim=True), *divided)
        folded.append(FoldedWeight(offset, Tensor((1,)), total.method("float"), tuple(sources)))
    nodes = _sum_of_terms(graph, node, terms, node["keepdim"], [new.name for new in folded[3:]])
    return graph.with_folded(*folded).with_nodes_for(node.name, nodes)


def _added(first: LibraryCall, others: Any) -> Infix:
    """The sum of a value and of a sum, from left to right."""
    if isinstance(others, Infix) and others.sign in ("+", "-"):
        return Infix(others.sign, _added(first, others.left), others.right)
    return first + others


def _sum_of_terms(graph: OpGraph, node: Node, terms: Node, keepdim: bool, bias: Sequence[Operand]) -> list[Node]:
    """``terms``, their sum along rows, and a ``bias`` if there is one, in place of ``node``; only the last one
    rounds."""
    attrs = (("dims", (len(terms.type.shape) - 1,)), ("keepdim", keepdim))
    call, dtype = torch_("sum", X, -1, keepdim=keepdim), node.type.dtype
    if not bias:
        return [terms, Node(node.name, "sum", (terms.name,), node.type, rounded(call, dtype), attrs)]
    total = Node(
        graph.fresh(f"{node.name}_sum"), "sum", (terms.name,), replace(node.type, dtype="float32"), call, attrs
    )
    return [terms, total, Node(node.name, "add", (total.name, *bias), node.type, rounded(torch_("add", X, Y), dtype))]


def product_to_sum(graph: OpGraph) -> OpGraph:
    """A product with one column as a sum along rows: it reads the left operand once, and needs no tensor cores."""
    for node in graph.nodes:
        if node.op not in ("linear", *_MATMULS):
            continue
        x, right, *bias = node.inputs
        rows, column = graph.type(x), graph.type(right)
        if len(rows.shape) < 2 or column.numel != rows.shape[-1] or column.batched or any(rows.multiples[-1:]):
            continue
        nodes: list[Node] = []
        if len(column.shape) > 1 and node.op != "linear":
            turned = Node(
                graph.fresh(f"{node.name}_column"), "view", (right,), Tensor(rows.shape[-1:]), X.method("reshape", -1)
            )
            nodes, right = [turned], turned.name
        keepdim = len(node.type.shape) == len(rows.shape)
        terms = Node(
            graph.fresh(f"{node.name}_terms"),
            "mul",
            (x, right),
            replace(rows, dtype="float32"),
            widened(torch_("mul", X, Y), graph.type(x).dtype),
        )
        graph = graph.with_nodes_for(node.name, [*nodes, *_sum_of_terms(graph, node, terms, keepdim, bias)])
    return graph


MOST_TERMS, MOST_COLUMNS = 8, 16  # of a product whose sums are maps: a thread reads a row whole for each of its columns


def tiny_product_to_sums(graph: OpGraph) -> OpGraph:
    """A linear layer of few features as sums of few terms, which a kernel computes where it reads and stores in any
    order.

    A colour is three such sums of three terms. Tensor cores would take tiles of which most is empty.
    """
    for node in graph.nodes:
        if node.op != "linear":
            continue
        x, weight, *bias = node.inputs
        rows, (columns, k) = graph.type(x), graph.type(weight).shape
        if not (1 < k <= MOST_TERMS and 1 < columns <= MOST_COLUMNS) or any(rows.multiples[1:]) or len(rows.shape) < 2:
            continue
        outer, multiples = rows.shape[:-1], rows.multiples[:-1]
        wide = Tensor((*outer, 1, k), rows.dtype, (*multiples, 0, 0))
        view = Node(graph.fresh(f"{node.name}_rows"), "view", (x,), wide, X.method("unsqueeze", -2))
        type_ = Tensor((*outer, columns, k), "float32", (*multiples, 0, 0))
        terms = Node(
            graph.fresh(f"{node.name}_terms"),
            "mul",
            (view.name, weight),
            type_,
            widened(torch_("mul", X, Y), rows.dtype),
        )
        _, total, *rest = _sum_of_terms(graph, node, terms, False, bias)
        graph = graph.with_nodes_for(
            node.name, [view, terms, replace(total, attrs=(*total.attrs, ("beside", True))), *rest]
        )
    return graph


def diagonal_to_scale(graph: OpGraph) -> OpGraph:
    """A product with a diagonal matrix as a scale of rows or columns."""
    for node in graph.nodes:
        if node.op not in _MATMULS or len(node.type.shape) != 2:
            continue
        for side, other in (node.inputs, node.inputs[::-1]):
            diagonal = graph.producer(side)
            if diagonal is None or diagonal.op not in _DIAGONALS or len(graph.type(diagonal.inputs[0]).shape) != 1:
                continue
            if (
                diagonal.type.shape[0] != graph.type(diagonal.inputs[0]).shape[0]
            ):  # the diagonal is another than the main one
                continue
            scale, nodes = diagonal.inputs[0], []
            if side == node.inputs[0]:
                vector = graph.type(scale)
                column = Tensor((*vector.shape, 1), multiples=(*vector.multiples, 0))
                turned = Node(graph.fresh(f"{node.name}_scale"), "view", (scale,), column, X.method("unsqueeze", -1))
                nodes, scale = [turned], turned.name
            product = replace(node, op="mul", inputs=(scale, other), call=torch_("mul", X, Y), attrs=())
            graph = graph.with_nodes_for(node.name, (*nodes, product))
            break
    return graph


def average_into_linear(graph: OpGraph) -> OpGraph:
    """Average pooling of a linear layer's features in parts beside each other as a layer of averages, one for each
    part.

    Its rows come in pairs, whose results are added up.
    """
    for node in graph.nodes:
        size = _beside_each_other(graph, node) if node.op == "avg_pool1d" else 0
        linear = _viewed_linear(graph, node) if size else None
        if linear is None:
            continue
        x, weight, *bias = linear.inputs
        count, columns = node.type.shape[-1], graph.type(weight).shape[1]
        sums, pairs = graph.fresh(f"{linear.name}_part_sums"), graph.fresh(f"{linear.name}_averages")
        part = Bound("part")
        parts = Each(part.method("double").method("reshape", -1, size, columns), (part,), X.method("split", 64 * size))
        total = torch_("cat", Many((Each(weights_to_sum(ROWS).method("sum", 2), (ROWS,), parts),)), 1) / size
        both = torch_("stack", SUMMED_WEIGHTS, 1).method("flatten", 0, 1)
        folded = [
            FoldedWeight(sums, Tensor((3, count, columns)), total.method("float"), (weight,)),
            FoldedWeight(pairs, Tensor((2 * count, columns)), both, (sums,)),
        ]
        if bias:
            means = X.method("double").method("reshape", -1, size).method("mean", 1).method("float")
            folded.append(
                FoldedWeight(graph.fresh(f"{linear.name}_bias_averages"), Tensor((count,)), means, tuple(bias))
            )
        features = replace(linear.type, shape=(*linear.type.shape[:-1], 2 * count))
        averages = Node(
            graph.fresh(f"{linear.name}_of_averages"), "linear", (x, pairs), features, functional("linear", X, Y)
        )
        view = _parts(graph, node, averages.name, replace(node.type, shape=(*node.type.shape[:-1], 2 * count)), 2)
        total = _sum_of_terms(graph, node, view, False, [new.name for new in folded[2:]])
        graph = graph.with_folded(*folded).with_nodes_for(node.name, [averages, *total])
    return graph


def pool_to_reduction(graph: OpGraph) -> OpGraph:
    """Max pooling of a linear layer's features in parts beside each other as the largest of each part."""
    for node in graph.nodes:
        size = _beside_each_other(graph, node) if node.op == "max_pool1d" else 0
        if not size or not _behind_linear(graph, node):
            continue
        view = _parts(graph, node, node.inputs[0], graph.type(node.inputs[0]), size)
        last = len(view.type.shape) - 1
        found = Node(
            node.name, "amax", (view.name,), node.type, torch_("amax", X, last), (("dims", (last,)), ("keepdim", False))
        )
        graph = graph.with_nodes_for(node.name, [view, found])
    return graph


def _beside_each_other(graph: OpGraph, node: Node) -> int:
    """The elements of each part, where a pool takes parts beside each other that are all its operand has; else 0."""
    (size,), source = node["taps"], graph.type(node.inputs[0])
    whole = (
        node["stride"] == (size,)
        and node["padding"] == (0,)
        and node["dilation"] == (1,)
        and source.shape[-1] % size == 0
    )
    return size if whole and not source.multiples[-1] and node["divisor"] in (None, size) else 0


def _parts(graph: OpGraph, node: Node, source: str, type_: Tensor, size: int) -> Node:
    """A view of a value of this type: parts of so many elements."""
    parts = replace(type_, shape=(*type_.shape[:-1], type_.shape[-1] // size, size), multiples=(*type_.multiples, 0))
    return Node(graph.fresh(f"{node.name}_parts"), "view", (source,), parts, reshape_call(parts))


def _viewed_linear(graph: OpGraph, node: Node) -> Node | None:
    """The layer of weights whose features a node reads along its last dimension, through views that nothing else
    reads."""
    inner = graph.producer(node.inputs[0])
    if inner is None or not graph.feeds_only(inner.name, node):
        return None
    if inner.op == "linear":
        return inner if all(graph.is_weight(w) for w in inner.inputs[1:]) else None
    if inner.op != "view":
        return None
    before = graph.type(inner.inputs[0])
    return (
        _viewed_linear(graph, inner)
        if (before.numel, before.shape[-1:]) == (inner.type.numel, inner.type.shape[-1:])
        else None
    )


def _behind_linear(graph: OpGraph, node: Node) -> bool:
    """Whether the node reads a linear layer, directly or through views and pointwise operators that nothing else
    reads."""
    inner = graph.producer(node.inputs[0]) if node.inputs else None
    if inner is None or not graph.feeds_only(inner.name, node):
        return False
    passes = is_view(inner) or (inner.op in OPS and OPS[inner.op].kind is Kind.POINTWISE)
    return inner.op == "linear" or (passes and _behind_linear(graph, inner))
