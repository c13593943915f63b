"""Dtypes: how elements and values of each dtype are spelled in C, on every kind of device; one entry each.

A kernel computes with values in registers. A load turns an element of memory into a value; a store turns it back.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    """One dtype: ``memory`` is the C type of an element, of ``nbytes`` bytes. ``kind`` is one of bool, int, float.

    ``value`` is the C type of a value in a register, of ``value_nbytes`` bytes. ``epsilon`` is the distance from 1 to
    the next number; 0 of integers. ``mma`` and ``wgmma`` are functions that multiply such operands on tensor cores as
    they are. Without one, tensor cores take operands as terms of float16.
    """

    memory: str
    nbytes: int
    kind: str
    value: str = ""
    value_nbytes: int = 0
    epsilon: float = 0.0
    mma: str = ""
    wgmma: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self.value or self.memory)
        object.__setattr__(self, "value_nbytes", self.value_nbytes or self.nbytes)

    @property
    def narrow(self) -> bool:
        """Whether an element in memory has fewer bits than its value: a store rounds it."""
        return self.nbytes < self.value_nbytes


#: The dtypes that kernels take, by the names that PyTorch gives them; promotion goes down the list.
DTYPES = {
    "bool": DType("bool", 1, "bool"),
    "uint8": DType("unsigned char", 1, "int"),
    "int8": DType("signed char", 1, "int"),
    "int16": DType("short", 2, "int"),
    "int32": DType("int", 4, "int"),
    "int64": DType("long long", 8, "int"),
    "float16": DType("float16_t", 2, "float", "float", 4, 2.0**-10, "mma", "wgmma"),
    "bfloat16": DType("bfloat16_t", 2, "float", "float", 4, 2.0**-7, "mma_bfloat16", "wgmma_bfloat16"),
    "float32": DType("float", 4, "float", epsilon=2.0**-23),
}

#: The dtypes that are narrow.
NARROW = tuple(name for name, dtype in DTYPES.items() if dtype.narrow)

#: Dtypes that no kernel takes, for the sizes of library calls' tensors.
_OTHER_NBYTES = {"float64": 8, "complex64": 8, "complex128": 16}


def add(name: str, dtype: DType) -> None:
    """Take a further dtype into the table, under the name that PyTorch gives it."""
    DTYPES[name] = dtype


def nbytes(dtype: str) -> int:
    """Bytes of an element."""
    return DTYPES[dtype].nbytes if dtype in DTYPES else _OTHER_NBYTES.get(dtype, 4)


def is_float(dtype: str) -> bool:
    return dtype in DTYPES and DTYPES[dtype].kind == "float"


def is_narrow(dtype: str) -> bool:
    """Whether elements of the dtype are computed with in a wider one, as half types are."""
    return dtype in DTYPES and DTYPES[dtype].narrow


def value_type(dtype: str) -> str:
    """The C type of a value in a register."""
    return DTYPES[dtype].value


def value_nbytes(dtype: str) -> int:
    """Bytes of a value in a register."""
    return DTYPES[dtype].value_nbytes


def loaded(element: str, dtype: str) -> str:
    """C source of the value of an element in memory."""
    return f"static_cast<{value_type(dtype)}>({element})" if is_narrow(dtype) else element


def stored(value: str, of: str, dtype: str) -> str:
    """C source of an element in memory, from a value of the dtype ``of``."""
    return value if value_type(of) == DTYPES[dtype].memory else f"static_cast<{DTYPES[dtype].memory}>({value})"
