"""The table of operators: one entry for each operator that kgen knows, of one of the kinds in :class:`Kind`.

An operator without an entry is decomposed, or stays a library call. Entries of two kinds have files of their own,
:mod:`kgen.compiler.operators.pointwise` and :mod:`kgen.compiler.operators.reductions`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Mapping

from kgen.compiler.graph import convolutions
from kgen.compiler.graph.contractions import CONVOLVED, PRODUCT, RECURRENT, TRANSPOSED
from kgen.compiler.graph.dtypes import DTYPES, is_float
from kgen.compiler.graph.graph import Node, Operand, Ref, refs
from kgen.compiler.graph.library_call import DEVICE, LibraryCall, Literal, Value, functional, with_operands
from kgen.compiler.operators import gathers, sampling, scans, scatters, views, windows
from kgen.compiler.operators.op import Captured, Kind, Op, entry
from kgen.compiler.operators.pointwise import MORE_POINTWISE, POINTWISE
from kgen.compiler.operators.recurrences import CELLS
from kgen.compiler.operators.reductions import REDUCTIONS, keeps_dtype, no_dtype


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


def _fixed(call: Captured, *dims: int) -> tuple[int, ...] | None:
    """The dimensions of the operand, counted from the first; ``None`` where one of them follows the batch."""
    multiples = call.types[call.arguments["self"].name].multiples
    found = tuple(d % len(multiples) for d in dims) if multiples else ()
    return found if found and not any(multiples[d] for d in found) else None


def _sliced(call: Captured) -> dict[str, Any] | None:
    """Where a slice starts."""
    dims, start, step = (
        _fixed(call, call.arguments.get("dim", 0)),
        call.arguments.get("start") or 0,
        call.arguments.get("step", 1),
    )
    if not dims or not isinstance(start, int) or not isinstance(step, int):
        return None
    size = call.shape("self")[dims[0]]
    return {"dim": dims[0], "start": min(start + size if start < 0 else start, size), "step": step}


def _selected(call: Captured) -> dict[str, Any] | None:
    dims, at = _fixed(call, call.arguments["dim"]), call.arguments["index"]
    return {"dim": dims[0], "at": at % call.shape("self")[dims[0]]} if dims and isinstance(at, int) else None


def _flipped(call: Captured) -> dict[str, Any] | None:
    dims = _fixed(call, *call.arguments["dims"])
    return dims and {"dims": tuple(sorted(dims))}


def _rolled(call: Captured) -> dict[str, Any] | None:
    dims, shifts = _fixed(call, *call.arguments["dims"]), call.arguments["shifts"]
    fits = dims and len(dims) == len(shifts) == len(set(dims)) and all(isinstance(s, int) for s in shifts)
    return {"dims": dims, "shifts": tuple(shifts)} if fits else None


def _repeated(call: Captured) -> dict[str, Any] | None:
    """A dimension that follows the batch is not repeated."""
    repeats, rank = call.arguments["repeats"], len(call.shape("self"))
    if not all(isinstance(r, int) for r in repeats):
        return None
    more = [d for d, r in enumerate(repeats[len(repeats) - rank :]) if r != 1]
    return {} if not more or _fixed(call, *more) else None


def _diagonal(call: Captured) -> dict[str, Any] | None:
    given = call.arguments
    dims = _fixed(call, given.get("dim1", 0), given.get("dim2", 1))
    return dims and {"dims": dims, "offset": given.get("offset", 0)}


def _unfolded(call: Captured) -> dict[str, Any] | None:
    dims = _fixed(call, call.arguments["dimension"])
    return dims and {"dim": dims[0], "step": call.arguments["step"]}


_view = partial(entry, Kind.VIEW)
#: A rewrite drops those that return their operand as it is.
VIEWS = (
    _view("view", "view.default reshape.default _unsafe_view.default flatten.using_ints unflatten.int squeeze.default "
          "squeeze.dim squeeze.dims unsqueeze.default", index=views.reshape),
    _view("permute", "permute.default transpose.int t.default numpy_T.default mT.default swapaxes.default "
          "swapdims.default", index=views.permute, read=_permuted),
    _view("expand", "expand.default expand_as.default", index=views.expand),
    _view("slice", "slice.Tensor", index=views.cut, read=_sliced, part=True),
    _view("select", "select.int", index=views.select, read=_selected, part=True),
    _view("diagonal", "diagonal.default", index=views.diagonal, read=_diagonal),
    _view("unfold", "unfold.default", index=views.unfold, read=_unfolded),
)  # fmt: skip


WINDOWS = tuple(
    Op(name, Kind.WINDOW, targets, operands, lower=lower, read=read, sums=sums)
    for name, targets, operands, lower, read, sums in windows.TABLE
) + tuple(
    Op(
        f"conv{d}d{windows.BY_THREADS}",
        Kind.WINDOW,
        (),
        ("input", "weight", "bias"),
        lower=windows.depthwise,
        sums=CONVOLVED,
        label=f"conv{d}d",
        aten=f"conv{d}d.default",
    )
    for d in (1, 2, 3)
)  # of rewrites

SCANS = tuple(
    entry(Kind.SCAN, name, f"{name}.default", lower=scans.scan(kind), read=scans.along, accept=no_dtype)
    for name, kind in (("cumsum", "sum"), ("cumprod", "prod"))
) + (
    entry(Kind.SCAN, "linear_recurrence", "", "factor summand initial", lower=scans.recur, flops=2, aten="add.Tensor"),
)  # of rewrites

_indexed, _constant = partial(entry, Kind.INDEXED), partial(entry, Kind.CONSTANT, operands="")
INDEXED = (
    _indexed(
        "cat",
        "cat.default concat.default concatenate.default stack.default",
        "tensors",
        lower=gathers.concatenate,
        read=gathers.concatenated,
    ),
    _indexed("pad", "constant_pad_nd.default", "self", lower=gathers.pad, read=gathers.padded),
    _indexed("flip", "flip.default", "self", lower=gathers.flip, read=_flipped),
    _indexed("roll", "roll.default", "self", lower=gathers.roll, read=_rolled),
    _indexed("repeat", "repeat.default", "self", lower=gathers.repeat, read=_repeated),
    _indexed("gather", "gather.default", "self index", lower=gathers.gather, read=gathers.gathered, gathers=True),
    _indexed(
        "index_select", "index_select.default", "self index", lower=gathers.gather, read=gathers.gathered, gathers=True
    ),
    _indexed(
        "embedding", "embedding.default", "weight indices", lower=gathers.embed, read=gathers.embedded, gathers=True
    ),
    _indexed("index", "index.Tensor", "self indices", lower=gathers.index_tensor, read=gathers.indexed, gathers=True),
    _indexed(
        "overwrite",
        "slice_scatter.default select_scatter.default",
        "self src",
        lower=gathers.overwrite,
        read=gathers.overwritten,
    ),
    _indexed("pixel_shuffle", "pixel_shuffle.default", "self", lower=gathers.pixel_shuffle, read=gathers.shuffled),
    _indexed(
        "pixel_unshuffle", "pixel_unshuffle.default", "self", lower=gathers.pixel_unshuffle, read=gathers.shuffled
    ),
    _indexed("channel_shuffle", "channel_shuffle.default", "self", lower=gathers.channel_shuffle, read=gathers.grouped),
    _indexed("resize_bicubic", "upsample_bicubic2d.vec", "input", lower=sampling.resize, read=sampling.resized),
    _indexed(
        "grid_sample",
        "grid_sampler.default",
        "input grid",
        lower=sampling.grid_sample,
        read=sampling.sampled,
        gathers=True,
    ),
    _constant(
        "full",
        "full.default fill.Scalar fill.Tensor full_like.default zeros.default zeros_like.default ones.default "
        "ones_like.default "
        "scalar_tensor.default new_zeros.default new_ones.default new_full.default empty_permuted.default",
        lower=gathers.fill,
        read=gathers.filled,
        library=gathers.full_call,
    ),
    _constant("arange", "arange.default arange.start arange.start_step", lower=gathers.count, read=gathers.counted),
    _constant("linspace", "linspace.default", lower=gathers.space, read=gathers.evenly_spaced),
    _constant("eye", "eye.default eye.m", lower=gathers.identity_matrix),
)


_scatter = partial(entry, Kind.SCATTER, lower=scatters.scatter, read=scatters.along)
SCATTERS = (
    _scatter("index_add", "index_add.default", "self index source"),
    _scatter("index_reduce", "index_reduce.default", "self index source"),
    _scatter("index_copy", "index_copy.default", "self index source"),
    _scatter("index_fill", "index_fill.int_Scalar", "self index value"),
    _scatter("scatter", "scatter.src", "self index src"),
    _scatter("scatter_value", "scatter.value", "self index value", label="scatter"),
    _scatter("scatter_add", "scatter_add.default", "self index src"),
    _scatter("scatter_reduce", "scatter_reduce.two", "self index src"),
    _scatter("index_put", "index_put.default", "self indices values", read=scatters.at_indices),
)


def _given(call: Captured, *roles: str) -> tuple[str, ...]:
    """The arguments among these that are tensors."""
    return tuple(r for r in roles if isinstance(call.arguments.get(r), Ref))


def _batch_norm(call: Captured) -> dict[str, Any] | None:
    roles = _given(call, "input", "weight", "bias", "running_mean", "running_var")
    momentum, training = call.arguments.get("momentum"), bool(call.arguments.get("training"))
    found = {"roles": roles, "training": training, "momentum": momentum, "eps": call.arguments["eps"]}
    return found if isinstance(momentum, float) else None


def _batch_norm_call(attrs: Mapping[str, Any]) -> LibraryCall:
    """The call that refuses a batch of one in train mode, as the module does; the ATen operator does not."""
    at = {role: Value(number) for number, role in enumerate(attrs["roles"])}
    tensors = (at.get(role) for role in ("input", "running_mean", "running_var", "weight", "bias"))
    return functional("batch_norm", *tensors, attrs["training"], attrs["momentum"], attrs["eps"])


def _group_norm(call: Captured) -> dict[str, Any] | None:
    groups, eps = call.arguments["num_groups"], call.arguments.get("eps", 1e-5)
    found = {"roles": _given(call, "input", "weight", "bias"), "groups": groups, "eps": eps}
    return found if isinstance(groups, int) and call.type and len(call.type.shape) > 1 else None


def _keeps_values(call: Captured) -> bool:
    """Accept moves to another order in memory alone."""
    return (
        keeps_dtype(call)
        and call.arguments.get("memory_format") is not None
        and call.arguments.get("device") in (None, DEVICE)
    )


_contraction, _identity = partial(entry, Kind.CONTRACTION), partial(entry, Kind.IDENTITY)
_norm = partial(entry, Kind.BATCH_NORM)
OTHERS = (
    _contraction("linear", "linear.default", "input weight bias", sums=PRODUCT),
    _contraction(
        "addmm",
        "addmm.default",
        "mat1 mat2 self",
        accept=lambda c: c.arguments.get("beta", 1) == 1 and c.arguments.get("alpha", 1) == 1,
        sums=PRODUCT,
    ),
    _contraction("mm", "mm.default", "self mat2", sums=PRODUCT),
    _contraction("matmul", "matmul.default", "self other", sums=PRODUCT),
    _contraction("mv", "mv.default", "self vec", sums=PRODUCT),
    _contraction("bmm", "bmm.default", "self mat2", sums=PRODUCT),
    *(
        Op(
            name,
            Kind.CONTRACTION,
            targets,
            ("input", "weight", "bias"),
            read=convolutions.attributes,
            sums=TRANSPOSED if name.startswith("conv_transpose") else CONVOLVED,
        )
        for name, targets in convolutions.TARGETS.items()
    ),
    _norm("group_norm", "group_norm.default", "input weight bias", read=_group_norm),
    _norm(
        "batch_norm",
        "batch_norm.default",
        "input weight bias running_mean running_var",
        read=_batch_norm,
        library=_batch_norm_call,
    ),
    _identity("identity", "alias.default detach.default detach_.default lift_fresh_copy.default"),
    _identity(
        "dropout",
        "dropout.default feature_dropout.default alpha_dropout.default",
        "input",
        accept=lambda c: not c.arguments["train"] or c.arguments["p"] == 0.0,
    ),
    # In whatever order the elements lie: what forward returns has its own order in memory.
    _identity("clone", "clone.default"),
    _identity("contiguous", "contiguous.default"),
    _identity("to_format", "to.dtype_layout _to_copy.default", accept=_keeps_values),
    entry(Kind.MOMENTS, "batch_moments", "", label="moments", aten="var_mean.correction"),
)

#: Operators that rewrites make: each has one of a call's results.
RECURRENCES = tuple(entry(Kind.RECURRENCE, name, "", aten=f"{name}.input", sums=RECURRENT) for name in CELLS)

#: Every operator that kgen knows, by name.
OPS: dict[str, Op] = {
    op.name: op
    for op in (
        *POINTWISE,
        *MORE_POINTWISE,
        *REDUCTIONS,
        *VIEWS,
        *INDEXED,
        *WINDOWS,
        *SCANS,
        *SCATTERS,
        *OTHERS,
        *RECURRENCES,
    )
}


#: The entries for each ATen operator: the first that accepts a call is the call's.
BY_TARGET: dict[str, tuple[Op, ...]] = {
    target: tuple(op for op in OPS.values() if target in op.targets) for op in OPS.values() for target in op.targets
}


def add(op: Op) -> None:
    """Take a further entry into the table, behind those that cover the same ATen operators."""
    OPS[op.name] = op
    for target in op.targets:
        BY_TARGET[target] = (*BY_TARGET.get(target, ()), op)


def recognise(call: Captured) -> Node:
    """The node for a captured call: of the table if it is known and accepted, else opaque (a library call)."""
    for op in BY_TARGET.get(call.target, ()):
        node = _known(op, call)
        if node is not None:
            return node
    attrs = (("at", call.arguments["1"]),) if call.target == "_operator.getitem" else ()
    return Node(call.name, call.target, tuple(refs(dict(call.arguments))), call.type, call.call, attrs, call.effect)


#: Kinds whose entries compute with values of any dtype; others, but for identities, compute with floats.
_ANY_DTYPE = {Kind.POINTWISE, Kind.INDEXED, Kind.CONSTANT, Kind.VIEW, Kind.SCATTER}


def _takes_dtypes(op: Op, call: Captured) -> bool:
    """Whether the entry is for tensors of the call's dtypes."""
    types = [call.type, *(call.types.get(name) for name in refs(dict(call.arguments)))]
    if op.kind is Kind.IDENTITY:
        return True
    if any(t is None or t.dtype not in DTYPES for t in types):
        return False
    result, *operands = (is_float(t.dtype) for t in types)
    if op.kind in _ANY_DTYPE:
        return op.kind is not Kind.POINTWISE or result or op.integers is not None
    if op.whole:
        return all(t.dtype in ("int32", "int64") for t in types)
    if op.kind is Kind.SCAN and types[0].dtype == "int64":
        return not any(operands)
    return all(operands) and (types[0].dtype == "int64" if op.places else result)


def _operands(op: Op, call: Captured) -> list[Operand] | None:
    """The values and numbers that the entry takes, in its order; ``None`` where an argument is neither."""
    given = [call.arguments.get(name) for name in op.operands]
    flat = [v for value in given for v in (value if isinstance(value, tuple) else (value,)) if v is not None]
    if not all(isinstance(v, (Ref, Literal, int, float)) for v in flat):
        return None
    return [v.name if isinstance(v, Ref) else v.value if isinstance(v, Literal) else v for v in flat]


def _known(op: Op, call: Captured) -> Node | None:
    """The call as a node of this entry; ``None`` where the entry is not for it."""
    in_place = call.target.split(".")[1].endswith("_")
    if (in_place and not isinstance(call.arguments["self"], Ref)) or (call.effect and not in_place):
        return None
    operands = _operands(op, call)
    if operands is None or not op.accept(call) or not _takes_dtypes(op, call):
        return None
    found = op.read(call) if op.read else {}
    values, mentioned = [o for o in operands if isinstance(o, str)], refs(dict(call.arguments))
    if found is None or not (values or op.kind is Kind.CONSTANT) or not (op.library or set(mentioned) <= set(values)):
        return None
    attrs = {a: call.arguments.get(a) for a in op.attrs} | found
    # The call numbers tensors by first use; the node numbers those among its operands.
    made = (
        op.library(attrs)
        if op.library
        else with_operands(call.call, lambda value: Value(values.index(mentioned[value.number])))
    )
    effect = op.name == "batch_norm" and attrs["training"] and "running_mean" in attrs["roles"]
    return Node(call.name, op.name, tuple(operands), call.type, made, tuple(attrs.items()), effect)
