"""Labels of foreign candidates: what a reader of the result should know. They decide nothing."""

from __future__ import annotations

import re
from typing import Any, Mapping

NO_KERNEL = "no kernel of its own: calls the library only"
#: Words by which a file can run code that is neither Python nor the library's.
_NATIVE = re.compile(
    r"\b(ctypes|cffi|_cffi_backend|triton|numba|cupy|cuda-python|pybind11|cython|pycuda|jax|tvm|cutlass|tilelang|"
    r"cpp_extension|load_library|load_inline|_compile_kernel|importlib|__import__|runpy)\b|"
    r"\btorch\.(compile|jit|_inductor)\b|(?<![.\w])(exec|eval)\(")


def has_native_code(source: str) -> bool:
    """Whether a file names a way to run native code of its own."""
    return _NATIVE.search(source) is not None


def profile_labels(found: Mapping[str, Any], *, native: bool, cuda: bool) -> list[str]:
    """The share of time in own kernels, from a worker's answer, which may hold anything. On the CPU, Python's time
    counts as the kernels'."""
    own, total = (found.get(name) for name in ("own_ns", "all_ns"))
    if type(own) is not int or type(total) is not int or total <= 0 or own < 0:
        return ["share of own kernels not known: the profiler sees no kernel here"]
    if not native or own == 0:
        return [NO_KERNEL]
    percent = 100 * min(own / total, 1.0)
    what = "own kernels" if cuda else "own kernels and Python"
    return [f"{what} {percent:.0f}% of the time" if percent >= 1 else f"{what} less than 1% of the time"]
