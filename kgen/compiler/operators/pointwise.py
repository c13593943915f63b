"""Pointwise operators: one entry for each, with its expression, and the functions that expressions call.

Expressions are C: ``{0}``, ``{1}``, ... stand for operands, ``{name}`` for attributes. The device spells functions in
capitals (``EXP``, ``ERF``, ...): ``expf`` in CUDA, ``vec::exp`` on the CPU. Expressions have no branches, so that compilers
can vectorise them. They return NaN where PyTorch does.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, Callable

from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.graph.graph import Literal, Ref
from kgen.compiler.operators.op import Captured, Kind, Op


@dataclass(frozen=True)
class Function:
    """A C function that expressions may call: ``body`` is the expression it returns, ``comment`` its formula.

    ``half`` is an expression for results of half types, where another one than ``body`` is cheaper. Its error is far below
    their rounding. It may use ``RECIPROCAL``, ``NORMAL``, which is the normal distribution's share below a number, and
    ``CHOOSE``, which computes both of its numbers.
    """

    name: str
    parameters: tuple[str, ...]
    body: str
    comment: str
    half: str = ""


#: Functions that expressions call, by name. A body is one expression over its parameters.
FUNCTIONS = {
    f.name: f
    for f in (
        Function("apply_gelu", ("x",), "0.5f * x * (1.0f + ERF(x * 0.70710678118654752f))", "x * Phi(x), exact form", "x * NORMAL(x)"),
        Function(
            "apply_gelu_tanh",
            ("x",),
            "0.5f * x * (1.0f + TANH(0.79788456080286536f * (x + 0.044715f * x * x * x)))",
            "x * Phi(x), tanh approximation",
            "x * RECIPROCAL(1.0f + EXP(-1.5957691216057308f * (x + 0.044715f * x * x * x)))",
        ),
        Function("apply_sigmoid", ("x",), "QUOTIENT(1.0f, 1.0f + EXP(-x))", "1 / (1 + exp(-x))", "RECIPROCAL(1.0f + EXP(-x))"),
        Function("apply_silu", ("x",), "QUOTIENT(x, 1.0f + EXP(-x))", "x * sigmoid(x)", "x * RECIPROCAL(1.0f + EXP(-x))"),
        Function(
            "apply_softplus",
            ("x", "beta", "threshold"),
            "x * beta > threshold ? x : LOG1P(EXP(x * beta)) / beta",
            "log(1 + exp(beta * x)) / beta; x itself above the threshold",
            "CHOOSE(x * beta > threshold, x, LOG1P(EXP(x * beta)) / beta)",
        ),
        Function(
            "mish_ratio",
            ("e",),
            "QUOTIENT(e * (e + 2.0f), e * (e + 2.0f) + 2.0f)",
            "tanh(log(1 + e))",
            "(e * (e + 2.0f)) * RECIPROCAL(e * (e + 2.0f) + 2.0f)",
        ),
        Function(
            "apply_mish",
            ("x",),
            "x > 20.0f ? x : x * mish_ratio(EXP(x > 20.0f ? 20.0f : x))",
            "x * tanh(softplus(x)); beyond 20 the factor rounds to 1",
            "CHOOSE(x > 20.0f, x, x * mish_ratio(EXP(x)))",
        ),
        Function("apply_elu", ("x", "alpha", "scale", "slope"), "x > 0.0f ? x * scale : EXPM1(x * slope) * (alpha * scale)", "ELU"),
        Function("apply_hardswish", ("x",), "QUOTIENT(x * clamp_to(x + 3.0f, 0.0f, 6.0f), 6.0f)", "x * relu6(x + 3) / 6",
                 "x * (clamp_to(x + 3.0f, 0.0f, 6.0f) * 0.16666667f)"),
        Function("apply_hardsigmoid", ("x",), "QUOTIENT(clamp_to(x + 3.0f, 0.0f, 6.0f), 6.0f)", "relu6(x + 3) / 6",
                 "clamp_to(x + 3.0f, 0.0f, 6.0f) * 0.16666667f"),
        Function(
            "apply_logsigmoid",
            ("x",),
            "(x < 0.0f ? x : 0.0f) - LOG1P(EXP(-ABS(x)))",
            "-log(1 + exp(-x)), stable on both sides",
        ),
        Function(
            "floor_divide",
            ("x", "y"),
            "y == 0.0f ? x / y : RINT((x - floor_modulo(x, y)) / y)",
            "the whole number below the quotient, exactly",
        ),
        Function("floor_modulo", ("x", "y"), "fix_modulo(FMOD(x, y), y)", "the remainder with the sign of the divisor"),
        Function("fix_modulo", ("r", "y"), "r != 0.0f && (r < 0.0f) != (y < 0.0f) ? r + y : r", "the remainder with y's sign"),
        Function("clamp_to", ("x", "low", "high"), "x < low ? low : (x > high ? high : x)", "NaN stays NaN"),
        Function("nan_max", ("a", "b"), "a > b || a != a ? a : b", "the larger; NaN if either is"),
        Function("nan_min", ("a", "b"), "a < b || a != a ? a : b", "the smaller; NaN if either is"),
        Function(
            "finite_max",
            ("m",),
            "ABS(m) == INFINITY ? 0.0f : m",
            "what is subtracted from a row before exp: its maximum, or 0 where that is infinite",
        ),
        Function(
            "softmax_factor",
            ("m", "s"),
            "m == INFINITY ? NAN : 1.0f / s",
            "1 / sum; a row with an infinity has no softmax",
        ),
        Function("log_sum", ("m", "s"), "m == INFINITY ? NAN : LOG(s)", "log(sum); a row with an infinity has no log softmax"),
        Function("positive", ("x",), "x < 0.0f ? 0.0f : x", "max(x, 0); NaN stays NaN"),
    )
}  # fmt: skip


def c_float(value: float | int | None) -> str:
    """A C literal of type float: the float32 nearest to ``value``."""
    if value is None:
        raise ValueError("no value")
    value = float(value)
    if math.isnan(value):
        return "NAN"
    if math.isinf(value) or abs(value) > 3.4028235677973366e38:
        return "INFINITY" if value > 0 else "-INFINITY"
    single = struct.unpack("f", struct.pack("f", value))[0]
    # The shortest decimal that rounds to the same float32.
    for digits in range(1, 18):
        text = f"{single:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == single:
            break
    if "e" not in text and "." not in text:
        text += ".0"
    return f"{text}f"


def literal(value: float | int, dtype: str) -> str:
    """A C literal: a float, or an integer where the number and the values beside it are integers."""
    if is_float(dtype) or isinstance(value, float):
        return c_float(value)
    return f"{int(value)}LL" if abs(value) > 0x7FFFFFFF else str(int(value))


def _scalar(*names: str) -> Callable[[Captured], bool]:
    """Accept calls in which these arguments are numbers."""
    return lambda call: all(isinstance(call.arguments.get(n), (int, float)) for n in names)


def _equal(name: str, *values: Any) -> Callable[[Captured], bool]:
    """Accept calls in which the argument has one of these values."""
    return lambda call: call.arguments.get(name) in values


def _one_bound(name: str, other: str) -> Callable[[Captured], bool]:
    """Accept calls with this bound, a number or a tensor, and without the other."""
    return lambda call: isinstance(call.arguments.get(name), (int, float, Ref, Literal)) and call.arguments.get(other) is None


def _both_bounds(call: Captured) -> bool:
    """Accept calls with two bounds, each a number or a tensor."""
    return all(isinstance(call.arguments.get(name), (int, float, Ref, Literal)) for name in ("min", "max"))


_ALPHA = {"operands": ("self", "other"), "attrs": ("alpha",), "accept": _scalar("alpha")}
_BINARY = {"operands": ("self", "other")}
_PLAIN = {"accept": _equal("alpha", None, 1), **_BINARY}


def _pointwise(name: str, targets: str, expression: str, **more: Any) -> Op:
    return Op(name, Kind.POINTWISE, tuple(f"aten.{t}" for t in targets.split()), expression=expression, **more)


def _both(name: str, targets: str, expression: str, **more: Any) -> Op:
    """An entry with one expression for results of every dtype."""
    return _pointwise(name, targets, expression, integers=expression, **more)


def _binary(name: str, expression: str, aliases: str = "", **more: Any) -> Op:
    """A function of two values or of a value and a number, for results of every dtype."""
    return _both(name, f"{name}.Tensor {name}.Scalar {aliases}", expression, **_BINARY, **more)


def _functions(names: str, flops: int) -> tuple[Op, ...]:
    """Functions of the C library, which the device spells by the capitals of their names."""
    return tuple(_pointwise(n, f"{n}.default", f"{n.upper()}({{0}})", flops=flops) for n in names.split())


def _keeps_place(call: Captured) -> bool:
    """Accept conversions that change the dtype alone."""
    device = call.arguments.get("device")
    return call.arguments.get("memory_format") is None and (device is None or getattr(device, "text", "") == "{device}")


def _one_mask(call: Captured) -> bool:
    """Accept ``x[mask] = value`` with a mask of all elements and one value."""
    if call.type is None or call.arguments.get("accumulate") or len(call.arguments["indices"]) != 1:
        return False
    mask, value = (call.types.get(at.name) if isinstance(at, Ref) else None for at in (call.arguments["indices"][0], call.arguments["values"]))
    masked = mask is not None and mask.dtype == "bool" and mask.sizes() == call.type.sizes()
    return masked and (isinstance(call.arguments["values"], Literal) or (value is not None and value.shape == ()))


def _by_whole(least: int, end: int = 1 << 31) -> Callable[[Captured], bool]:
    """Accept integers beside one number from ``least`` to below ``end``: C leaves a division by zero undefined."""

    def accept(call: Captured) -> bool:
        other = call.arguments["other"]
        return not is_float(call.type.dtype) and type(other) is int and least <= other < end

    return accept


def _clamp_attrs(call: Captured) -> dict[str, Any] | None:
    """The bounds, infinite where there is none; ``None`` where they are crossed, for which PyTorch has a rule of its own.

    Integers have no infinity: they are refused unless both bounds are there.
    """
    low, high = (call.arguments.get(word, call.arguments.get(f"{word}_val")) for word in ("min", "max"))
    if (low is None or high is None) and not is_float(call.type.dtype):
        return None
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    return {"min": low, "max": high} if low <= high else None


POINTWISE = (
    _both("add", "add.Tensor add.Scalar", "{0} + {1}", read=lambda c: {"alpha": c.arguments.get("alpha", 1)}, **_PLAIN),
    _pointwise("add_scaled", "add.Tensor", "{0} + {alpha} * {1}", **_ALPHA),
    _both("sub", "sub.Tensor sub.Scalar", "{0} - {1}", **_PLAIN),
    _both("rsub", "rsub.Tensor rsub.Scalar", "{1} - {0}", **_PLAIN),
    _both("mul", "mul.Tensor mul.Scalar multiply.Tensor multiply.Scalar", "{0} * {1}", **_BINARY),
    _pointwise("div", "div.Tensor div.Scalar divide.Tensor divide.Scalar true_divide.Tensor div.Tensor_mode", "{0} / {1}",
         accept=_equal("rounding_mode", None), **_BINARY),
    _both("neg", "neg.default", "-{0}"),
    _pointwise("abs", "abs.default", "ABS({0})", integers="{0} < 0 ? -{0} : {0}"),
    _pointwise("reciprocal", "reciprocal.default pow.Tensor_Scalar", "1.0f / {0}", accept=_equal("exponent", None, -1)),
    _both("cube", "pow.Tensor_Scalar", "{0} * {0} * {0}", accept=_equal("exponent", 3)),
    _both("square", "square.default pow.Tensor_Scalar", "{0} * {0}", accept=_equal("exponent", None, 2)),
    _pointwise("sqrt", "sqrt.default pow.Tensor_Scalar", "SQRT({0})", accept=_equal("exponent", None, 0.5)),
    _pointwise("rsqrt", "rsqrt.default pow.Tensor_Scalar", "1.0f / SQRT({0})", accept=_equal("exponent", None, -0.5)),
    _pointwise("exp", "exp.default", "EXP({0})", flops=8),
    _pointwise("expm1", "expm1.default", "EXPM1({0})", flops=10),
    _pointwise("log", "log.default", "LOG({0})", flops=8),
    _pointwise("log1p", "log1p.default", "LOG1P({0})", flops=10),
    _pointwise("sin", "sin.default", "SIN({0})", flops=15),
    _pointwise("cos", "cos.default", "COS({0})", flops=15),
    _pointwise("erf", "erf.default", "ERF({0})", flops=20),
    _pointwise("tanh", "tanh.default", "TANH({0})", flops=12),
    _pointwise("pow_scalar", "pow.Tensor_Scalar", "POW({0}, {1})", operands=("self", "exponent"), flops=20),
    _pointwise("maximum", "maximum.default max.other", "nan_max({0}, {1})", integers="{0} > {1} ? {0} : {1}", **_BINARY),
    _pointwise("minimum", "minimum.default min.other", "nan_min({0}, {1})", integers="{0} < {1} ? {0} : {1}", **_BINARY),
    _pointwise("relu", "relu.default relu_.default", "positive({0})"),
    _pointwise("relu6", "relu6.default", "clamp_to({0}, 0.0f, 6.0f)"),
    _pointwise("clamp", "clamp.default hardtanh.default clamp_.default hardtanh_.default", "clamp_to({0}, {min}, {max})",
         read=_clamp_attrs, integers="{0} < {min} ? {min} : ({0} > {max} ? {max} : {0})"),
    _both("clamp_min", "clamp_min.default clamp.default", "{0} < {min} ? {min} : {0}", attrs=("min",), accept=_one_bound("min", "max")),
    _both("clamp_max", "clamp_max.default clamp.default", "{0} > {max} ? {max} : {0}", attrs=("max",), accept=_one_bound("max", "min")),
    _pointwise("leaky_relu", "leaky_relu.default leaky_relu_.default", "{0} > 0.0f ? {0} : {0} * {negative_slope}",
         attrs=("negative_slope",), accept=_scalar("negative_slope")),
    _pointwise("threshold", "threshold.default", "{0} <= {threshold} ? {value} : {0}", attrs=("threshold", "value"),
         accept=_scalar("threshold", "value")),
    _pointwise("gelu", "gelu.default", "apply_gelu({0})", accept=_equal("approximate", "none"), flops=25),
    _pointwise("gelu_tanh", "gelu.default", "apply_gelu_tanh({0})", accept=_equal("approximate", "tanh"), flops=20),
    _pointwise("sigmoid", "sigmoid.default", "apply_sigmoid({0})", flops=10),
    _pointwise("silu", "silu.default silu_.default", "apply_silu({0})", flops=10),
    _pointwise("mish", "mish.default", "apply_mish({0})", flops=15),
    _pointwise("softplus", "softplus.default", "apply_softplus({0}, {beta}, {threshold})", attrs=("beta", "threshold"),
         accept=_scalar("beta", "threshold"), flops=18),
    _pointwise("elu", "elu.default elu_.default", "apply_elu({0}, {alpha}, {scale}, {input_scale})",
         attrs=("alpha", "scale", "input_scale"), flops=12),
    _pointwise("selu", "selu.default",
         "apply_elu({0}, 1.6732632423543772f, 1.0507009873554805f, 1.0f)", flops=12),
    _pointwise("hardswish", "hardswish.default hardswish_.default", "apply_hardswish({0})", flops=5),
    _pointwise("hardsigmoid", "hardsigmoid.default", "apply_hardsigmoid({0})", flops=4),
    _pointwise("log_sigmoid", "log_sigmoid.default", "apply_logsigmoid({0})", flops=20),
    _pointwise("lerp_affine", "", "{0} * {1} + {2}", flops=2),
    _pointwise("distributed_product", "", "{0} * {1} + {0} * {2}", flops=3),
    _pointwise("normalise", "", "({0} - {1}) * {2}", flops=2),
    _pointwise("normalise_affine", "", "({0} - {1}) * {2} + {3}", flops=3),
    # In float64: what is rounded here is the same for all elements of a channel, and nothing averages it out.
    _pointwise("inverse_deviation", "", "static_cast<float>(1.0 / sqrt({0} + {eps}))", attrs=("eps",)),
    # In float32: few elements share it, and a kernel computes it for as many spans as there are rows and groups.
    _pointwise("inverse_deviation_of_columns", "", "INVERSEROOT({0} + static_cast<float>({eps}))", attrs=("eps",)),
    _pointwise("scaled_inverse_deviation", "", "static_cast<float>({1} / sqrt({0} + {eps}))", attrs=("eps",)),
    _pointwise("moving_average", "", "static_cast<float>({keep} * {0} + {momentum} * {1})", attrs=("keep", "momentum")),
    _pointwise("apply_softmax", "", "EXPBELOW({0} - finite_max({1})) * softmax_factor({1}, {2})", flops=10),
    _pointwise("apply_log_softmax", "", "({0} - {1}) - log_sum({1}, {2})", flops=10),
)  # fmt: skip

#: Comparisons, logic, choices, conversions, and functions that few networks have.
MORE_POINTWISE = (
    *(_binary(name, f"{{0}} {sign} {{1}}") for name, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!="))),
    *(_binary(f"bitwise_{name}", f"{{0}} {sign} {{1}}", f"__{name}__.Tensor __{name}__.Scalar")
      for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))),
    _both("logical_and", "logical_and.default", "{0} && {1}", **_BINARY),
    _both("logical_or", "logical_or.default", "{0} || {1}", **_BINARY),
    _both("logical_xor", "logical_xor.default", "!{0} != !{1}", **_BINARY),
    _both("bitwise_not", "bitwise_not.default", "~{0}", accept=lambda c: c.type is not None and c.type.dtype != "bool"),
    _both("logical_not", "logical_not.default bitwise_not.default", "!{0}"),
    _both("isnan", "isnan.default", "{0} != {0}"),
    _both("isinf", "isinf.default", "ABS({0}) == INFINITY"),
    _both("where", "where.self where.ScalarOther where.ScalarSelf where.Scalar", "{0} ? {1} : {2}",
          operands=("condition", "self", "other")),
    _both("masked_fill", "masked_fill.Scalar masked_fill.Tensor", "{1} ? {2} : {0}", operands=("self", "mask", "value")),
    _both("masked_put", "index_put.default", "{1} ? {2} : {0}", operands=("self", "indices", "values"), accept=_one_mask),
    _both("cast", "_to_copy.default to.dtype to.other to.dtype_layout type_as.default", "static_cast<{ctype}>({0})", accept=_keeps_place,
          read=lambda c: {"dtype": c.type.dtype}, library=lambda attrs: f"{{0}}.to(torch.{attrs['dtype']})"),
    _pointwise("remainder", "remainder.Tensor remainder.Scalar", "floor_modulo({0}, {1})", **_BINARY, flops=8),
    _pointwise("remainder_of_whole", "remainder.Tensor remainder.Scalar", "", accept=_by_whole(1), **_BINARY,
         integers="{0} % {1} < 0 ? {0} % {1} + {1} : {0} % {1}"),
    _pointwise("quotient_of_whole", "floor_divide.default floor_divide.Scalar div.Tensor_mode div.Scalar_mode", "",
         accept=lambda c: c.arguments.get("rounding_mode", "floor") == "floor" and _by_whole(1)(c), **_BINARY,
         integers="{0} / {1} - ({0} % {1} < 0)"),
    *(_pointwise(f"bitwise_{name}_shift", f"bitwise_{name}_shift.Tensor_Scalar bitwise_{name}_shift.Tensor __{name[0]}shift__.Scalar", "",
         accept=_by_whole(0, 31), **_BINARY, integers=f"{{0}} {sign} {{1}}") for name, sign in (("left", "<<"), ("right", ">>"))),
    _pointwise("fmod", "fmod.Tensor fmod.Scalar", "FMOD({0}, {1})", **_BINARY, flops=8),
    _pointwise("fmax", "fmax.default", "FMAX({0}, {1})", **_BINARY),
    _pointwise("fmin", "fmin.default", "FMIN({0}, {1})", **_BINARY),
    _pointwise("copysign", "copysign.Tensor copysign.Scalar", "COPYSIGN({0}, {1})", **_BINARY),
    _pointwise("atan2", "atan2.default", "ATAN2({0}, {1})", **_BINARY, flops=25),
    _pointwise("hypot", "hypot.default", "HYPOT({0}, {1})", **_BINARY, flops=10),
    _pointwise("pow", "pow.Tensor_Tensor pow.Scalar", "POW({0}, {1})", operands=("self", "exponent"), flops=20),
    _pointwise("div_floor", "div.Tensor_mode floor_divide.default", "floor_divide({0}, {1})", accept=_equal("rounding_mode", None, "floor"),
         **_BINARY, flops=10),
    _pointwise("div_trunc", "div.Tensor_mode", "TRUNC({0} / {1})", accept=_equal("rounding_mode", "trunc"), **_BINARY),
    _pointwise("clamp_min_tensor", "clamp_min.Tensor clamp.Tensor", "nan_max({0}, {1})", operands=("self", "min"), accept=_one_bound("min", "max")),
    _pointwise("clamp_max_tensor", "clamp_max.Tensor clamp.Tensor", "nan_min({0}, {1})", operands=("self", "max"), accept=_one_bound("max", "min")),
    _pointwise("clamp_tensor", "clamp.Tensor", "nan_min(nan_max({0}, {1}), {2})", operands=("self", "min", "max"), accept=_both_bounds),
    _both("copy", "copy.default", "{0}", operands=("src", "self")),
    _both("sub_scaled", "sub.Tensor", "{0} - {alpha} * {1}", **_ALPHA),
    _pointwise("round", "round.default", "RINT({0})"),
    _pointwise("sign", "sign.default sgn.default", "({0} > 0.0f) - ({0} < 0.0f)", integers="({0} > 0) - ({0} < 0)"),
    *_functions("floor ceil trunc", 1),
    *_functions("exp2 log2 log10 atan", 12),
    *_functions("tan asin acos sinh cosh asinh acosh atanh erfc", 20),
    _pointwise("lgamma", "lgamma.default", "LGAMMA({0})", flops=30),
)  # fmt: skip
