"""Dispatch: a call of an optimised module runs a winner where its guard holds, and the module's own forward elsewhere.

    call ── modes of torch? facts of the module? ── values of the arguments ── shapes ──> winner, or the original

The guard knows what a winner was made for. Everything else runs the original: counted by reason, told once, never an
error.
"""

import inspect
import logging
import threading
from collections import Counter
from typing import Any, Sequence

import torch
import torch.utils._device
import torch.utils._pytree as pytree
from torch import nn
from torch.autograd import forward_ad
from torch.nn.modules import module as nn_module

from kgen.devices.kinds import kind_of
from kgen.optimized import winner as winners
from kgen.optimized.calls import Signature, fit, matches
from kgen.optimized.fingerprint import place
from kgen.optimized.operator import Operation, operation, register
from kgen.optimized.twin import Facts, Watch, original_forward, watching
from kgen.optimized.winner import Winner

GRADIENTS = "gradients are wanted"
SHAPES = "other shapes, dtypes, layouts or devices than those that were swept"
UNNOTICED = frozenset({"a submodule has hooks"})  #: changes whose end no watch notices
ARGUMENTS = "other arguments than those that were swept"

_MOST_KEYS = 1024  # shapes of calls that are remembered
_log = logging.getLogger("kgen")

_is_grad_enabled = torch.is_grad_enabled
_is_autocast = torch._C._is_any_autocast_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_functorch = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state
_Tensor, _Parameter = torch.Tensor, nn.Parameter
_plain = {torch.Tensor, nn.Parameter, nn.Buffer}


class Entry:
    """One winner at work: its ``ModelNew``, linked to the module, and how its result becomes forward's.

    ``template`` has forward's leaves that are no tensors; ``None`` stands for a tensor there. Without one, the result
    of the file is forward's own.
    """

    def __init__(self, winner: Winner, model: nn.Module, structure: Any, template: list[Any] | None) -> None:
        self.winner, self.model, self.structure, self.template = winner, model, structure, template
        self.forward = model.forward
        self.calls = 0
        made: tuple[Any, Any] = _unflatten(structure) if template is not None else (None, None)
        self.unflatten, self.context = made

    def result(self, found: Any) -> Any:
        """Forward's result, of the file's."""
        if self.template is None:
            return found
        tensors = iter(found if self.unflatten else pytree.tree_leaves(found))
        if self.unflatten:
            return self.unflatten([next(tensors) if x is _TENSOR else x for x in self.template], self.context)
        return pytree.tree_unflatten([next(tensors) if x is _TENSOR else x for x in self.template], self.structure)


_TENSOR = "<tensor>"


class Dispatch:
    """The forward of one optimised module, whose twin is ``owner``. ``recorded`` are the arguments of the calls swept.

    ``libraries`` are built libraries by the contents of their extensions; ``device`` is that of the inputs.
    """

    def __init__(
        self,
        owner: nn.Module,
        name: str,
        calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]],
        found: Sequence[Winner],
        libraries: dict[str, str],
    ) -> None:
        self.owner, self.name, self.libraries = owner, name, libraries
        self.winners = tuple(found)
        args, kwargs = calls[0]
        self.signature = Signature(original_forward(owner), args, kwargs)
        self.recorded = [pytree.tree_map_only(torch.Tensor, _outline, [*a, *k.values()]) for a, k in calls]
        self.flat = all(type(x) is torch.Tensor for values in self.recorded for x in values)
        self.devices = [
            next(x.device for x in pytree.tree_leaves((a, k)) if isinstance(x, torch.Tensor)) for a, k in calls
        ]
        self.fallbacks: Counter[str] = Counter()
        self.operation: Operation | None = None
        self.handle = register(self)
        self._first_call: tuple[tuple[Any, ...], dict[str, Any]] = calls[0]
        self.place = place([*calls])
        self.on_gpu = any(kind_of(device).accelerator for device in self.devices)
        self._start()

    def _start(self) -> None:
        self.entries: list[Entry] = []
        self.table: dict[Any, Entry | None] = {}
        self.watch: Watch = watching(self.owner)
        self.facts = Facts(self.owner)
        self.seen = self.watch.version
        self.reason = ""
        self.parameters = [*self.owner.parameters()]
        self.flags = _flags()
        self._lock = threading.Lock()

    def attach(self, outcomes: Sequence[Any]) -> None:
        """Load the winners and link them to the module. ``outcomes`` are forward's results for the recorded calls."""
        classes = [winners.load(w.source, self.libraries) for w in self.winners]
        for one, made, outcome in zip(self.winners, classes, outcomes):
            self.entries.append(Entry(one, winners.link(made, self.owner), *_way_back(outcome)))
        args, kwargs = self._first_call
        self.operation = operation(self.owner, args, kwargs, outcomes[0], self.winners[0].problem_source)
        self._first_call = ((), {})  # a user's tensors are not held

    # The call

    def __call__(self, owner: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if owner is not self.owner or not self.entries:  # a replica, as DataParallel makes them
            return original_forward(owner)(owner, *args, **kwargs)
        if (
            self.watch.version != self.seen
            or self.reason
            or _is_autocast()
            or _dispatch_modes()
            or _function_modes()
            or _functorch() is not None
            or _tracing() is not None
            or forward_ad._current_level >= 0
            or nn_module._global_forward_hooks
            or nn_module._global_forward_pre_hooks
            or (self.on_gpu and _flags() != self.flags)
        ):
            reason = self._reason()
            if reason:
                return self._original(reason, args, kwargs)
        values = (
            args
            if self.flat and not kwargs and self.signature.pattern == (len(args), ())
            else self.signature.values(args, kwargs)
        )
        if values is None:
            return self._original(ARGUMENTS, args, kwargs)
        if self.flat:
            tensors: Any = values
        else:
            tensors = self._tensors(values)
            if tensors is None:
                return self._original(ARGUMENTS, args, kwargs)
        key: Any = ()
        for x in tensors:
            if type(x) is not _Tensor and type(x) not in _plain:
                return self._original(ARGUMENTS, args, kwargs)
            key += (x.dtype, x.device, x.shape, x.stride())
        entry = self.table.get(key)
        if entry is None and key not in self.table:
            entry = self._look_up(key, tensors)
        if entry is None:
            return self._original(SHAPES, args, kwargs)
        if _is_grad_enabled() and self._wants_gradients(tensors):
            return self._original(GRADIENTS, args, kwargs)
        if reason := self.facts.changed_contents():
            return self._original(reason, args, kwargs)
        try:
            found = entry.forward(*values)
        except Exception as error:
            return self._failed(key, error, args, kwargs)
        entry.calls += 1
        return found if entry.template is None else entry.result(found)

    def takes(self, args: tuple[Any, ...]) -> bool:
        """Whether the operator can stand for a call that a compiler traces: its arguments are those of the recorded
        call."""
        made = self.operation
        if made is None or len(args) != len(made.inputs):
            return False
        for x, known in zip(args, made.inputs):
            if not isinstance(x, torch.Tensor) or x.dtype != known.dtype or x.device != known.device:
                return False
            if tuple(x.shape) != known.shape or x.stride() != known.stride:
                return False
        return True

    def _reason(self) -> str:
        """The reason why the original runs, whatever the arguments are; empty where a winner may."""
        if _is_autocast():
            return "autocast is on"
        if _dispatch_modes() or any(not _is_default_device(mode) for mode in _modes_of_functions()):
            return "a mode of torch follows each operator"
        if _functorch() is not None or forward_ad._current_level >= 0:
            return "torch.func transforms it"
        if _tracing() is not None:
            return "it is traced"
        if nn_module._global_forward_hooks or nn_module._global_forward_pre_hooks:
            return "all modules have hooks"
        if self.watch.version != self.seen or self.reason in UNNOTICED:
            seen = self.watch.version
            self.reason = self.facts.changed()
            self.seen = seen
            if not self.reason:
                self.facts.renew()  # equal objects may have come in the places of others
                self.parameters = [*self.owner.parameters()]
        return self.reason or ("" if _flags() == self.flags else "flags of torch were changed")

    def _tensors(self, values: Sequence[Any]) -> list[torch.Tensor] | None:
        for recorded in self.recorded:
            tensors: list[torch.Tensor] = []
            if len(recorded) == len(values) and all(matches(v, r, tensors) for v, r in zip(values, recorded)):
                return tensors
        return None

    def _look_up(self, key: Any, tensors: Sequence[torch.Tensor]) -> Entry | None:
        """The entry for shapes that no call had before, remembered."""
        with self._lock:
            fits = (
                e
                for e, d in zip(self.entries, self.devices)
                if fit(e.winner.shapes, tensors) and all(x.device == d for x in tensors)
            )
            entry = next(fits, None)
            if len(self.table) < _MOST_KEYS:
                self.table[key] = entry
        return entry

    def _wants_gradients(self, tensors: Sequence[torch.Tensor]) -> bool:
        return any(x.requires_grad for x in tensors) or any(p.requires_grad for p in self.parameters)

    def _failed(self, key: Any, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the original where the file refuses a call; the same shapes do not come to it again."""
        self.table[key] = None
        message = " ".join(str(error).split())[:120]
        return self._original(f"the file refused the call: {type(error).__name__}: {message}", args, kwargs)

    def _original(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if reason not in self.fallbacks and len(self.fallbacks) < _MOST_KEYS:
            where = f"{self.name or type(self.owner).__name__}"
            _log.warning("%s runs without kgen: %s (told once; more in .kgen)", where, reason)
        self.fallbacks[reason] += 1
        return original_forward(self.owner)(self.owner, *args, **kwargs)

    # Copies

    def __getstate__(self) -> dict[str, Any]:
        dropped = ("_lock", "table", "entries", "parameters", "handle", "_first_call")
        state = {name: value for name, value in vars(self).items() if name not in dropped}
        return state | {"outcomes": [(e.structure, e.template) for e in self.entries]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._outcomes = state.pop("outcomes")
        vars(self).update(state)
        self.handle = register(self)
        self.entries, self.table, self._lock = _Later(self), {}, threading.Lock()  # type: ignore[assignment]
        self.parameters = []

    def restore(self) -> None:
        """Load and link the winners of a copy, when it is called first."""
        with self._lock:
            if isinstance(self.entries, _Later):
                self.signature.signature = inspect.signature(original_forward(self.owner))
                self.parameters = [*self.owner.parameters()]
                self.facts.renew()
                found = [
                    Entry(w, winners.link(winners.load(w.source, self.libraries), self.owner), *way)
                    for w, way in zip(self.winners, self._outcomes)
                ]
                self.entries = found


class _Later:
    """The entries of a copy, which are made when the copy is called."""

    def __init__(self, of: Dispatch) -> None:
        self.of = of

    def __bool__(self) -> bool:
        self.of.restore()
        return bool(self.of.entries) if not isinstance(self.of.entries, _Later) else False

    def __iter__(self) -> Any:
        return iter(())


def _outline(x: torch.Tensor) -> torch.Tensor:
    """A tensor without contents in the place of an argument."""
    return torch.empty(0)


def _unflatten(structure: Any) -> tuple[Any, Any]:
    """The function that makes a container of its leaves, with the argument behind them; ``None`` for nested
    containers."""
    kind = pytree.SUPPORTED_NODES.get(structure.type)
    flat = structure.num_leaves == structure.num_children and structure.num_nodes == structure.num_leaves + 1
    return (kind.unflatten_fn, structure.context) if flat and kind is not None else (None, None)


def _way_back(outcome: Any) -> tuple[Any, list[Any] | None]:
    """The structure of forward's result, and its leaves that are no tensors; no leaves where the file's result is the
    same."""
    if _is_plain(outcome):
        return None, None
    leaves, structure = pytree.tree_flatten(outcome)
    return structure, [_TENSOR if isinstance(x, torch.Tensor) else x for x in leaves]


def _is_plain(value: Any) -> bool:
    """Whether a text spells a result as forward gives it: tensors, numbers, and tuples, lists and dicts of them."""
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    return isinstance(value, (torch.Tensor, int, float, str, bool, type(None)))


def _modes_of_functions() -> list[Any]:
    return [torch._C._get_function_stack_at(at) for at in range(_function_modes())]


def _is_default_device(mode: Any) -> bool:
    """Whether a mode only says where new tensors are made."""
    return type(mode) is torch.utils._device.DeviceContext


def _flags() -> tuple[Any, ...]:
    """Flags of torch on which results depend."""
    try:
        return torch._C._get_cudnn_allow_tf32(), torch._C._get_cublas_allow_tf32()
    except RuntimeError:  # they were set in torch's newer way, which has no answer in the older one
        return ()
