"""Fit the polynomials of ``kgen/templates/cpu/functions/*.h`` and print their coefficients as float32 literals.

Each polynomial is a weighted minimax fit by the Remez exchange on a Chebyshev grid, in 40-digit arithmetic. The weight
turns the error of the fit into the relative error of the function. Coefficients are rounded to float32 one after
another, lowest power first. The rest is fitted again after each, so later coefficients correct the rounding of earlier
ones. The script needs mpmath, which torch installs through sympy.

    python benchmarks/fit_vector_math.py [NAME ...]
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

from mpmath import mp, mpf

mp.dps = 40
POINTS = 1000  # points of the Chebyshev grid
SQRT_HALF = mp.sqrt(mpf("0.5"))
HALF_LN2 = mp.log(2) / 2
MARGIN = mpf("1.0001")  # factor of the interval; rounding moves reduced arguments slightly outside

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """A polynomial in x for ``target(x)`` on [low, high]. ``weight`` turns its error into that of the function."""

    formula: str
    low: mpf
    high: mpf
    degree: int
    target: Function
    weight: Function
    double: bool = False  #: coefficients in float64 instead of float32


def _in_square(function: Function) -> Function:
    """``function`` of x as a function of s = x * x."""
    return lambda s: function(mp.sqrt(s))


FITS = {
    "exp": Fit(
        "exp(r) = 1 + r + r^2 q(r)",
        -HALF_LN2 * MARGIN,
        HALF_LN2 * MARGIN,
        4,
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: r**2 / mp.exp(r),
    ),
    "expm1": Fit(
        "expm1(r) = r + r^2 q(r)",
        -HALF_LN2 * MARGIN,
        HALF_LN2 * MARGIN,
        5,
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: r**2 / mp.expm1(r),
    ),
    "exp2": Fit(
        "2^r = 1 + r q(r)",
        mpf("-0.5") * MARGIN,
        mpf("0.5") * MARGIN,
        5,
        lambda r: (2**r - 1) / r,
        lambda r: r / 2**r,
    ),
    "log": Fit(
        "log(1 + f) = f - f^2 / 2 + f^3 p(f)",
        (SQRT_HALF - 1) * MARGIN,
        (1 / SQRT_HALF - 1) * MARGIN,
        7,
        lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
        lambda f: f**3 / mp.log1p(f),
    ),
    "erf_small": Fit(
        "erf(x) = x + x p(x^2)",
        mpf(0),
        mpf("0.8") ** 2,
        5,
        _in_square(lambda x: mp.erf(x) / x - 1),
        _in_square(lambda x: x / mp.erf(x)),
    ),
    "erf_large": Fit(
        "erf(x) = 1 - 2^p(x)",
        mpf("0.8"),
        mpf("4"),
        6,
        lambda x: mp.log(mp.erfc(x), 2),
        lambda x: mp.erfc(x) / mp.erf(x),
    ),
    "tanh_small": Fit(
        "tanh(x) = x + x^3 p(x^2)",
        mpf(0),
        mpf("0.625") ** 2,
        4,
        _in_square(lambda x: (mp.tanh(x) / x - 1) / x**2),
        _in_square(lambda x: x**3 / mp.tanh(x)),
    ),
    "sin": Fit(
        "sin(r) = r + r^3 p(r^2)",
        mpf(0),
        (mp.pi / 4 * MARGIN) ** 2,
        3,
        _in_square(lambda r: (mp.sin(r) / r - 1) / r**2),
        _in_square(lambda r: r**3 / mp.sin(r)),
    ),
    "cos": Fit(
        "cos(r) = 1 - r^2 / 2 + r^4 p(r^2)",
        mpf(0),
        (mp.pi / 4 * MARGIN) ** 2,
        2,
        _in_square(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4),
        _in_square(lambda r: r**4 / mp.cos(r)),
    ),
    "pow_log2": Fit(
        "log2((1 + z) / (1 - z)) = z p(z^2)",
        mpf(0),
        ((SQRT_HALF - 1) / (SQRT_HALF + 1) * MARGIN) ** 2,
        4,
        _in_square(lambda z: 2 * mp.atanh(z) / mp.log(2) / z),
        _in_square(lambda z: z / mp.atanh(z) * mp.log(2) / 2),
        double=True,
    ),
    "pow_exp2": Fit(
        "2^r = 1 + r q(r)",
        mpf("-0.5") * MARGIN,
        mpf("0.5") * MARGIN,
        6,
        lambda r: (2**r - 1) / r,
        lambda r: r / 2**r,
        double=True,
    ),
}


def rounded(value: mpf, double: bool) -> mpf:
    """``value`` rounded to float32, or to float64."""
    return mpf(float(value) if double else struct.unpack("f", struct.pack("f", float(value)))[0])


def _evaluate(coefficients: list[mpf], x: mpf) -> mpf:
    result = mpf(0)
    for coefficient in reversed(coefficients):
        result = result * x + coefficient
    return result


def _extrema(errors: list[mpf], count: int) -> list[int]:
    """The indices of ``count`` extrema of alternating sign, the largest one included."""
    found: list[int] = []
    for index, error in enumerate(errors):
        if found and (error > 0) == (errors[found[-1]] > 0):
            if abs(error) > abs(errors[found[-1]]):
                found[-1] = index
        else:
            found.append(index)
    while len(found) > count:
        sizes = [abs(errors[index]) for index in found]
        least = sizes.index(min(sizes))
        if least in (0, len(found) - 1):
            del found[least]
        elif len(found) == count + 1:
            del found[0 if sizes[0] < sizes[-1] else -1]
        else:  # its smaller neighbour goes too, so that the signs still alternate
            first = least if sizes[least + 1] < sizes[least - 1] else least - 1
            del found[first : first + 2]
    return found


def remez(xs: list[mpf], targets: list[mpf], weights: list[mpf], degree: int) -> list[mpf]:
    """The coefficients of the polynomial with the least maximum of ``weight * |polynomial - target|`` on the grid."""
    count = degree + 2
    reference = [round(i * (len(xs) - 1) / (count - 1)) for i in range(count)]
    for _ in range(60):
        rows = [[xs[i] ** k for k in range(degree + 1)] + [(-1) ** n / weights[i]] for n, i in enumerate(reference)]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([targets[i] for i in reference]))
        coefficients, level = list(solution[: degree + 1]), abs(solution[degree + 1])
        errors = [w * (_evaluate(coefficients, x) - t) for x, t, w in zip(xs, targets, weights)]
        if max(map(abs, errors)) <= level * mpf("1.0001"):
            break
        reference = _extrema(errors, count)
        if len(reference) < count:
            break  # too few extrema: the rounding of fixed coefficients dominates
    return coefficients


def fit(what: Fit) -> tuple[list[mpf], mpf]:
    """Float32 coefficients, lowest power first, and the fit's largest relative error."""
    centre, half = (what.high + what.low) / 2, (what.high - what.low) / 2
    xs = [centre - half * mp.cos(mp.pi * (i + mpf("0.5")) / POINTS) for i in range(POINTS)]
    targets = [what.target(x) for x in xs]
    weights = [abs(what.weight(x)) for x in xs]
    fixed: list[mpf] = []
    for power in range(what.degree + 1):
        rest = [(t - _evaluate(fixed, x)) / x**power for t, x in zip(targets, xs)]
        scaled = [w * abs(x) ** power for w, x in zip(weights, xs)]
        fixed.append(rounded(remez(xs, rest, scaled, what.degree - power)[0], what.double))
    return fixed, max(abs(w * (_evaluate(fixed, x) - t)) for x, t, w in zip(xs, targets, weights))


def two_over_pi_tables() -> tuple[list[float], list[float]]:
    """The tables of ``sin_shifted.h``: for each block of 8 exponents, 29 bits of 2 / pi, and the bits after them.

    Entry b is for |x| in [2^(17+8b), 2^(25+8b)). The last bit of such an x is worth at least 2^(8b-6). Its product with
    bits of 2 / pi worth 2^(8-8b) or more is a multiple of 4, which changes no quadrant.
    """
    heads, tails = [], []
    with mp.workprec(400):
        for block in range(14):
            top = mpf(2) ** min(8 - 8 * block, 0)
            kept = 2 / mp.pi % top
            step = top / 2**29
            head = mp.floor(kept / step) * step
            heads.append(float(head))
            tails.append(float(kept - head))
    return heads, tails


def main(names: list[str]) -> None:
    for name in names or FITS:
        what = FITS[name]
        coefficients, error = fit(what)
        low, high = mp.nstr(what.low, 7), mp.nstr(what.high, 7)
        print(f"{name}: {what.formula} on [{low}, {high}]; error of the fit 2^{mp.nstr(mp.log(error, 2), 4)}")
        for power, coefficient in enumerate(coefficients):
            value = float(coefficient)
            print(f"    {power}: {value:+.16e}" if what.double else f"    {power}: {value:+.9e}f")
    if not names:
        for name, table in zip(("head", "tail"), two_over_pi_tables()):
            print(f"sin_shifted {name}: {', '.join(value.hex() for value in table)}")


if __name__ == "__main__":
    main(sys.argv[1:])
