"""Dtypes: how elements and values of each dtype are spelled in C, on every kind of device; one entry each.

A kernel computes with values in registers. A load turns an element of memory into a value; a store turns it back.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    """One dtype: ``memory`` is the C type of an element, of ``nbytes`` bytes. ``kind`` is one of bool, int, float."""

    memory: str
    nbytes: int
    kind: str


#: The dtypes that kernels take, by the names that PyTorch gives them; promotion goes down the list.
DTYPES = {
    "bool": DType("bool", 1, "bool"),
    "uint8": DType("unsigned char", 1, "int"),
    "int8": DType("signed char", 1, "int"),
    "int16": DType("short", 2, "int"),
    "int32": DType("int", 4, "int"),
    "int64": DType("long long", 8, "int"),
    "float16": DType("float16_t", 2, "float"),
    "bfloat16": DType("bfloat16_t", 2, "float"),
    "float32": DType("float", 4, "float"),
}

#: Half types: values of them are float32 in registers, and are rounded where they are stored.
HALF = ("float16", "bfloat16")

#: Dtypes that no kernel takes, for the sizes of library calls' tensors.
_OTHER_NBYTES = {"float64": 8, "complex64": 8, "complex128": 16}


def nbytes(dtype: str) -> int:
    """Bytes of an element."""
    return DTYPES[dtype].nbytes if dtype in DTYPES else _OTHER_NBYTES.get(dtype, 4)


def is_float(dtype: str) -> bool:
    return dtype in DTYPES and DTYPES[dtype].kind == "float"


def value_type(dtype: str) -> str:
    """The C type of a value in a register."""
    return "float" if dtype in HALF else DTYPES[dtype].memory


def value_nbytes(dtype: str) -> int:
    """Bytes of a value in a register."""
    return 4 if dtype in HALF else DTYPES[dtype].nbytes


def loaded(element: str, dtype: str) -> str:
    """C source of the value of an element in memory."""
    return f"static_cast<float>({element})" if dtype in HALF else element


def stored(value: str, of: str, dtype: str) -> str:
    """C source of an element in memory, from a value of the dtype ``of``."""
    return value if value_type(of) == DTYPES[dtype].memory else f"static_cast<{DTYPES[dtype].memory}>({value})"
