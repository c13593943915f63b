"""How a file for CUDA is written."""

from __future__ import annotations

from typing import Sequence

from kgen.codegen.target import C_FUNCTIONS, Helpers, Target, types
from kgen.devices.hardware import Hardware

#: Headers, each with the beginnings of names that need it.
_HEADERS = {
    "atomic": "atomic_int",
    "cfloat": "",
    "cmath": "",
    "cstdint": ("uint", "int64_t"),
    "cuda.h": "CUtensorMap",
    "cuda_bf16.h": "bfloat16_t",
    "cuda_fp16.h": ("__half", "float16_t"),
    "cuda_runtime.h": "",
}

#: The half types in names of helpers: their names in PTX and in comments.
_HALVES = {"": {"half": "f16", "word": "float16"}, "_bfloat16": {"half": "bf16", "word": "bfloat16"}}

#: The products of tensor cores: one for each half type, and for each number of columns; strips of their sums.
_VARIANTS = {
    "strip": {"add_strip": {"adds": True}, "store_strip": {"adds": False}},
    "mma": {f"mma{half}": words for half, words in _HALVES.items()},
    "wgmma": {
        f"wgmma{size}{half}": {"cols": cols, **words}
        for size, cols in {"": 128, "_192": 192, "_wide": 256}.items()
        for half, words in _HALVES.items()
    },
}


def headers(helpers: Helpers) -> Sequence[str]:
    used = [
        f"#include <{header}>"
        for header, beginnings in _HEADERS.items()
        if not beginnings or any(name.startswith(beginnings) for name in helpers.symbols)
    ]
    return "\n".join(used), types(helpers, "cuda"), helpers.math, helpers.table, helpers.kernels


def flags(hardware: Hardware, own: Sequence[str], specific: bool) -> list[str]:
    number = f"{hardware.capability}a" if specific else hardware.arch.removeprefix("sm_")
    return ["-O3", *own, f"-gencode=arch=compute_{number},code=sm_{number}", "-Xptxas=-v"]


TARGET = Target(
    device_type="cuda",
    primitives={
        "EXP": "expf",
        "EXPBELOW": "expf",
        "EXPM1": "expm1f",
        "LOG": "logf",
        "LOG1P": "log1pf",
        "ERF": "erff",
        "TANH": "tanhf",
        "SIN": "sinf",
        "COS": "cosf",
        "POW": "powf",
        "SQRT": "sqrtf",
        "SQRT64": "sqrt",
        "ABS": "fabsf",
        "QUOTIENT": "quotient",
        "INVERSEROOT": "inverse_root",
        "FLOOR_QUOTIENT": "floor_quotient",
        "FLOOR_REMAINDER": "floor_remainder",
        "BITS": "__float_as_int",
        **{name: f"{name.lower()}f" for name in C_FUNCTIONS},
        "FMOD": "truncated_remainder",
    },
    qualifier="__device__ __forceinline__",
    source_constant="CUDA_SOURCE",
    flags_constant="CUDA_FLAGS",
    alignment=16,
    headers=headers,
    flags=flags,
    variants=_VARIANTS,
    half_primitives={
        "CHOOSE": "choose",
        "EXP": "fast_exp",
        "LOG1P": "fast_log1p",
        "NORMAL": "fast_normal",
        "RECIPROCAL": "fast_reciprocal",
        "TANH": "fast_tanh",
    },
)
