"""kgen: fuse a PyTorch module, render the kernels, prove them right, measure them, keep everything."""

from typing import TYPE_CHECKING, Any

from kgen.errors import KgenError
from kgen.protocol import __version__

if TYPE_CHECKING:
    from kgen.optimized.api import load, optimize, save, save_problem

__all__ = ["KgenError", "__version__", "load", "optimize", "save", "save_problem"]


if not TYPE_CHECKING:  # to a type checker, every name would be one of the module

    def __getattr__(name: str) -> Any:
        """The functions of :mod:`kgen.optimized.api`, which is imported when one of them is asked for."""
        if name in __all__:
            import importlib

            return getattr(importlib.import_module("kgen.optimized.api"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
