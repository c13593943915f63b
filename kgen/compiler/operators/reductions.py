"""Reductions: how values are combined, and how each operator is lowered into maps and reductions."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable

from kgen.compiler.graph.graph import Node
from kgen.compiler.loops.expr import SELF, Cast, Expr, both, const, differ, either, equal, w, where, x, y, z
from kgen.compiler.loops.functions import expbelow, finite_max, log, log_sum, nan_max, nan_min, softmax_factor, sqrt
from kgen.compiler.operators import windows
from kgen.compiler.operators.op import Captured, Kind, Lowering, entry

#: How reductions combine values, with the names of their results.
COMBINES: dict[str, tuple[str, ...]] = {
    "sum": ("sum",),
    "product": ("product",),
    "max": ("max",),
    "min": ("min",),
    "argmax": ("max", "at"),  # of values and their places: the first place of the largest, or of NaN
    "argmin": ("min", "at"),
    "moments": ("count", "mean", "squares"),  # squares: the sum of squared deviations from the mean
    "max_finite": ("max",),  # starts at the lowest float and ignores NaN: softmax subtracts it
    "softmax": ("max", "sum"),  # the running maximum and the sum of exponentials below it
    "whole_sum": ("sum",),
    "whole_product": ("product",),
    "whole_max": ("max",),
    "whole_min": ("min",),
}

#: Those of integers, whose values and results are of int64.
WHOLE = frozenset(kind for kind in COMBINES if kind.startswith("whole_"))

#: The results of a reduction of one element, as expressions of it; sums, maxima and minima are the element itself.
OF_ONE = {
    "argmax": (x, const(0)),
    "argmin": (x, const(0)),
    "moments": (const(1.0), x, const(0.0)),
    "softmax": (x, expbelow(x - finite_max(x))),
}


#: How a kind takes in a further element: expressions of its results so far, then of the element's. Kinds that are made
#: of others have none.
OF_FEW: dict[str, tuple[Expr, ...]] = {
    "sum": (x + y,),
    "product": (x * y,),
    "max": (nan_max(x, y),),
    "min": (nan_min(x, y),),
    "max_finite": (where(y > x, y, x),),
    "whole_sum": (x + y,),
    "whole_product": (x * y,),
    "whole_max": (where(y > x, y, x),),
    "whole_min": (where(y < x, y, x),),
    "argmax": (
        where(either(z > x, both(differ(z, z), equal(x, x))), z, x),
        where(either(z > x, both(differ(z, z), equal(x, x))), w, y),
    ),
    "argmin": (
        where(either(z < x, both(differ(z, z), equal(x, x))), z, x),
        where(either(z < x, both(differ(z, z), equal(x, x))), w, y),
    ),
}

LOWEST = -3.4028234663852886e38  #: of float32, where maxima of finite numbers start
INTERLEAVED = 4  # products of one thread in PyTorch's reductions on a GPU
MOST_FEW = 16  # elements that one thread reduces by itself, as values beside each other

# Reductions: each lowers itself into maps over elements, reductions along the row, and maps over rows.


def of_few(node: Node) -> bool:
    """Whether a rewrite leaves the reduction to one thread, as maps of its elements."""
    return ("of_few", True) in node.attrs


def beside(node: Node) -> bool:
    """Whether one thread makes all elements of the last dimension of such a reduction's result: they have their
    operands in common."""
    return of_few(node) and ("beside", True) in node.attrs


def _stable_sum(b: Lowering, v: Any) -> tuple[Any, Any, Any]:
    """The row's maximum and the sum of exponentials below it, in one online pass or in two; of two, the
    exponentials."""
    if b.two_passes:
        m = b.reduce("max_finite", v)
        e = b.map(expbelow(x - y), v, b.map(finite_max(x), m, name="shift"), name="exp")
        return m, b.reduce("sum", e), e
    return *b.reduce("softmax", v), None


def _softmax(b: Lowering, node: Node, v: Any) -> Any:
    m, s, e = _stable_sum(b, v)
    factor = b.map(softmax_factor(x, y), m, s, name="factor")
    if e is not None:
        return b.map(x * y, e, factor)
    return b.map(expbelow(x - y) * z, v, b.map(finite_max(x), m, name="shift"), factor)


def _log_softmax(b: Lowering, node: Node, v: Any) -> Any:
    m, s, _ = _stable_sum(b, v)
    return b.map(x - y - z, v, m, b.map(log_sum(x, y), m, s, name="log"))


def _logsumexp(b: Lowering, node: Node, v: Any) -> Any:
    m, s, _ = _stable_sum(b, v)
    return b.map(finite_max(x) + log(y), m, s)


def _reduce(kind: str, after: Expr = SELF, before: Expr = SELF, over_count: bool = False) -> Callable[..., Any]:
    """The reduction of ``before`` of the operand, and ``after`` of its result, or its mean."""

    def lower(b: Lowering, node: Node, v: Any) -> Any:
        r = b.reduce(kind, v if before == SELF else b.map(before, v, name="term"))
        then = x / b.count if over_count else after
        return r if then == SELF else b.map(then, r)

    return lower


def _of_integers(kind: str) -> Callable[..., Any]:
    """The reduction of integers as ones of 64 bits."""
    return lambda b, node, v: b.reduce(f"whole_{kind}", b.map(Cast(x, "int64"), v, name="whole", dtype="int64"))


def _moments(b: Lowering, v: Any) -> tuple[Any, Any]:
    """The mean, and the sum of squared deviations from it: in one pass, or in two."""
    if not b.two_passes:
        return b.reduce("moments", v)[1:]
    mean = b.map(x / b.count, b.reduce("sum", v), name="mean")
    centred = b.map(x - y, v, mean, name="centred")
    return mean, b.reduce("sum", b.map(x * x, centred, name="square"))


def _mean(b: Lowering, node: Node, total: Any) -> Any:
    """The total over the number of elements, less the correction."""
    count = b.count - float(node["correction"]) if node["correction"] else b.count
    return b.map(x / count, total)


def _variance(b: Lowering, node: Node, v: Any) -> Any:
    return _mean(b, node, _moments(b, v)[1])


def _extreme_at(kind: str) -> Callable[..., Any]:
    return lambda b, node, v: b.reduce(kind, v, b.place)[1]


def _layer_norm(b: Lowering, node: Node, v: Any, *affine: Any) -> Any:
    mean, squares = _moments(b, v)
    variance = b.map(x / b.count, squares, name="variance")
    deviation = b.map(1.0 / sqrt(x + node["eps"]), variance, name="inverse_deviation")
    found = b.map((x - y) * z, v, mean, deviation)
    for expression, value in zip((x * y, x + y), affine):
        found = b.map(expression, found, value)
    return found


def _rms_norm(b: Lowering, node: Node, v: Any, *weight: Any) -> Any:
    square = b.map(x * x, v, name="square")
    mean = b.map(x / b.count, b.reduce("sum", square), name="mean_square")
    root = b.map(1.0 / sqrt(x + node["eps"]), mean, name="inverse_root")
    found = b.map(x * y, v, root)
    return b.map(x * y, found, weight[0]) if weight else found


def _reduced(call: Captured) -> dict[str, Any] | None:
    """The dimensions that a reduction takes away; all of them where it names none."""
    rank = len(call.shape("self"))
    dim = call.arguments.get("dim")
    dims = range(rank) if dim is None or dim == () else dim if isinstance(dim, tuple) else (dim,)
    if not rank or not all(isinstance(d, int) for d in dims):
        return None
    return {"dims": tuple(sorted({d % rank for d in dims})), "keepdim": bool(call.arguments.get("keepdim", False))}


def _multiplied(call: Captured) -> dict[str, Any] | None:
    """The dimensions of a product, and in how many interleaved products PyTorch's kernels multiply the factors of one
    thread.

    Products of probabilities leave float32's range. Another order rounds other numbers to zero on the way.
    """
    found = _reduced(call)
    last = len(call.shape("self")) - 1
    return found and {**found, "interleaved": INTERLEAVED if call.elsewhere and last not in found["dims"] else 1}


def _corrected(call: Captured) -> dict[str, Any] | None:
    """The dimensions of a variance, and what is taken from the count: 1 where the call does not say."""
    correction, found = call.arguments.get("correction"), _reduced(call)
    return found and {**found, "correction": 1 if correction is None else correction}


def _kept(call: Captured) -> dict[str, Any] | None:
    """The dimensions that a reduction runs over, where its result has the operand's shape."""
    found = _reduced(call)
    return {**found, "keepdim": True} if found else None


def _normalized(call: Captured) -> dict[str, Any] | None:
    eps = call.arguments.get("eps")
    shape = call.arguments.get("normalized_shape")
    if not isinstance(eps, float) or not isinstance(shape, tuple):
        return None
    rank = len(call.shape("input"))
    return {"dims": tuple(range(rank - len(shape), rank)), "keepdim": True, "eps": eps}


def no_dtype(call: Captured) -> bool:
    """Accept calls whose result has the dtype that it has by itself."""
    return call.arguments.get("dtype") is None


def keeps_dtype(call: Captured) -> bool:
    """Accept calls whose result has the dtype of the operand."""
    return call.type is not None and call.type.dtype == call.types[call.arguments["self"].name].dtype


def _affine_in_order(call: Captured) -> bool:
    """A bias without a weight would be taken for the weight."""
    return call.arguments.get("bias") is None or call.arguments.get("weight") is not None


_reduction = partial(entry, Kind.REDUCTION, read=_reduced)
REDUCTIONS = (
    _reduction(
        "softmax",
        "softmax.int _softmax.default",
        lower=_softmax,
        read=_kept,
        accept=no_dtype,
        flops=10,
        block_a_row=True,
    ),
    _reduction(
        "log_softmax",
        "log_softmax.int _log_softmax.default",
        lower=_log_softmax,
        read=_kept,
        accept=no_dtype,
        flops=10,
        block_a_row=True,
    ),
    _reduction("logsumexp", "logsumexp.default", lower=_logsumexp, flops=10),
    _reduction("sum", "sum.dim_IntList sum.default", lower=_reduce("sum"), accept=no_dtype),
    _reduction("mean", "mean.dim mean.default", lower=_reduce("sum", over_count=True), accept=no_dtype),
    _reduction(
        "mean_pool",
        windows.ADAPTIVE,
        lower=_reduce("sum", over_count=True),
        read=windows.over_all,
        accept=windows.is_mean,
    ),
    _reduction("amax", "amax.default", lower=_reduce("max")),
    _reduction("amin", "amin.default", lower=_reduce("min")),
    _reduction("prod", "prod.dim_int prod.default", lower=_reduce("product"), read=_multiplied, accept=no_dtype),
    *(
        _reduction(f"{kind}_of_integers", targets, lower=_of_integers(word), accept=no_dtype, label=kind, whole=True)
        for kind, word, targets in (
            ("sum", "sum", "sum.dim_IntList sum.default"),
            ("prod", "product", "prod.dim_int prod.default"),
            ("amax", "max", "amax.default"),
            ("amin", "min", "amin.default"),
        )
    ),
    _reduction("argmax", "argmax.default", lower=_extreme_at("argmax"), places=True),
    _reduction("argmin", "argmin.default", lower=_extreme_at("argmin"), places=True),
    _reduction("variance", "var.correction", lower=_variance, read=_corrected),
    _reduction("unbiased_variance", "", lower=_variance, label="variance", aten="var.correction"),
    _reduction("moments_mean", "", lower=lambda b, node, v: _moments(b, v)[0], label="mean", aten="mean.dim"),
    _reduction(
        "corrected_mean",
        "",
        lower=lambda b, node, v: _mean(b, node, b.reduce("sum", v)),
        label="mean",
        aten="div.Tensor",
    ),
    _reduction("softmax_max", "", lower=lambda b, node, v: _stable_sum(b, v)[0], aten="amax.default"),
    _reduction("softmax_sum", "", lower=lambda b, node, v: _stable_sum(b, v)[1], aten="sum.dim_IntList"),
    _reduction(
        "norm",
        "linalg_vector_norm.default",
        lower=_reduce("sum", sqrt(x), x * x),
        accept=lambda c: c.arguments.get("ord", 2) == 2 and keeps_dtype(c),
    ),
    _reduction(
        "layer_norm",
        "layer_norm.default",
        lower=_layer_norm,
        read=_normalized,
        operands="input weight bias",
        accept=_affine_in_order,
        flops=8,
        block_a_row=True,
    ),
    _reduction(
        "rms_norm",
        "rms_norm.default",
        lower=_rms_norm,
        read=_normalized,
        operands="input weight",
        flops=6,
        block_a_row=True,
    ),
)
