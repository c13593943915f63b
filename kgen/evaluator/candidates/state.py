"""The state of the module under evaluation: its parameters and buffers, beside the problem's own.

The functions of torch are bound here, before a candidate is loaded.
"""

from typing import Any, Collection, Mapping

import torch

from kgen.evaluator.candidates.guards import bitwise
from kgen.evaluator.correctness.distributions import change_weights
from kgen.evaluator.runtime.arena import is_tensor, same_bits
from kgen.evaluator.runtime.members import BUFFERS, PARAMETERS, saved, unsaved

_no_grad = torch.no_grad
_copy = torch.Tensor.copy_


class Refused(Exception):
    """The subject's file is no candidate; the message says why."""


class State:
    """The weights that a module has, and the buffers that its forward may change. A candidate can set no method of
    it."""

    __slots__ = ("model", "base", "ties", "weights", "parameters", "matched", "change", "own", "unsaved")

    def __init__(self) -> None:
        self.model: torch.nn.Module  # from :meth:`match` on
        self.base: dict[str, torch.Tensor] = {}  # the problem's weights
        self.ties: Mapping[str, str] = {}  # a parameter's second name -> its first
        self.weights: dict[str, torch.Tensor] = {}  # as they are now
        self.parameters: list[str] = []  # the names among them that are parameters
        self.matched = False  # whether the module took the problem's weights
        self.change = "drawn"  # how the weights are changed now
        self.own: set[str] = set()  # buffers that the problem has not
        self.unsaved: frozenset[str] = frozenset()  # tensors of no state dict that the problem's forward writes

    def match(
        self, model: torch.nn.Module, base: dict[str, torch.Tensor], ties: Mapping[str, str], unsaved: frozenset[str]
    ) -> bool:
        """Give the module the problem's weights where names and shapes agree; else it keeps its own. ``unsaved`` are
        the names of the problem's state in no state dict. Returns whether the module has all of this state. A module
        that keeps state in its own way is judged by its outputs and its state dict."""
        self.model, self.base, self.ties, self.unsaved = model, base, ties, unsaved
        self.parameters = list(saved(model, PARAMETERS))
        own = saved(self.model, PARAMETERS) | self.tensors()
        for name, value in own.items():
            if not is_tensor(value):
                raise Refused(f"{name} is a {type(value).__name__}, not a tensor")
        mine, theirs = ({k: (v.shape, v.dtype) for k, v in state.items()} for state in (own, self.base))
        complete = mine == theirs
        self.matched = complete or _without(mine, unsaved) == _without(theirs, unsaved)
        if self.matched:
            if not complete:
                self.unsaved, self.base = frozenset(), _without(self.base, unsaved)
            self.use(force=True)
        else:
            missing = [kind for k, kind in theirs.items() if k not in mine]
            self.own = {k for k, kind in mine.items() if k not in theirs and kind not in missing}
            self.base = self.weights = {k: v.detach().clone() for k, v in own.items()}
        return complete

    def use(self, change: str = "drawn", *, force: bool = False) -> None:
        """Load the weights with that change, unless they have it already, and restore the state that a forward
        changes."""
        if self.matched and (force or change != self.change):
            self.weights = change_weights(self.base, change, self.ties)
            self.model.load_state_dict(_without(self.weights, self.unsaved))
            self.change = change
        self.restore()

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that a forward may change: buffers of the state dict, and the problem's state in none."""
        found = saved(self.model, BUFFERS)
        if self.unsaved:
            found |= {name: x for name, x in unsaved(self.model).items() if name in self.unsaved}
        return found

    def restore(self) -> None:
        """Write back the buffers that changed. Others keep their version, so that weights folded from them stay
        valid."""
        with _no_grad():
            for name, buffer in self.tensors().items():
                if name in self.weights and name not in self.own and not bitwise(buffer, self.weights[name]):
                    _copy(buffer, self.weights[name])

    def copied(self) -> dict[str, torch.Tensor]:
        """Copies of the tensors that a forward may change, where the problem has them."""
        return {name: value.detach().clone() for name, value in self.tensors().items() if name in self.weights}

    def members(self) -> list[torch.Tensor]:
        """All parameters and buffers."""
        return [*saved(self.model, PARAMETERS).values(), *self.tensors().values()]

    def changed_parameter(self) -> str:
        """The name of the first parameter that has other bits than its weights; empty if none has."""
        found = saved(self.model, PARAMETERS)
        return next((name for name in self.parameters if not _holds(found.get(name), self.weights[name])), "")


def _without(found: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}


def _holds(parameter: Any, value: torch.Tensor) -> bool:
    """Whether a parameter has the bits of ``value``, in any memory layout."""
    kinds = [(x.shape, x.dtype, x.device) for x in (parameter, value) if is_tensor(x)]
    return len(kinds) == 2 and kinds[0] == kinds[1] and same_bits(parameter.detach(), value)
