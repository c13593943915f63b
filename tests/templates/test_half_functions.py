"""Functions without branches: CUDA's own text, run on every bfloat16 on the emulated device, against float64."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Callable, Iterable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from emulated import _built, host_text

from kgen.codegen.c_printer import expression
from kgen.codegen.linker import helpers
from kgen.codegen.symbols import linked
from kgen.compiler.loops.expr import SELF, filled
from kgen.compiler.operators.table import OPS

EXACT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sigmoid": torch.sigmoid, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "mish": F.mish, "softplus": F.softplus, "log_sigmoid": F.logsigmoid, "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish,
    "tanh": torch.tanh, "exp": torch.exp, "log1p": torch.log1p,
}  # fmt: skip
#: The largest error: a fraction of the result; for gelu, whose share of a small result is a difference in PyTorch, too, one of 1.
RELATIVE, ABSOLUTE = 2.0**-16, {"gelu": 2.0**-20, "gelu_tanh": 2.0**-20}
SMALLEST = 1e-36  # results of about that size may be 0
NUMBERS = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


#: Functions that have no branch in float32 either, and what else these compute.
SINGLE = {op: EXACT[op] for op in ("sigmoid", "silu", "mish", "hardsigmoid", "hardswish")} | {"inverse_deviation_of_columns": torch.rsqrt}
ULP = 2.0**-23


def results(folder: Path, ops: Iterable[str], dtype: str) -> dict[str, torch.Tensor]:
    """Each function's results for all numbers, in float32, as it is spelled for results of ``dtype``."""
    numbers = {"beta": 1.0, "threshold": 20.0, "eps": 0.0}
    texts = {op: expression(filled(OPS[op].expression, [SELF], numbers, dtype), ["x[i]"], "cuda", dtype) for op in ops}
    loops = "\n".join(
        f'extern "C" void run_{op}(const float* x, float* y) {{\n    for (int i = 0; i < {len(NUMBERS)}; ++i) y[i] = {text};\n}}' for op, text in texts.items()
    )
    loops, symbols = linked(loops)
    of = helpers(symbols, "cuda")
    library = ctypes.CDLL(str(_built(folder, "#include <cuda_runtime.h>\n" + host_text(of.math + of.table + loops), ["-O1"])))
    x = NUMBERS.float().numpy()
    found = {}
    for op in ops:
        y = np.empty_like(x)
        getattr(library, f"run_{op}")(x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p))
        found[op] = torch.from_numpy(y)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return results(tmp_path_factory.mktemp("builds"), EXACT, "bfloat16")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return results(tmp_path_factory.mktemp("builds"), SINGLE, "float32")


@pytest.mark.parametrize("op", EXACT)
def test_error_is_far_below_a_half_types_rounding(found: dict[str, torch.Tensor], op: str) -> None:
    exact, mine = EXACT[op](NUMBERS.double()), found[op].double()
    finite = exact.isfinite() & (exact.abs() < 3e38)
    error = (mine - exact).abs()[finite]
    bound = torch.maximum(exact.abs()[finite] * RELATIVE, torch.full_like(error, ABSOLUTE.get(op, SMALLEST)))
    worst = (error / bound).argmax()
    assert bool((error <= bound).all()), (NUMBERS[finite][worst], mine[finite][worst], exact[finite][worst])


@pytest.mark.parametrize("op", SINGLE)
def test_a_function_without_a_branch_is_exact_in_float32(single: dict[str, torch.Tensor], op: str) -> None:
    """The exponential's own error aside, which grows with its argument."""
    exact, mine = SINGLE[op](NUMBERS.double()), single[op].double()
    finite = exact.isfinite() & (exact.abs() < 3e37)  # hardswish multiplies by 6, as in PyTorch
    error, bound = (mine - exact).abs()[finite], (exact.abs() * ULP * 4 + SMALLEST)[finite]
    worst = (error / bound).argmax()
    assert bool((error <= bound).all()), (NUMBERS[finite][worst], mine[finite][worst], exact[finite][worst])


@pytest.mark.parametrize("op", SINGLE)
def test_special_numbers_in_float32_are_pytorchs(single: dict[str, torch.Tensor], op: str) -> None:
    special = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0], dtype=torch.float64)
    at = [int((NUMBERS == s).nonzero()[0]) if s == s else int(NUMBERS.isnan().nonzero()[0]) for s in special]
    torch.testing.assert_close(single[op][at].double(), SINGLE[op](special), rtol=4 * ULP, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("op", EXACT)
def test_numbers_that_are_not_finite_are_pytorchs(found: dict[str, torch.Tensor], op: str) -> None:
    special = torch.tensor([float("inf"), float("-inf"), float("nan")], dtype=torch.float64)
    at = [int((NUMBERS == s).nonzero()[0]) if s == s else int(NUMBERS.isnan().nonzero()[0]) for s in special]
    assert torch.equal(found[op][at].isnan(), EXACT[op](special).isnan())
    assert torch.allclose(found[op][at].double().nan_to_num(7.0), EXACT[op](special).nan_to_num(7.0), rtol=RELATIVE)
