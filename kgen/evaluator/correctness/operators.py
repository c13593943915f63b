"""The library's operators that a forward calls, counted."""

from collections import Counter
from typing import Any, Iterator, Mapping, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Operators that move elements, or make new memory. They are not counted.
_MOVES = frozenset(
    (
        "_reshape_alias _to_copy _unsafe_view alias clone contiguous copy copy_ detach fill_ lift_fresh resize_ set_ "
        "zero_"
    ).split()
)
_MAKERS = ("empty", "full", "new_", "ones", "rand", "zeros")
#: By the beginning of an operator's name: what it computes. Variants of one operation count as one.
_MEANINGS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("addmm", "addmv", "baddbmm", "addbmm", "addr", "_addmm_activation"), ("matmul", "add")),
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "linear", "matmul", "_scaled_mm"), ("matmul",)),
    **dict.fromkeys(("_softmax", "_safe_softmax", "softmax"), ("softmax",)),
    **dict.fromkeys(
        (
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "_batch_norm_with_update",
            "_batch_norm_no_update",
            "cudnn_batch_norm",
            "native_batch_norm",
            "batch_norm",
        ),
        ("batch_norm",),
    ),
}


class Eager(TorchDispatchMode):
    """A mode in which nothing is compiled: torch need not import its compiler (seconds) to find out."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Counted(Eager):
    """Counts operators by name, and notes operators on single elements."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.elementwise: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for name in _meant(func, args):
            self.operators[name] += 1
            if name == "add" or torch.Tag.pointwise in func.tags:
                self.elementwise.add(name)
        return func(*args, **(kwargs or {}))


def _meant(func: Any, args: Sequence[Any]) -> Iterator[str]:
    """Names of an operator's computation. Views, copies, new tensors and counters in one element have none."""
    name = func._schema.name.removeprefix("aten::")
    inputs = [x for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
    if (
        func.namespace != "aten"
        or func.is_view
        or name in _MOVES
        or name.startswith(_MAKERS)
        or not any(x.dim() for x in inputs)
    ):
        return
    name = name.rstrip("_")
    if "attention" in name:
        yield "attention"
    elif "convolution" in name or "_conv" in name:
        yield "convolution"
        if len(inputs) > 2:
            yield "add"
    else:
        yield from _MEANINGS.get(name, (name,))
