"""Source: names, numbers and small tensors as Python source."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kgen.compiler.graph.graph import Tensor
from kgen.compiler.graph.library_call import LibraryCall, Many, X, number_source, torch_

if TYPE_CHECKING:
    import torch


#: Names that kernels use for themselves; a value of the graph that has one of them is called otherwise.
RESERVED = frozenset(
    "outer across along lines tiles row rows col lane line step item i j r at begin end first last vector vectors tile "
    "count shift sum square mean squares "
    "of number N K LD GROUP GROUPS AT_ONCE sums finite group half both x_exponent w_exponent x_exponents w_exponents "
    "tap tap_a tap_b tap_c tap_d in_a in_b in_c in_d out_a out_b out_c out_d inside_row running totals warp so_far "
    "first_line first_col strip down before carry "
    "inside line_of_inputs from found moments difference deviation variance workspace stream stride next ahead own "
    "origin merges inverse "
    "merged total partial max min other piece cols rank round team teams arrivals slots slot head tail seen take "
    "request next_row next_step shared part place chunk parts span spans of_lane repaired SPAN SPANS "
    "asm auto bool break case catch char class const constexpr continue default delete do double else enum explicit "
    "export extern float for friend goto if inline int long mutable namespace new noexcept operator private protected "
    "public register return short signed sizeof static struct switch template this throw typedef typeid typename union "
    "unsigned using virtual void volatile while xor vec std".split()
)


def identifier(path: str) -> str:
    """A Python and C identifier for a path: ``linear.weight`` -> ``linear_weight``."""
    name = re.sub(r"\W+", "_", path).strip("_") or "weight"
    return f"w_{name}" if name[0].isdigit() else name


def escaped(value: Any) -> str:
    """A value as Python source that ``str.format`` leaves as it is."""
    return number_source(value).replace("{", "{{").replace("}", "}}")


def tensor_source(tensor: "torch.Tensor") -> str:
    """Python source that makes the tensor again."""
    import torch

    text = number_source(tensor.tolist())
    plain = (torch.float32, torch.int64, torch.bool)
    return (
        f"torch.tensor({text})"
        if tensor.dtype in plain and tensor.numel()
        else f"torch.tensor({text}, dtype={tensor.dtype})"
    )


def reshape_call(type_: Tensor) -> LibraryCall:
    """The library call that gives its operand a type's shape."""
    return torch_("reshape", X, Many(type_.sizes()))
