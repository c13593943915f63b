"""The memory into which subjects write their outputs, and from which the oracle reads them."""

import torch

from kgen.evaluator.runtime.arena import Arena, Node, nodes

_LARGE_OUTPUT = (
    1 << 30
)  #: bytes; larger outputs of own candidates share one memory, since these are judged one at a time


class Outputs:
    """Memory in the place ``place`` for each subject, whose outputs have ``output_bytes``. Tensors are read on
    ``device``, as ``copies`` or in that memory. Foreign subjects (``strict``) share none."""

    def __init__(self, place: str, device: str, output_bytes: int, *, strict: bool, copies: bool) -> None:
        self._place, self._device, self._bytes, self._strict, self._copies = place, device, output_bytes, strict, copies
        self._outputs_of: dict[str, Arena] = {}
        self._lent: Arena | None = None  # one memory for the outputs of several subjects

    def memory(self, subject: str, size: int) -> Arena:
        """``size`` bytes for the outputs of ``subject``. Own candidates with large ones, judged in turns, share
        memory."""
        lent = not self._strict and min(size, self._bytes) > _LARGE_OUTPUT
        if lent and self._lent is None:
            self._lent = Arena.create(size, self._place)
        self._outputs_of[subject] = self._lent if lent and self._lent else Arena.create(size, self._place)
        return self._outputs_of[subject]

    def forget(self, subject: str) -> None:
        """Free the memory of a subject."""
        memory = self._outputs_of.pop(subject, None)
        if memory is not None and memory is not self._lent:
            memory.close()

    def read(self, subject: str, node: Node, shift: int) -> list[torch.Tensor]:
        """The tensors that ``subject`` wrote ``shift`` bytes behind the places in ``node``. Small ones are copies."""
        memory = self._outputs_of[subject]
        found = [
            memory.read(leaf | {"offset": leaf["offset"] + shift}, self._device)
            for leaf in nodes(node)
            if leaf["kind"] == "tensor"
        ]
        return [x.clone() for x in found] if self._copies else found
