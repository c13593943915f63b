"""Functions that expressions call: those that each device spells its own way, and those that kernels have as helpers.

The names in capitals are a device's primitives: ``expf`` in CUDA, ``vec::exp`` on the CPU, for ``EXP``. The other
functions are expressions themselves, without branches, so that compilers can vectorise them. They return NaN where
PyTorch does.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Callable

from kgen.compiler.loops.expr import (
    INFINITY,
    NAN,
    Arg,
    Expr,
    both,
    differ,
    either,
    equal,
    exactly,
    expr,
    function,
    where,
)

# A device's primitives. SQRT64 is a root in float64, EXPBELOW an exponential of a number that is at most 0, and
# INVERSEROOT is 1 / sqrt(x). QUOTIENT and RECIPROCAL are divisions of numbers whose quotient does not overflow.
# FLOOR_QUOTIENT and FLOOR_REMAINDER are Python's ``//`` and ``%`` of integers; a divisor of 0, for which PyTorch raises
# or gives any number, counts as 1. BITS are those of a float32, as an integer of 32 bits.
(
    absolute,
    atan2,
    bits,
    choose,
    copysign,
    cos,
    erf,
    exp,
    expbelow,
    expm1,
    floor,
    floor_quotient,
    floor_remainder,
    fma,
    fmax,
    fmin,
    fmod,
    hypot,
    inverseroot,
    lgamma,
    log,
    log1p,
    normal,
    power,
    quotient,
    reciprocal,
    rint,
    sin,
    sqrt,
    sqrt64,
    tanh,
    trunc,
) = map(
    function,
    (
        "ABS ATAN2 BITS CHOOSE COPYSIGN COS ERF EXP EXPBELOW EXPM1 FLOOR FLOOR_QUOTIENT FLOOR_REMAINDER FMA FMAX FMIN "
        "FMOD HYPOT INVERSEROOT LGAMMA "
        "LOG LOG1P NORMAL POW QUOTIENT RECIPROCAL RINT SIN SQRT SQRT64 TANH TRUNC"
    ).split(),
)


@dataclass(frozen=True)
class Function:
    """A function of float32 numbers: ``body`` is the expression that it returns, ``comment`` its formula.

    ``half`` is an expression for results of half types, where another one than ``body`` is cheaper. Its error is far
    below their rounding. It may use ``RECIPROCAL``, ``NORMAL``, which is the normal distribution's share below a
    number, and ``CHOOSE``, which computes both of its numbers.
    """

    name: str
    parameters: tuple[str, ...]
    body: Expr
    comment: str
    half: Expr | None = None


#: Functions that expressions call, by name.
FUNCTIONS: dict[str, Function] = {}


def _define(
    name: str, body: Callable[..., Expr], comment: str, half: Callable[..., Expr] | None = None
) -> Callable[..., Expr]:
    """Put a function into the table. Returns the function that makes calls of it."""
    parameters = tuple(inspect.signature(body).parameters)
    args = [Arg(number) for number in range(len(parameters))]
    FUNCTIONS[name] = Function(name, parameters, expr(body(*args)), comment, half and half(*args))
    return function(name)


apply_gelu = _define(
    "apply_gelu",
    lambda x: 0.5 * x * (1.0 + erf(x * exactly("0.70710678118654752"))),
    "x * Phi(x), exact form",
    lambda x: x * normal(x),
)
apply_gelu_tanh = _define(
    "apply_gelu_tanh",
    lambda x: 0.5 * x * (1.0 + tanh(exactly("0.79788456080286536") * (x + 0.044715 * x * x * x))),
    "x * Phi(x), tanh approximation",
    lambda x: x * reciprocal(1.0 + exp(-exactly("1.5957691216057308") * (x + 0.044715 * x * x * x))),
)
apply_sigmoid = _define(
    "apply_sigmoid",
    lambda x: quotient(1.0, 1.0 + exp(-x)),
    "1 / (1 + exp(-x))",
    lambda x: reciprocal(1.0 + exp(-x)),
)
apply_silu = _define(
    "apply_silu",
    lambda x: quotient(x, 1.0 + exp(-x)),
    "x * sigmoid(x)",
    lambda x: x * reciprocal(1.0 + exp(-x)),
)
apply_softplus = _define(
    "apply_softplus",
    lambda x, beta, threshold: where(x * beta > threshold, x, log1p(exp(x * beta)) / beta),
    "log(1 + exp(beta * x)) / beta; x itself above the threshold",
    lambda x, beta, threshold: choose(x * beta > threshold, x, log1p(exp(x * beta)) / beta),
)
mish_ratio = _define(
    "mish_ratio",
    lambda e: quotient(e * (e + 2.0), e * (e + 2.0) + 2.0),
    "tanh(log(1 + e))",
    lambda e: e * (e + 2.0) * reciprocal(e * (e + 2.0) + 2.0),
)
apply_mish = _define(
    "apply_mish",
    lambda x: where(x > exactly("20.0"), x, x * mish_ratio(exp(where(x > exactly("20.0"), exactly("20.0"), x)))),
    "x * tanh(softplus(x)); beyond 20 the factor rounds to 1",
    lambda x: choose(x > exactly("20.0"), x, x * mish_ratio(exp(x))),
)
apply_elu = _define(
    "apply_elu",
    lambda x, alpha, scale, slope: where(x > 0.0, x * scale, expm1(x * slope) * (alpha * scale)),
    "ELU",
)
clamp_to = _define("clamp_to", lambda x, low, high: where(x < low, low, where(x > high, high, x)), "NaN stays NaN")
apply_hardswish = _define(
    "apply_hardswish",
    lambda x: quotient(x * clamp_to(x + 3.0, 0.0, 6.0), 6.0),
    "x * relu6(x + 3) / 6",
    lambda x: x * (clamp_to(x + 3.0, 0.0, 6.0) * 0.16666667),
)
apply_hardsigmoid = _define(
    "apply_hardsigmoid",
    lambda x: quotient(clamp_to(x + 3.0, 0.0, 6.0), 6.0),
    "relu6(x + 3) / 6",
    lambda x: clamp_to(x + 3.0, 0.0, 6.0) * 0.16666667,
)
apply_logsigmoid = _define(
    "apply_logsigmoid",
    lambda x: where(x < 0.0, x, 0.0) - log1p(exp(-absolute(x))),
    "-log(1 + exp(-x)), stable on both sides",
)
fix_modulo = _define(
    "fix_modulo",
    lambda r, y: where(both(differ(r, 0.0), differ(r < 0.0, y < 0.0)), r + y, r),
    "the remainder with y's sign",
)
floor_modulo = _define(
    "floor_modulo", lambda x, y: fix_modulo(fmod(x, y), y), "the remainder with the sign of the divisor"
)
whole_below = _define(
    "whole_below",
    lambda n, rest, y: where(
        both(differ(rest, rest), differ(y, 0.0)),
        rest,
        where(both(differ(rest, 0.0), differ(rest < 0.0, y < 0.0)), n - 1.0, n),
    ),
    "one less than n where the rest has another sign than the divisor; NaN of an infinity",
)
divided_below = _define(
    "divided_below",
    lambda x, y, n: whole_below(n, where(equal(n, 0.0), x, fma(-n, y, x)), y),
    "n, or one less where the quotient was rounded up to it; the sign of the rest is exact",
)
floor_divide = _define(
    "floor_divide",
    lambda x, y: divided_below(x, y, floor(x / y)),
    "the whole number below the quotient, exact below 2^24",
)
nan_max = _define("nan_max", lambda a, b: where(either(a > b, differ(a, a)), a, b), "the larger; NaN if either is")
nan_min = _define("nan_min", lambda a, b: where(either(a < b, differ(a, a)), a, b), "the smaller; NaN if either is")
finite_max = _define(
    "finite_max",
    lambda m: where(equal(absolute(m), INFINITY), 0.0, m),
    "what is subtracted from a row before exp: its maximum, or 0 where that is infinite",
)
softmax_factor = _define(
    "softmax_factor",
    lambda m, s: where(equal(m, INFINITY), NAN, 1.0 / s),
    "1 / sum; a row with an infinity has no softmax",
)
log_sum = _define(
    "log_sum",
    lambda m, s: where(equal(m, INFINITY), NAN, log(s)),
    "log(sum); a row with an infinity has no log softmax",
)
positive = _define("positive", lambda x: where(x < 0.0, 0.0, x), "max(x, 0); NaN stays NaN")
