"""How the text of an exported program spells numbers and tensors: packed where they have a structure, else drawn."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Sequence

if TYPE_CHECKING:
    import torch

_STRUCTURED = 0.5  # share of its own size, or of its integers' entropy, that a tensor with a structure is compressed to
SAMPLE = 4096  # elements that show whether a tensor may have a structure
_FEW = 256  # integers below it are drawn up to the largest one that was seen


def is_dense(x: "torch.Tensor") -> bool:
    """Whether the elements fill their memory, in another order than row by row."""
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def packed(x: "torch.Tensor") -> bytes:
    """The bytes of a tensor, compressed."""
    import ctypes

    flat = x.detach().cpu().contiguous()
    return zlib.compress(ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()), 9)


def may_have_structure(x: "torch.Tensor") -> bool:
    flat = x.flatten()
    return flat.numel() <= SAMPLE or has_structure(flat[:SAMPLE], packed(flat[:SAMPLE]))


def has_structure(x: "torch.Tensor", packed: bytes) -> bool:
    """Whether a tensor's values follow a rule, as those of masks and positions do, and are no random ones."""
    if x.is_floating_point() or x.is_complex():
        return len(packed) <= _STRUCTURED * x.numel() * x.element_size()
    if x.numel() > 2 and x.dim() and bool((x.long().diff(dim=-1) >= 0).all()):
        return True  # positions and offsets
    entropy = x.numel() * math.log2(int(x.max()) - int(x.min()) + 1)
    return 8 * len(packed) <= _STRUCTURED * entropy


def tuple_of(sizes: Sequence[int]) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def number(value: float | int | bool | complex) -> str:
    """Python source of a number; infinities and NaN have no literal."""
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)


def digits(value: float) -> float:
    """One significant digit: statistics of another draw give the same text."""
    return float(f"{value:.0e}")


def rough(std: float) -> float:
    """The nearest power of two."""
    return 2.0 ** round(math.log2(std)) if std > 0 else 0.0


def rough_range(low: int, high: int) -> tuple[int, int]:
    """The range of integers to draw from, inside that of the seen ones; large ends lose digits."""
    if high < _FEW:
        return low, high
    least = 10 ** (len(str(high)) - 1)
    rounded = high // least * least
    return (0 if 0 <= low < high // 8 else low), max(rounded, low)
