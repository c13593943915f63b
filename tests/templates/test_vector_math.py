"""The vector functions of CPU kernels against Python's ``math``, on samples of all floats and on special values.

``benchmarks/vector_math.py`` measures the same over every float there is.
"""

from __future__ import annotations

import ctypes
import math
import platform
import random
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import kgen

FUNCTIONS = Path(kgen.__file__).parent / "templates" / "cpu" / "functions"
UNARY = ("exp", "expm1", "log", "log1p", "erf", "tanh", "sin", "cos")
LOOPS = (*UNARY, "exp_below")
# Sine and cosine look constants up in a table. Tuned for a CPU whose gathers are slow, or for none that it knows, GCC
# leaves their loops scalar, which takes 1.8 times as long.
TUNING = ("-mtune=haswell",) if platform.machine() == "x86_64" else ()
FLAGS = ("-O3", "-march=native", *TUNING, "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC")
ALLOWED_ULP = dict.fromkeys(UNARY, 1.6) | {"pow": 0.6}
INF, NAN = math.inf, math.nan
SUBNORMAL, LARGEST = 1e-45, 3.4028234663852886e38


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, str]:
    """A library with a loop over each function, and what the compiler said of vectorising."""
    folder = tmp_path_factory.mktemp("vector_math")
    files = ["sin_shifted", "exp_of_rest", *LOOPS, "pow"]
    lines = ["#include <cmath>", "#include <cstdint>", "namespace vec {"]
    lines += [f'#include "{FUNCTIONS / name}.h"' for name in files]
    lines.append("}")
    for name in LOOPS:
        lines.append(f'extern "C" void {name}_all(const float* __restrict__ x, float* __restrict__ y, long n) {{')
        lines += ["    #pragma omp simd", f"    for (long i = 0; i < n; ++i) y[i] = vec::{name}(x[i]);", "}"]
    lines += [
        'extern "C" void pow_all(',
        "    const float* __restrict__ x, const float* __restrict__ e, float* __restrict__ y, long n) {",
        "    #pragma omp simd",
        "    for (long i = 0; i < n; ++i) y[i] = vec::pow(x[i], e[i]);",
        "}",
    ]
    lines += [
        'extern "C" void fixed_pow_all(const float* __restrict__ x, float* __restrict__ y, long n, float e) {',
        "    #pragma omp simd",
        "    for (long i = 0; i < n; ++i) y[i] = vec::pow(x[i], e);",
        "}",
    ]
    source, library = folder / "functions.cpp", folder / "functions.so"
    source.write_text("\n".join(lines) + "\n")
    command = ["g++", *FLAGS, "-fopt-info-vec-optimized", source, "-o", library]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library)), done.stderr


def apply(compiled: tuple[ctypes.CDLL, str], name: str, *arguments: list[float]) -> list[float]:
    count = len(arguments[0])
    result = (ctypes.c_float * count)()
    arrays = [(ctypes.c_float * count)(*values) for values in arguments]
    getattr(compiled[0], f"{name}_all")(*arrays, result, ctypes.c_long(count))
    return list(result)


def sample(count: int) -> list[float]:
    """Floats with random bits, which reach every exponent, and as many of everyday size."""
    generator = random.Random(1)
    bits = [struct.unpack("f", struct.pack("I", generator.getrandbits(32)))[0] for _ in range(count)]
    return bits + [struct.unpack("f", struct.pack("f", generator.gauss(0, 8)))[0] for _ in range(count)]


def as_float32(value: float) -> float:
    """``value`` rounded to float32, out of its range to infinity."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(INF, value)


def reference(function: Callable[..., float], *arguments: float) -> float:
    """``function`` in double, with the infinities and NaNs that Python turns into exceptions."""
    try:
        return function(*arguments)
    except OverflowError:
        return INF
    except ValueError:
        return -INF if function in (math.log, math.log1p) and arguments[0] in (0.0, -1.0) else NAN


def ulps(got: float, want: float) -> float:
    """The error of ``got`` in units of the last place of a float32 the size of ``want``; 0 for equal non-finites."""
    rounded = as_float32(want)
    if not math.isfinite(rounded) or not math.isfinite(got):
        same = rounded == got or (math.isnan(rounded) and math.isnan(got))
        # Where the double is within the last place of the overflow threshold, either side of it is right.
        return 0.0 if same or abs(abs(want) - LARGEST) < 2.0**104 else INF
    return abs(got - want) / 2.0 ** (max(math.frexp(want)[1], -125) - 24)


@pytest.mark.parametrize("name", UNARY)
def test_is_within_its_ulps_of_double(compiled: tuple[ctypes.CDLL, str], name: str) -> None:
    function = getattr(math, name)
    xs = sample(20_000)
    errors = [(ulps(got, reference(function, x)), x) for got, x in zip(apply(compiled, name, xs), xs)]
    assert max(errors) <= (ALLOWED_ULP[name], INF)


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("exp", -INF, 0.0),
        ("exp", INF, INF),
        ("exp", 88.8, INF),
        ("exp", 88.7, math.exp(as_float32(88.7))),
        ("exp", -104.1, 0.0),
        ("exp", -103.0, SUBNORMAL),
        ("exp", 0.0, 1.0),
        ("expm1", -INF, -1.0),
        ("expm1", INF, INF),
        ("expm1", 88.8, INF),
        ("expm1", -0.0, -0.0),
        ("expm1", SUBNORMAL, SUBNORMAL),
        ("log", 0.0, -INF),
        ("log", -0.0, -INF),
        ("log", -1.0, NAN),
        ("log", -INF, NAN),
        ("log", INF, INF),
        ("log", 1.0, 0.0),
        ("log", SUBNORMAL, math.log(as_float32(SUBNORMAL))),
        ("log1p", -1.0, -INF),
        ("log1p", -1.5, NAN),
        ("log1p", -INF, NAN),
        ("log1p", INF, INF),
        ("log1p", -0.0, -0.0),
        ("log1p", SUBNORMAL, SUBNORMAL),
        ("log1p", LARGEST, math.log1p(LARGEST)),
        ("erf", INF, 1.0),
        ("erf", -INF, -1.0),
        ("erf", -0.0, -0.0),
        ("erf", LARGEST, 1.0),
        ("tanh", INF, 1.0),
        ("tanh", -INF, -1.0),
        ("tanh", -0.0, -0.0),
        ("tanh", -SUBNORMAL, -SUBNORMAL),
        ("tanh", LARGEST, 1.0),
        ("sin", -0.0, -0.0),
        ("sin", SUBNORMAL, SUBNORMAL),
        ("sin", LARGEST, math.sin(LARGEST)),
        ("sin", INF, NAN),
        ("cos", 0.0, 1.0),
        ("cos", LARGEST, math.cos(LARGEST)),
        ("cos", -INF, NAN),
    ],
)
def test_special_value(compiled: tuple[ctypes.CDLL, str], name: str, x: float, want: float) -> None:
    (got,) = apply(compiled, name, [x])
    assert ulps(got, want) <= ALLOWED_ULP[name]
    if not math.isnan(want):
        assert math.copysign(1.0, got) == math.copysign(1.0, want)


def test_exponential_below_a_maximum_is_exp(compiled: tuple[ctypes.CDLL, str]) -> None:
    xs = [x for x in sample(20_000) if -87.0 <= x <= 0.0] + [-87.0, -86.5, -0.0, INF]
    assert apply(compiled, "exp_below", xs) == apply(compiled, "exp", xs)
    assert apply(compiled, "exp_below", [-87.5, -1000.0, -LARGEST, -INF]) == [0.0] * 4


@pytest.mark.parametrize("name", LOOPS)
def test_nan_stays_nan(compiled: tuple[ctypes.CDLL, str], name: str) -> None:
    assert math.isnan(apply(compiled, name, [NAN])[0])


def test_pow_is_within_its_ulps_of_double(compiled: tuple[ctypes.CDLL, str]) -> None:
    generator = random.Random(2)
    bases = [abs(x) for x in sample(10_000)]
    # Exponents that leave most results within the range of float32.
    exponents = [as_float32(generator.uniform(-150, 150) / (math.log2(x) or 1.0)) if x else 1.0 for x in bases]
    got = apply(compiled, "pow", bases, exponents)
    errors = [(ulps(g, reference(math.pow, x, y)), x, y) for g, x, y in zip(got, bases, exponents)]
    assert max(errors) <= (ALLOWED_ULP["pow"], INF, INF)


def test_pow_has_the_special_values_of_c(compiled: tuple[ctypes.CDLL, str]) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, SUBNORMAL, -SUBNORMAL, LARGEST, INF, -INF, NAN]
    pairs = [(x, y) for x in values for y in values]
    wrong = []
    for got, (x, y) in zip(apply(compiled, "pow", *map(list, zip(*pairs))), pairs):
        if x == 0.0 and y < 0.0:  # where C says infinity, with the sign of the base for odd integers, Python raises
            want = math.copysign(INF, x) if y % 2 == 1 else INF
        elif abs(x) == LARGEST and abs(y) >= 2.0:
            want = INF if y > 0 else 0.0
        else:
            want = reference(math.pow, as_float32(x), as_float32(y))
        same_sign = math.isnan(want) or math.copysign(1.0, got) == math.copysign(1.0, want)
        if ulps(got, want) > ALLOWED_ULP["pow"] or not same_sign:
            wrong.append((x, y, got, want))
    assert not wrong


@pytest.mark.parametrize(
    "call", [*(f"vec::{name}(x[i])" for name in LOOPS), "vec::pow(x[i], e[i])", "vec::pow(x[i], e)"]
)
def test_loop_is_vectorised(compiled: tuple[ctypes.CDLL, str], call: str) -> None:
    library, remarks = compiled
    lines = Path(library._name).with_suffix(".cpp").read_text().splitlines()
    loop = next(number for number, line in enumerate(lines, 1) if f"{call};" in line)
    assert [r for r in remarks.splitlines() if f"functions.cpp:{loop}:" in r and "loop vectorized" in r]
