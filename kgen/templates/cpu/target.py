"""How a file for the CPU is written, and the axis of the compiler that its kernels share."""

from __future__ import annotations

from typing import Sequence

from kgen.codegen.space import Axis
from kgen.codegen.target import C_FUNCTIONS, Helpers, Target, types
from kgen.devices.hardware import Hardware

#: Flags of every kernel of a file. None of them changes how NaN and infinities behave. With jumps threaded, g++ needs
#: eight comparisons for a vector's maximum that keeps NaN, instead of two.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-thread-jumps", "-fopenmp")

#: Width of the vectors that the compiler prefers; one for the whole file.
_VECTOR_BITS = "vector_bits"


def vector_axis(hardware: Hardware) -> list[Axis]:
    """The preferred vector widths, where the CPU has a choice."""
    widths = tuple(sorted((b for b in hardware.vector_bits if b >= 256), reverse=True))
    return [Axis(_VECTOR_BITS, widths)] if len(widths) > 1 else []


def headers(helpers: Helpers) -> Sequence[str]:
    math = f"namespace vec {{\n\n{helpers.math.strip()}\n\n}}  // namespace vec" if helpers.math else ""
    return (
        "#include <cfloat>\n#include <cmath>\n#include <cstdint>",
        types(helpers, "cpu"),
        math,
        helpers.table,
        helpers.kernels,
    )


def flags(hardware: Hardware, own: Sequence[str], specific: bool) -> list[str]:
    return [*FLAGS, *sorted(own)[-1:]]  # of several preferred widths, the widest


TARGET = Target(
    device_type="cpu",
    primitives={
        "EXP": "vec::exp",
        "EXPBELOW": "vec::exp_below",
        "EXPM1": "vec::expm1",
        "LOG": "vec::log",
        "LOG1P": "vec::log1p",
        "ERF": "vec::erf",
        "TANH": "vec::tanh",
        "SIN": "vec::sin",
        "COS": "vec::cos",
        "POW": "vec::pow",
        "SQRT": "std::sqrt",
        "SQRT64": "sqrt",
        "ABS": "std::fabs",
        "QUOTIENT": "vec::quotient",
        "INVERSEROOT": "vec::inverse_root",
        "FLOOR_QUOTIENT": "vec::floor_quotient",
        "FLOOR_REMAINDER": "vec::floor_remainder",
        "BITS": "vec::bits",
        **{name: f"std::{name.lower()}" for name in C_FUNCTIONS},
    },
    qualifier="__attribute__((always_inline)) inline",
    source_constant="CPP_SOURCE",
    flags_constant="CFLAGS",
    alignment=4,
    headers=headers,
    flags=flags,
    shared_axis=_VECTOR_BITS,
)
