"""Source: names, numbers and small tensors as Python source."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kgen.compiler.graph import BatchSize

if TYPE_CHECKING:
    import torch


def identifier(path: str) -> str:
    """A Python and C identifier for a path: ``linear.weight`` -> ``linear_weight``."""
    name = re.sub(r"\W+", "_", path).strip("_") or "weight"
    return f"w_{name}" if name[0].isdigit() else name


def spell_value(value: Any) -> str:
    """A number, string or nested list of them as Python source; infinities and NaN as calls."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(spell_value, value)) + "]"
    return str(value) if isinstance(value, BatchSize) else repr(value)


def escaped(value: Any) -> str:
    """A value as Python source that ``str.format`` leaves as it is."""
    return spell_value(value).replace("{", "{{").replace("}", "}}")


def tensor_source(tensor: "torch.Tensor") -> str:
    """Python source that makes the tensor again."""
    import torch

    text = spell_value(tensor.tolist())
    plain = (torch.float32, torch.int64, torch.bool)
    return f"torch.tensor({text})" if tensor.dtype in plain and tensor.numel() else f"torch.tensor({text}, dtype={tensor.dtype})"
