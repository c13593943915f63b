"""Pointwise operators: one entry for each, with its expression of operands ``x``, ``y``, ``z`` and ``w`` and of
attributes."""

from __future__ import annotations

import math
from operator import and_, ge, gt, le, lshift, lt, or_, rshift, xor
from typing import Any, Callable, Sequence

from kgen.compiler.graph.dtypes import DTYPES, is_float, nbytes
from kgen.compiler.graph.graph import Node, Ref, Tensor
from kgen.compiler.graph.library_call import DEVICE, Literal, X, dtype_named
from kgen.compiler.loops.expr import (
    INFINITY,
    Arg,
    Cast,
    Expr,
    attr,
    both,
    differ,
    double,
    either,
    equal,
    exactly,
    filled,
    function,
    no,
    w,
    where,
    wide,
    x,
    y,
    z,
)
from kgen.compiler.loops.functions import (
    absolute,
    apply_elu,
    apply_gelu,
    apply_gelu_tanh,
    apply_hardsigmoid,
    apply_hardswish,
    apply_logsigmoid,
    apply_mish,
    apply_sigmoid,
    apply_silu,
    apply_softplus,
    atan2,
    bits,
    clamp_to,
    copysign,
    cos,
    erf,
    exp,
    expbelow,
    expm1,
    finite_max,
    floor_divide,
    floor_modulo,
    floor_quotient,
    floor_remainder,
    fmax,
    fmin,
    fmod,
    hypot,
    inverseroot,
    lgamma,
    log,
    log1p,
    log_sum,
    nan_max,
    nan_min,
    positive,
    power,
    rint,
    sin,
    softmax_factor,
    sqrt,
    sqrt64,
    tanh,
    trunc,
)
from kgen.compiler.operators.op import Captured, Kind, Op

FORM = "form"  #: the attribute of a node whose expression is another one than its operator's


def _scalar(*names: str) -> Callable[[Captured], bool]:
    """Accept calls in which these arguments are numbers."""
    return lambda call: all(isinstance(call.arguments.get(n), (int, float)) for n in names)


def _equal(name: str, *values: Any) -> Callable[[Captured], bool]:
    """Accept calls in which the argument has one of these values."""
    return lambda call: call.arguments.get(name) in values


def _one_bound(name: str, other: str) -> Callable[[Captured], bool]:
    """Accept calls with this bound, a number or a tensor, and without the other."""
    return lambda call: (
        isinstance(call.arguments.get(name), (int, float, Ref, Literal)) and call.arguments.get(other) is None
    )


def _both_bounds(call: Captured) -> bool:
    """Accept calls with two bounds, each a number or a tensor."""
    return all(isinstance(call.arguments.get(name), (int, float, Ref, Literal)) for name in ("min", "max"))


_ALPHA = {"operands": ("self", "other"), "attrs": ("alpha",), "accept": _scalar("alpha")}
_BINARY = {"operands": ("self", "other")}
_PLAIN = {"accept": _equal("alpha", None, 1), **_BINARY}


def _pointwise(name: str, targets: str, expression: Expr | None, **more: Any) -> Op:
    return Op(name, Kind.POINTWISE, tuple(f"aten.{t}" for t in targets.split()), expression=expression, **more)


def _both(name: str, targets: str, expression: Expr | None, **more: Any) -> Op:
    """An entry with one expression for results of every dtype."""
    return _pointwise(name, targets, expression, integers=expression, **more)


def _binary(name: str, expression: Expr, aliases: str = "", **more: Any) -> Op:
    """A function of two values or of a value and a number, for results of every dtype."""
    return _both(name, f"{name}.Tensor {name}.Scalar {aliases}", expression, **_BINARY, **more)


def _functions(names: str, flops: int) -> tuple[Op, ...]:
    """Functions of the C library, which the device spells by the capitals of their names."""
    return tuple(_pointwise(n, f"{n}.default", function(n.upper())(x), flops=flops) for n in names.split())


def _keeps_place(call: Captured) -> bool:
    """Accept conversions that change the dtype alone."""
    device = call.arguments.get("device")
    return call.arguments.get("memory_format") is None and (device is None or device == DEVICE)


def _one_mask(call: Captured) -> bool:
    """Accept ``x[mask] = value`` with a mask of all elements and one value."""
    if call.type is None or call.arguments.get("accumulate") or len(call.arguments["indices"]) != 1:
        return False
    mask, value = (
        call.types.get(at.name) if isinstance(at, Ref) else None
        for at in (call.arguments["indices"][0], call.arguments["values"])
    )
    masked = mask is not None and mask.dtype == "bool" and mask.sizes() == call.type.sizes()
    return masked and (isinstance(call.arguments["values"], Literal) or (value is not None and value.shape == ()))


def _by_whole(least: int, end: int) -> Callable[[Captured], bool]:
    """Accept integers beside one number from ``least`` to below ``end``."""

    def accept(call: Captured) -> bool:
        other = call.arguments["other"]
        return not is_float(call.type.dtype) and type(other) is int and least <= other < end

    return accept


def _whole(of: Tensor | None) -> bool:
    """Whether a tensor is one of integers."""
    return of is not None and of.dtype in DTYPES and DTYPES[of.dtype].kind == "int"


def _integers(call: Captured) -> bool:
    """Accept two tensors of integers, whose result is one of integers."""
    given = [
        call.types.get(call.arguments[name].name) if isinstance(call.arguments[name], Ref) else None
        for name in ("self", "other")
    ]
    return all(map(_whole, (*given, call.type)))


def _divides(call: Captured) -> bool:
    """Accept integers divided by integers or by a number that is none but 0."""
    other = call.arguments["other"]
    return _integers(call) if isinstance(other, Ref) else type(other) is int and other != 0 and _whole(call.type)


def _floors(call: Captured) -> bool:
    """Accept integers whose quotient is the whole number below it."""
    return call.arguments.get("rounding_mode", "floor") == "floor" and _divides(call)


def _bits(call: Captured) -> dict[str, Any]:
    """The bits of a result."""
    return {"bits": 8 * nbytes(call.type.dtype)}


def _as_bits(call: Captured) -> bool:
    """Accept float32 read as integers of 32 bits."""
    return call.type is not None and (call.types[call.arguments["self"].name].dtype, call.type.dtype) == (
        "float32",
        "int32",
    )


#: Whether bits are moved by less than none, or by all.
_FAR = either(y < 0, y >= attr("bits"))


def _clamp_attrs(call: Captured) -> dict[str, Any] | None:
    """The bounds, infinite where there is none; ``None`` where they are crossed, for which PyTorch has a rule of its
    own.

    Integers have no infinity: they are refused unless both bounds are there.
    """
    low, high = (call.arguments.get(word, call.arguments.get(f"{word}_val")) for word in ("min", "max"))
    if (low is None or high is None) and not is_float(call.type.dtype):
        return None
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    return {"min": low, "max": high} if low <= high else None


POINTWISE = (
    _both("add", "add.Tensor add.Scalar", x + y, read=lambda c: {"alpha": c.arguments.get("alpha", 1)}, **_PLAIN),
    _pointwise("add_scaled", "add.Tensor", x + attr("alpha") * y, **_ALPHA),
    _both("sub", "sub.Tensor sub.Scalar", x - y, **_PLAIN),
    _both("rsub", "rsub.Tensor rsub.Scalar", y - x, **_PLAIN),
    _both("mul", "mul.Tensor mul.Scalar multiply.Tensor multiply.Scalar", x * y, **_BINARY),
    _pointwise(
        "div",
        "div.Tensor div.Scalar divide.Tensor divide.Scalar true_divide.Tensor div.Tensor_mode",
        x / y,
        accept=_equal("rounding_mode", None),
        **_BINARY,
    ),
    _both("neg", "neg.default", -x),
    _pointwise("abs", "abs.default", absolute(x), integers=where(x < 0, -x, x)),
    _pointwise("reciprocal", "reciprocal.default pow.Tensor_Scalar", 1.0 / x, accept=_equal("exponent", None, -1)),
    _both("cube", "pow.Tensor_Scalar", x * x * x, accept=_equal("exponent", 3)),
    _both("square", "square.default pow.Tensor_Scalar", x * x, accept=_equal("exponent", None, 2)),
    _pointwise("sqrt", "sqrt.default pow.Tensor_Scalar", sqrt(x), accept=_equal("exponent", None, 0.5)),
    _pointwise("rsqrt", "rsqrt.default pow.Tensor_Scalar", 1.0 / sqrt(x), accept=_equal("exponent", None, -0.5)),
    _pointwise("exp", "exp.default", exp(x), flops=8),
    _pointwise("expm1", "expm1.default", expm1(x), flops=10),
    _pointwise("log", "log.default", log(x), flops=8),
    _pointwise("log1p", "log1p.default", log1p(x), flops=10),
    _pointwise("sin", "sin.default", sin(x), flops=15),
    _pointwise("cos", "cos.default", cos(x), flops=15),
    _pointwise("erf", "erf.default", erf(x), flops=20),
    _pointwise("tanh", "tanh.default", tanh(x), flops=12),
    _pointwise("pow_scalar", "pow.Tensor_Scalar", power(x, y), operands=("self", "exponent"), flops=20, label="pow"),
    _pointwise("maximum", "maximum.default max.other", nan_max(x, y), integers=where(x > y, x, y), **_BINARY),
    _pointwise("minimum", "minimum.default min.other", nan_min(x, y), integers=where(x < y, x, y), **_BINARY),
    _pointwise("relu", "relu.default relu_.default", positive(x)),
    _pointwise("relu6", "relu6.default", clamp_to(x, 0.0, 6.0)),
    _pointwise(
        "clamp",
        "clamp.default hardtanh.default clamp_.default hardtanh_.default",
        clamp_to(x, attr("min"), attr("max")),
        read=_clamp_attrs,
        integers=where(x < attr("min"), attr("min"), where(x > attr("max"), attr("max"), x)),
    ),
    _both(
        "clamp_min",
        "clamp_min.default clamp.default",
        where(x < attr("min"), attr("min"), x),
        attrs=("min",),
        accept=_one_bound("min", "max"),
    ),
    _both(
        "clamp_max",
        "clamp_max.default clamp.default",
        where(x > attr("max"), attr("max"), x),
        attrs=("max",),
        accept=_one_bound("max", "min"),
    ),
    _pointwise(
        "leaky_relu",
        "leaky_relu.default leaky_relu_.default",
        where(x > 0.0, x, x * attr("negative_slope")),
        attrs=("negative_slope",),
        accept=_scalar("negative_slope"),
    ),
    _pointwise(
        "threshold",
        "threshold.default",
        where(x <= attr("threshold"), attr("value"), x),
        attrs=("threshold", "value"),
        accept=_scalar("threshold", "value"),
    ),
    _pointwise("gelu", "gelu.default", apply_gelu(x), accept=_equal("approximate", "none"), flops=25),
    _pointwise("gelu_tanh", "gelu.default", apply_gelu_tanh(x), accept=_equal("approximate", "tanh"), flops=20),
    _pointwise("sigmoid", "sigmoid.default", apply_sigmoid(x), flops=10),
    _pointwise("silu", "silu.default silu_.default", apply_silu(x), flops=10),
    _pointwise("mish", "mish.default", apply_mish(x), flops=15),
    _pointwise(
        "softplus",
        "softplus.default",
        apply_softplus(x, attr("beta"), attr("threshold")),
        attrs=("beta", "threshold"),
        accept=_scalar("beta", "threshold"),
        flops=18,
    ),
    _pointwise(
        "elu",
        "elu.default elu_.default",
        apply_elu(x, attr("alpha"), attr("scale"), attr("input_scale")),
        attrs=("alpha", "scale", "input_scale"),
        flops=12,
    ),
    _pointwise(
        "selu",
        "selu.default",
        apply_elu(x, exactly("1.6732632423543772"), exactly("1.0507009873554805"), 1.0),
        flops=12,
    ),
    _pointwise("hardswish", "hardswish.default hardswish_.default", apply_hardswish(x), flops=5),
    _pointwise("hardsigmoid", "hardsigmoid.default", apply_hardsigmoid(x), flops=4),
    _pointwise("log_sigmoid", "log_sigmoid.default", apply_logsigmoid(x), flops=20),
    _pointwise("lerp_affine", "", x * y + z, flops=2, label="affine", aten="addcmul.default"),
    _pointwise("distributed_product", "", x * y + x * z, flops=3, label="mul", aten="add.Tensor"),
    _pointwise("normalise", "", (x - y) * z, flops=2, aten="mul.Tensor"),
    _pointwise("normalise_affine", "", (x - y) * z + w, flops=3, label="normalise", aten="add.Tensor"),
    # In float64: what is rounded here is the same for all elements of a channel, and nothing averages it out.
    _pointwise(
        "inverse_deviation",
        "",
        Cast(double(1.0) / sqrt64(x + wide("eps")), "float32"),
        attrs=("eps",),
        aten="rsqrt.default",
    ),
    # In float32: few elements share it, and a kernel computes it for as many spans as there are rows and groups.
    _pointwise(
        "inverse_deviation_of_columns",
        "",
        inverseroot(x + Cast(wide("eps"), "float32")),
        attrs=("eps",),
        label="inverse_deviation",
        aten="rsqrt.default",
    ),
    _pointwise(
        "scaled_inverse_deviation",
        "",
        Cast(y / sqrt64(x + wide("eps")), "float32"),
        attrs=("eps",),
        label="inverse_deviation",
        aten="mul.Tensor",
    ),
    _pointwise(
        "moving_average",
        "",
        Cast(wide("keep") * x + wide("momentum") * y, "float32"),
        attrs=("keep", "momentum"),
        aten="lerp_.Scalar",
    ),
    _pointwise(
        "apply_softmax",
        "",
        expbelow(x - finite_max(y)) * softmax_factor(y, z),
        flops=10,
        label="softmax",
        aten="mul.Tensor",
    ),
    _pointwise("apply_log_softmax", "", x - y - log_sum(y, z), flops=10, label="log_softmax", aten="sub.Tensor"),
)

#: Comparisons, logic, choices, conversions, and functions that few networks have.
MORE_POINTWISE = (
    *(
        _binary(name, compare(x, y))
        for name, compare in (("lt", lt), ("le", le), ("gt", gt), ("ge", ge), ("eq", equal), ("ne", differ))
    ),
    *(
        _binary(f"bitwise_{name}", of(x, y), f"__{name}__.Tensor __{name}__.Scalar")
        for name, of in (("and", and_), ("or", or_), ("xor", xor))
    ),
    _both("logical_and", "logical_and.default", both(x, y), **_BINARY),
    _both("logical_or", "logical_or.default", either(x, y), **_BINARY),
    _both("logical_xor", "logical_xor.default", differ(no(x), no(y)), **_BINARY),
    _both("bitwise_not", "bitwise_not.default", ~x, accept=lambda c: c.type is not None and c.type.dtype != "bool"),
    _both("logical_not", "logical_not.default bitwise_not.default", no(x)),
    _both("isnan", "isnan.default", differ(x, x)),
    _both("isinf", "isinf.default", equal(absolute(x), INFINITY)),
    _both(
        "where",
        "where.self where.ScalarOther where.ScalarSelf where.Scalar",
        where(x, y, z),
        operands=("condition", "self", "other"),
    ),
    _both("masked_fill", "masked_fill.Scalar masked_fill.Tensor", where(y, z, x), operands=("self", "mask", "value")),
    _both("masked_put", "index_put.default", where(y, z, x), operands=("self", "indices", "values"), accept=_one_mask),
    _both(
        "cast",
        "_to_copy.default to.dtype to.other to.dtype_layout type_as.default",
        Cast(x),
        accept=_keeps_place,
        read=lambda c: {"dtype": c.type.dtype},
        library=lambda attrs: X.method("to", dtype_named(attrs["dtype"])),
    ),
    _pointwise("remainder", "remainder.Tensor remainder.Scalar", floor_modulo(x, y), **_BINARY, flops=8),
    _pointwise(
        "remainder_of_integers",
        "remainder.Tensor remainder.Scalar",
        None,
        accept=_divides,
        **_BINARY,
        integers=floor_remainder(x, y),
        flops=4,
    ),
    _pointwise(
        "quotient_of_integers",
        "floor_divide.default floor_divide.Scalar div.Tensor_mode div.Scalar_mode",
        None,
        accept=_floors,
        **_BINARY,
        integers=floor_quotient(x, y),
        flops=4,
    ),
    *(
        _pointwise(
            f"bitwise_{name}_shift",
            f"bitwise_{name}_shift.Tensor_Scalar bitwise_{name}_shift.Tensor __{name[0]}shift__.Scalar",
            None,
            accept=_by_whole(0, 31),
            **_BINARY,
            integers=shift(x, y),
        )
        for name, shift in (("left", lshift), ("right", rshift))
    ),
    _pointwise(
        "shifted_left",
        "bitwise_left_shift.Tensor __lshift__.Tensor",
        None,
        accept=_integers,
        read=_bits,
        **_BINARY,
        integers=where(_FAR, 0, Cast(x) << y),
    ),
    _pointwise(
        "shifted_right",
        "bitwise_right_shift.Tensor __rshift__.Tensor",
        None,
        accept=_integers,
        read=_bits,
        **_BINARY,
        integers=where(_FAR, -(x < 0), Cast(x) >> y),
    ),
    _pointwise("bits", "view.dtype", None, accept=_as_bits, integers=bits(x)),
    _pointwise("fmod", "fmod.Tensor fmod.Scalar", fmod(x, y), **_BINARY, flops=8),
    _pointwise("fmax", "fmax.default", fmax(x, y), **_BINARY),
    _pointwise("fmin", "fmin.default", fmin(x, y), **_BINARY),
    _pointwise("copysign", "copysign.Tensor copysign.Scalar", copysign(x, y), **_BINARY),
    _pointwise("atan2", "atan2.default", atan2(x, y), **_BINARY, flops=25),
    _pointwise("hypot", "hypot.default", hypot(x, y), **_BINARY, flops=10),
    _pointwise("pow", "pow.Tensor_Tensor pow.Scalar", power(x, y), operands=("self", "exponent"), flops=20),
    _pointwise(
        "div_floor",
        "div.Tensor_mode floor_divide.default",
        floor_divide(x, y),
        accept=_equal("rounding_mode", None, "floor"),
        **_BINARY,
        flops=10,
    ),
    _pointwise("div_trunc", "div.Tensor_mode", trunc(x / y), accept=_equal("rounding_mode", "trunc"), **_BINARY),
    _pointwise(
        "clamp_min_tensor",
        "clamp_min.Tensor clamp.Tensor",
        nan_max(x, y),
        operands=("self", "min"),
        accept=_one_bound("min", "max"),
    ),
    _pointwise(
        "clamp_max_tensor",
        "clamp_max.Tensor clamp.Tensor",
        nan_min(x, y),
        operands=("self", "max"),
        accept=_one_bound("max", "min"),
    ),
    _pointwise(
        "clamp_tensor", "clamp.Tensor", nan_min(nan_max(x, y), z), operands=("self", "min", "max"), accept=_both_bounds
    ),
    _both("copy", "copy.default", x, operands=("src", "self")),
    _both("sub_scaled", "sub.Tensor", x - attr("alpha") * y, **_ALPHA),
    _pointwise("round", "round.default", rint(x)),
    _pointwise("sign", "sign.default sgn.default", (x > 0.0) - (x < 0.0), integers=(x > 0) - (x < 0)),
    *_functions("floor ceil trunc", 1),
    *_functions("exp2 log2 log10 atan", 12),
    *_functions("tan asin acos sinh cosh asinh acosh atanh erfc", 20),
    _pointwise("lgamma", "lgamma.default", lgamma(x), flops=30),
)


def map_expression(op: Op, node: Node, operands: Sequence[Expr]) -> Expr:
    """The expression of a pointwise node of that entry over ``operands``; numbers stand for its attributes."""
    dtype = node.type.dtype
    expression = dict(node.attrs).get(FORM) or (op.expression if is_float(dtype) else op.integers)
    if FORM in dict(node.attrs):  # it has the numbers in it, so that its operands are tensors alone
        operands = [operand for operand in operands if isinstance(operand, Arg)]
    assert expression is not None
    return filled(
        expression, operands, {key: value for key, value in node.attrs if isinstance(value, (int, float))}, dtype
    )
