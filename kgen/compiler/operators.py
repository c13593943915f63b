"""The table of operators: one entry for each operator that kgen knows, of one of the kinds in :class:`Kind`.

An operator without an entry is decomposed, or stays a library call. Pointwise entries are in
:mod:`kgen.compiler.pointwise`.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping

from kgen.compiler import convolutions, indexed, scans, views, windows
from kgen.compiler.dtypes import DTYPES, is_float, value_type
from kgen.compiler.graph import Literal, Node, Operand, Ref, refs
from kgen.compiler.op import Captured, Kind, Lowering, Op
from kgen.compiler.pointwise import MORE_POINTWISE, POINTWISE, c_float, literal

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
}

#: The results of a reduction of one element, as expressions of it; sums, maxima and minima are the element itself.
OF_ONE = {"argmax": ("{0}", "0"), "argmin": ("{0}", "0"), "moments": ("1.0f", "{0}", "0.0f"), "softmax": ("{0}", "EXPBELOW({0} - finite_max({0}))")}

def _float_tensors(call: Captured, places: bool = False) -> bool:
    """Accept calls on floating tensors with a floating result, or one of ``places``."""
    names = [n for a in call.arguments.values() for n in refs(a)]
    return (
        call.type is not None
        and (call.type.dtype == "int64" if places else is_float(call.type.dtype))
        and all(n in call.types and is_float(call.types[n].dtype) for n in names)
    )


def _keeps_order(call: Captured) -> bool:
    """Accept copies whose elements lie in the order of their dimensions."""
    form = call.arguments.get("memory_format")
    return form is None or getattr(form, "text", "") in ("torch.contiguous_format", "torch.preserve_format")



# Reductions: each lowers itself into maps over elements, reductions along the row, and maps over rows.


def _stable_sum(b: Lowering, x: Any) -> tuple[Any, Any]:
    """The row's maximum and the sum of exponentials below it, in one online pass or in two."""
    if b.two_passes:
        m = b.reduce("max_finite", x)
        e = b.map("EXPBELOW({0} - {1})", x, b.map("finite_max({0})", m, name="shift"), name="exp")
        return m, (e, b.reduce("sum", e))
    m, s = b.reduce("softmax", x)
    return m, (None, s)


def _softmax(b: Lowering, node: Node, x: Any) -> Any:
    m, (e, s) = _stable_sum(b, x)
    factor = b.map("softmax_factor({0}, {1})", m, s, name="factor")
    if e is not None:
        return b.map("{0} * {1}", e, factor)
    return b.map("EXPBELOW({0} - {1}) * {2}", x, b.map("finite_max({0})", m, name="shift"), factor)


def _log_softmax(b: Lowering, node: Node, x: Any) -> Any:
    m, (_, s) = _stable_sum(b, x)
    return b.map("({0} - {1}) - {2}", x, m, b.map("log_sum({0}, {1})", m, s, name="log"))


def _logsumexp(b: Lowering, node: Node, x: Any) -> Any:
    m, (_, s) = _stable_sum(b, x)
    return b.map("finite_max({0}) + LOG({1})", m, s)


def _reduce(kind: str, after: str = "{0}", before: str = "{0}") -> Callable[..., Any]:
    def lower(b: Lowering, node: Node, x: Any) -> Any:
        r = b.reduce(kind, x if before == "{0}" else b.map(before, x, name="term"))
        return r if after == "{0}" else b.map(after.replace("{count}", b.count), r)

    return lower


def _moments(b: Lowering, x: Any) -> tuple[Any, Any]:
    """The mean, and the sum of squared deviations from it: in one pass, or in two."""
    if not b.two_passes:
        return b.reduce("moments", x)[1:]
    mean = b.map(f"{{0}} / {b.count}", b.reduce("sum", x), name="mean")
    centred = b.map("{0} - {1}", x, mean, name="centred")
    return mean, b.reduce("sum", b.map("{0} * {0}", centred, name="square"))


def _mean(b: Lowering, node: Node, x: Any) -> Any:
    return _moments(b, x)[0]


def _variance(b: Lowering, node: Node, x: Any) -> Any:
    """The sum of squared deviations over the number of elements, less the correction."""
    count = f"({b.count} - {c_float(node['correction'])})" if node["correction"] else b.count
    return b.map(f"{{0}} / {count}", _moments(b, x)[1])


def _corrected_mean(b: Lowering, node: Node, x: Any) -> Any:
    """The sum over the number of elements, less the correction."""
    return b.map(f"{{0}} / ({b.count} - {c_float(node['correction'])})", b.reduce("sum", x))


def _softmax_part(number: int) -> Callable[..., Any]:
    """The maximum that softmax subtracts, or the sum of exponentials below it."""

    def lower(b: Lowering, node: Node, x: Any) -> Any:
        m, (_, s) = _stable_sum(b, x)
        return (m, s)[number]

    return lower


def _extreme_at(kind: str) -> Callable[..., Any]:
    return lambda b, node, x: b.reduce(kind, x, b.place)[1]


def _layer_norm(b: Lowering, node: Node, x: Any, *affine: Any) -> Any:
    mean, squares = _moments(b, x)
    variance = b.map(f"{{0}} / {b.count}", squares, name="variance")
    deviation = b.map(f"1.0f / SQRT({{0}} + {c_float(node['eps'])})", variance, name="inverse_deviation")
    y = b.map("({0} - {1}) * {2}", x, mean, deviation)
    for expression, value in zip(("{0} * {1}", "{0} + {1}"), affine):
        y = b.map(expression, y, value)
    return y


def _rms_norm(b: Lowering, node: Node, x: Any, *weight: Any) -> Any:
    square = b.map("{0} * {0}", x, name="square")
    mean = b.map(f"{{0}} / {b.count}", b.reduce("sum", square), name="mean_square")
    root = b.map(f"1.0f / SQRT({{0}} + {c_float(node['eps'])})", mean, name="inverse_root")
    y = b.map("{0} * {1}", x, root)
    return b.map("{0} * {1}", y, weight[0]) if weight else y


def _reduced(call: Captured) -> dict[str, Any] | None:
    """The dimensions that a reduction takes away; all of them where it names none."""
    rank = len(call.shape("self"))
    dim = call.arguments.get("dim")
    dims = range(rank) if dim is None or dim == () else dim if isinstance(dim, tuple) else (dim,)
    if not rank or not all(isinstance(d, int) for d in dims):
        return None
    return {"dims": tuple(sorted({d % rank for d in dims})), "keepdim": bool(call.arguments.get("keepdim", False))}


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


def _no_dtype(call: Captured) -> bool:
    return call.arguments.get("dtype") is None


def _affine_in_order(call: Captured) -> bool:
    """A bias without a weight would be taken for the weight."""
    return call.arguments.get("bias") is None or call.arguments.get("weight") is not None


def _reduction(name: str, targets: str, lower: Callable[..., Any], read: Any = _reduced, **more: Any) -> Op:
    return Op(name, Kind.REDUCTION, tuple(f"aten.{t}" for t in targets.split()), lower=lower, read=read, **more)


REDUCTIONS = (
    _reduction("softmax", "softmax.int _softmax.default", _softmax, _kept, accept=_no_dtype, flops=10),
    _reduction("log_softmax", "log_softmax.int _log_softmax.default", _log_softmax, _kept, accept=_no_dtype, flops=10),
    _reduction("logsumexp", "logsumexp.default", _logsumexp, flops=10),
    _reduction("sum", "sum.dim_IntList sum.default", _reduce("sum"), accept=_no_dtype),
    _reduction("mean", "mean.dim mean.default", _reduce("sum", "{0} / {count}"), accept=_no_dtype),
    _reduction("mean_pool", windows.ADAPTIVE, _reduce("sum", "{0} / {count}"), windows.over_all, accept=windows.is_mean),
    _reduction("amax", "amax.default", _reduce("max")),
    _reduction("amin", "amin.default", _reduce("min")),
    _reduction("prod", "prod.dim_int prod.default", _reduce("product"), accept=_no_dtype),
    _reduction("argmax", "argmax.default", _extreme_at("argmax"), integers="places"),
    _reduction("argmin", "argmin.default", _extreme_at("argmin"), integers="places"),
    _reduction("variance", "var.correction", _variance, _corrected),
    _reduction("unbiased_variance", "", _variance),
    _reduction("moments_mean", "", _mean),
    _reduction("corrected_mean", "", _corrected_mean),
    _reduction("softmax_max", "", _softmax_part(0)),
    _reduction("softmax_sum", "", _softmax_part(1)),
    _reduction("norm", "linalg_vector_norm.default", _reduce("sum", "SQRT({0})", "{0} * {0}"),
         accept=lambda c: c.arguments.get("ord", 2) == 2 and _no_dtype(c)),
    _reduction("layer_norm", "layer_norm.default", _layer_norm, _normalized, operands=("input", "weight", "bias"),
         accept=_affine_in_order, flops=8),
    _reduction("rms_norm", "rms_norm.default", _rms_norm, _normalized, operands=("input", "weight"), flops=6),
)  # fmt: skip


def _permuted(call: Captured) -> dict[str, Any] | None:
    """The operand's dimension that each dimension of the result is."""
    rank = len(call.shape("self"))
    order = list(range(rank))
    if "dims" in call.arguments:
        order = [d % rank for d in call.arguments["dims"]]
    elif rank > 1:
        a, b = (call.arguments.get(name, default) for name, default in (("dim0", -2), ("dim1", -1)))
        order[a % rank], order[b % rank] = order[b % rank], order[a % rank]
    return {"dims": tuple(order)}


def _multiples(call: Captured) -> tuple[int, ...]:
    return call.types[call.arguments["self"].name].multiples


def _sliced(call: Captured) -> dict[str, Any] | None:
    """Where a slice starts, of a dimension that does not follow the batch."""
    shape = call.shape("self")
    if not shape:
        return None
    dim = call.arguments.get("dim", 0) % len(shape)
    start, step = call.arguments.get("start") or 0, call.arguments.get("step", 1)
    if not isinstance(start, int) or not isinstance(step, int) or _multiples(call)[dim]:
        return None
    return {"dim": dim, "start": min(start + shape[dim] if start < 0 else start, shape[dim]), "step": step}


def _selected(call: Captured) -> dict[str, Any] | None:
    shape, at = call.shape("self"), call.arguments["index"]
    dim = call.arguments["dim"] % len(shape)
    return {"dim": dim, "at": at % shape[dim]} if isinstance(at, int) and not _multiples(call)[dim] else None


def _flipped(call: Captured) -> dict[str, Any] | None:
    rank = len(call.shape("self"))
    dims = tuple(sorted(d % rank for d in call.arguments["dims"]))
    return None if any(_multiples(call)[d] for d in dims) else {"dims": dims}


def _rolled(call: Captured) -> dict[str, Any] | None:
    rank, shifts = len(call.shape("self")), call.arguments["shifts"]
    dims = tuple(d % rank for d in call.arguments["dims"])
    fits = len(dims) == len(shifts) == len(set(dims)) and not any(_multiples(call)[d] for d in dims)
    return {"dims": dims, "shifts": tuple(shifts)} if fits and dims and all(isinstance(s, int) for s in shifts) else None


def _repeated(call: Captured) -> dict[str, Any] | None:
    """A dimension that follows the batch is not repeated."""
    repeats, multiples = call.arguments["repeats"], _multiples(call)
    behind = repeats[len(repeats) - len(multiples) :] if multiples else ()
    return {} if all(isinstance(r, int) for r in repeats) and all(r == 1 or not m for r, m in zip(behind, multiples)) else None


def _diagonal(call: Captured) -> dict[str, Any] | None:
    rank, given = len(call.shape("self")), call.arguments
    dims = given.get("dim1", 0) % rank, given.get("dim2", 1) % rank
    return {"dims": dims, "offset": given.get("offset", 0)} if not any(_multiples(call)[d] for d in dims) else None


def _unfolded(call: Captured) -> dict[str, Any] | None:
    rank = len(call.shape("self"))
    dim = call.arguments["dimension"] % max(rank, 1)
    return {"dim": dim, "step": call.arguments["step"]} if rank and not _multiples(call)[dim] else None


def _view(name: str, targets: str, index: views.IndexFunction, **more: Any) -> Op:
    return Op(name, Kind.VIEW, tuple(f"aten.{t}" for t in targets.split()), index=index, **more)


#: A rewrite drops those that return their operand as it is.
VIEWS = (
    _view("view", "view.default reshape.default _unsafe_view.default flatten.using_ints unflatten.int squeeze.default "
          "squeeze.dim squeeze.dims unsqueeze.default", views.reshape),
    _view("permute", "permute.default transpose.int t.default numpy_T.default mT.default swapaxes.default "
          "swapdims.default", views.permute, read=_permuted),
    _view("expand", "expand.default expand_as.default", views.expand),
    _view("slice", "slice.Tensor", views.cut, read=_sliced, part=True),
    _view("select", "select.int", views.select, read=_selected, part=True),
    _view("diagonal", "diagonal.default", views.diagonal, read=_diagonal),
    _view("unfold", "unfold.default", views.unfold, read=_unfolded),
)  # fmt: skip


WINDOWS = tuple(
    Op(name, Kind.WINDOW, targets, operands, lower=lower, read=read) for name, targets, operands, lower, read in windows.TABLE
)

SCANS = tuple(
    Op(name, Kind.SCAN, (f"aten.{name}.default",), lower=scans.scan(kind), read=scans.along, accept=_no_dtype)
    for name, kind in (("cumsum", "sum"), ("cumprod", "prod"))
)

def _indexed(name: str, targets: str, operands: str, lower: Callable[..., str], read: Callable[..., Any]) -> Op:
    return Op(name, Kind.INDEXED, tuple(f"aten.{t}" for t in targets.split()), tuple(operands.split()), lower=lower, read=read)


def _constant(name: str, targets: str, lower: Callable[..., str], read: Callable[..., Any], **more: Any) -> Op:
    return Op(name, Kind.CONSTANT, tuple(f"aten.{t}" for t in targets.split()), (), lower=lower, read=read, **more)


INDEXED = (
    _indexed("cat", "cat.default concat.default concatenate.default stack.default", "tensors", indexed.concatenate, indexed.concatenated),
    _indexed("pad", "constant_pad_nd.default", "self", indexed.pad, indexed.padded),
    _indexed("flip", "flip.default", "self", indexed.flip, _flipped),
    _indexed("roll", "roll.default", "self", indexed.roll, _rolled),
    _indexed("repeat", "repeat.default", "self", indexed.repeat, _repeated),
    _indexed("gather", "gather.default", "self index", indexed.gather, indexed.gathered),
    _indexed("index_select", "index_select.default", "self index", indexed.gather, indexed.gathered),
    _indexed("embedding", "embedding.default", "weight indices", indexed.embed, indexed.embedded),
    _indexed("index", "index.Tensor", "self indices", indexed.index_tensor, indexed.indexed),
    _constant("full", "full.default full_like.default zeros.default zeros_like.default ones.default ones_like.default "
              "scalar_tensor.default new_zeros.default new_ones.default new_full.default empty_permuted.default", indexed.fill, indexed.filled, library=indexed.full_call),
    _constant("arange", "arange.default arange.start arange.start_step", indexed.count, indexed.counted),
)  # fmt: skip


def _batch_norm_attrs(call: Captured) -> dict[str, Any] | None:
    roles = tuple(
        r for r in ("input", "weight", "bias", "running_mean", "running_var") if isinstance(call.arguments.get(r), Ref)
    )
    momentum = call.arguments.get("momentum")
    if not isinstance(momentum, float):
        return None
    training = bool(call.arguments.get("training"))
    return {"roles": roles, "training": training, "momentum": momentum, "eps": call.arguments["eps"]}


def _batch_norm_call(attrs: Mapping[str, Any]) -> str:
    """The call that refuses a batch of one in train mode, as the module does; the ATen operator does not."""
    at = {role: f"{{{number}}}" for number, role in enumerate(attrs["roles"])}
    tensors = ", ".join(at.get(r, "None") for r in ("input", "running_mean", "running_var", "weight", "bias"))
    return f"F.batch_norm({tensors}, {attrs['training']}, {attrs['momentum']!r}, {attrs['eps']!r})"


def _group_norm(call: Captured) -> dict[str, Any] | None:
    roles = tuple(r for r in ("input", "weight", "bias") if isinstance(call.arguments.get(r), Ref))
    groups, eps = call.arguments["num_groups"], call.arguments.get("eps", 1e-5)
    return {"roles": roles, "groups": groups, "eps": eps} if isinstance(groups, int) and call.type and len(call.type.shape) > 1 else None


OTHERS = (
    Op("group_norm", Kind.BATCH_NORM, ("aten.group_norm.default",), ("input", "weight", "bias"), read=_group_norm),
    Op("linear", Kind.CONTRACTION, ("aten.linear.default",), ("input", "weight", "bias")),
    Op("addmm", Kind.CONTRACTION, ("aten.addmm.default",), ("mat1", "mat2", "self"),
       accept=lambda c: c.arguments.get("beta", 1) == 1 and c.arguments.get("alpha", 1) == 1),
    Op("mm", Kind.CONTRACTION, ("aten.mm.default",), ("self", "mat2")),
    Op("matmul", Kind.CONTRACTION, ("aten.matmul.default",), ("self", "other")),
    Op("mv", Kind.CONTRACTION, ("aten.mv.default",), ("self", "vec")),
    Op("bmm", Kind.CONTRACTION, ("aten.bmm.default",), ("self", "mat2")),
    *(Op(name, Kind.CONTRACTION, targets, ("input", "weight", "bias"), read=convolutions.attributes)
      for name, targets in convolutions.TARGETS.items()),
    Op("batch_norm", Kind.BATCH_NORM, ("aten.batch_norm.default",),
       ("input", "weight", "bias", "running_mean", "running_var"), read=_batch_norm_attrs, library=_batch_norm_call),
    Op("identity", Kind.IDENTITY, ("aten.alias.default", "aten.detach.default", "aten.detach_.default", "aten.lift_fresh_copy.default"), ("self",)),
    Op("dropout", Kind.IDENTITY, ("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default"),
       ("input",), accept=lambda c: not c.arguments["train"] or c.arguments["p"] == 0.0),
    Op("clone", Kind.IDENTITY, ("aten.clone.default",), ("self",), accept=_keeps_order),
    Op("contiguous", Kind.IDENTITY, ("aten.contiguous.default",), ("self",),
       accept=_keeps_order),
    Op("batch_moments", Kind.MOMENTS),
)  # fmt: skip

#: Every operator that kgen knows, by name.
OPS: dict[str, Op] = {op.name: op for op in (*POINTWISE, *MORE_POINTWISE, *REDUCTIONS, *VIEWS, *INDEXED, *WINDOWS, *SCANS, *OTHERS)}

#: The entries for each ATen operator: the first that accepts a call is the call's.
BY_TARGET: dict[str, tuple[Op, ...]] = {
    target: tuple(op for op in OPS.values() if target in op.targets) for op in OPS.values() for target in op.targets
}

#: How the library call of an operator is spelled, for those that people know by a shorter name.
_SPELLING = (
    ("torch.ops.aten.linear.default(", "F.linear("),
    ("torch.ops.aten.view.default(", "torch.reshape("),  # also right where a copy that made it contiguous was dropped
    ("torch.ops.aten._unsafe_view.default(", "torch.reshape("),
    ("torch.ops.aten.gelu.default(", "F.gelu("),
    ("torch.ops.aten.mish.default(", "F.mish("),
    ("torch.ops.aten.softmax.int(", "torch.softmax("),
    ("torch.ops.aten.logsumexp.default(", "torch.logsumexp("),
    ("torch.ops.aten.mul.Tensor(", "torch.mul("),
    ("torch.ops.aten.add.Tensor(", "torch.add("),
    ("torch.ops.aten.clamp.default(", "torch.clamp("),
    ("torch.ops.aten.relu.default(", "F.relu("),
    ("torch.ops.aten.sigmoid.default(", "torch.sigmoid("),
    ("torch.ops.aten.tanh.default(", "torch.tanh("),
    ("torch.ops.aten.matmul.default(", "torch.matmul("),
    ("torch.ops.aten.mm.default(", "torch.mm("),
    ("torch.ops.aten.bmm.default(", "torch.bmm("),
)


def recognise(call: Captured) -> Node:
    """The node for a captured call: of the table if it is known and accepted, else opaque (a library call)."""
    for op in BY_TARGET.get(call.target, ()):
        node = _known(op, call)
        if node is not None:
            return node
    attrs = (("at", call.arguments["1"]),) if call.target == "_operator.getitem" else ()
    return Node(call.name, call.target, tuple(refs(dict(call.arguments))), call.type, spell(call.call), attrs, call.effect)


def spell(call: str) -> str:
    """The library call with the names that people use."""
    for long, short in _SPELLING:
        if call.startswith(long):
            return short + call[len(long) :]
    return call


def _known_dtypes(call: Captured) -> bool:
    """Accept calls on tensors of the dtypes that kernels take."""
    names = [n for a in call.arguments.values() for n in refs(a)]
    return call.type is not None and all(t is not None and t.dtype in DTYPES for t in (call.type, *map(call.types.get, names)))


#: Kinds whose entries compute with values of any dtype, and those for which dtypes do not matter; others, with floats.
_ANY_DTYPE, _NO_DTYPE = {Kind.POINTWISE, Kind.INDEXED, Kind.CONSTANT, Kind.VIEW}, {Kind.IDENTITY}


def _takes_dtypes(op: Op, call: Captured) -> bool:
    if op.kind in _NO_DTYPE:
        return True
    if op.kind not in _ANY_DTYPE:
        return _float_tensors(call, places=bool(op.integers))
    return _known_dtypes(call) and (op.kind is not Kind.POINTWISE or is_float(call.type.dtype) or bool(op.integers))


def _known(op: Op, call: Captured) -> Node | None:
    in_place = call.target.split(".")[1].endswith("_")
    if (call.effect and not in_place) or not op.accept(call):
        return None
    if not _takes_dtypes(op, call):
        return None
    if in_place and not isinstance(call.arguments["self"], Ref):
        return None
    operands: list[Operand] = []
    for name in op.operands:
        value = call.arguments.get(name)
        if value is None:
            continue
        if isinstance(value, Ref):
            operands.append(value.name)
        elif isinstance(value, Literal):
            operands.append(value.value)
        elif isinstance(value, (int, float)):
            operands.append(value)
        elif isinstance(value, tuple) and all(v is None or isinstance(v, Ref) for v in value):
            operands += [v.name for v in value if v is not None]
        else:
            return None
    attrs = {a: call.arguments.get(a) for a in op.attrs}
    if op.read is not None:
        found = op.read(call)
        if found is None:
            return None
        attrs |= found
    values = [o for o in operands if isinstance(o, str)]
    if not values and op.kind is not Kind.CONSTANT:
        return None
    source, mentioned = call.call, refs(dict(call.arguments))
    if op.library is None and not set(mentioned) <= set(values):
        return None
    for number, name in enumerate(mentioned if op.library is None else ()):
        # The call numbers tensors by first use; the node numbers those among its operands.
        source = source.replace(f"{{{number}}}", f"\0{values.index(name)}\1")
    source = source.replace("\0", "{").replace("\1", "}")
    source = op.library(attrs) if op.library else spell(source)
    effect = op.name == "batch_norm" and attrs["training"] and "running_mean" in attrs["roles"]
    return Node(call.name, op.name, tuple(operands), call.type, source, tuple(attrs.items()), effect)


#: Attributes that are spelled as doubles.
_WIDE = ("eps", "keep", "momentum")


def map_expression(node: Node, operands: list[str]) -> str:
    """The C expression of a pointwise node over the spelled ``operands``; attributes and numbers become literals."""
    dtype = node.type.dtype
    attrs: dict[str, str] = {"ctype": value_type(dtype)}
    for key, value in node.attrs:
        if isinstance(value, (int, float)):
            attrs[key] = repr(value) if key in _WIDE else literal(value, dtype)
    op = OPS[node.op]
    return (op.expression if is_float(dtype) else op.integers).format(*operands, **attrs)
