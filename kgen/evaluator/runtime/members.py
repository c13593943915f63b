"""The tensors that a module holds, by name: those of its state dict, and those that no state dict has.

They are read from the dicts of its modules, since a model may override methods. The functions of torch are bound here,
before a candidate is loaded.
"""

from typing import Any, Iterable

import torch

from kgen.evaluator.runtime.arena import is_tensor, leaves

PARAMETERS, BUFFERS = "_parameters", "_buffers"  #: the dicts of a module
_MODULES = "_modules"
TABLES = frozenset((PARAMETERS, BUFFERS, _MODULES))  #: the names of these dicts
_NOT_SAVED = "_non_persistent_buffers_set"
_get, _items = dict.get, dict.items  # a subclass may show other items
#: TorchScript's modules have these in place of such dicts.
_SCRIPTED = tuple(
    (kind, kind.items) for kind in (torch.jit._script.OrderedDictWrapper, torch.jit._script.OrderedModuleDict)
)

attributes = vars(torch.nn.Module)[
    "__dict__"
].__get__  #: the attributes of a module: a class may have a property of that name


def saved(module: Any, kind: str) -> dict[str, torch.Tensor]:
    """The parameters, or the buffers of the state dict, by name."""
    found: dict[str, torch.Tensor] = {}
    for prefix, own in _modules(module):
        left_out = _get(own, _NOT_SAVED, ()) if kind == BUFFERS else ()
        found |= {prefix + k: v for k, v in _entries(own, kind) if v is not None and k not in left_out}
    return found


def unsaved(module: Any) -> dict[str, torch.Tensor]:
    """The tensors that no state dict has, by name: buffers that are not saved, and plain attributes such as
    ``scales[0]``."""
    found: dict[str, torch.Tensor] = {}
    for prefix, own in _modules(module):
        names = _get(own, _NOT_SAVED, ())
        found |= {prefix + k: v for k, v in _entries(own, BUFFERS) if k in names and _is_dense(v)}
        for key, value in _items(own):
            if key not in TABLES:
                found |= {f"{prefix}{key}{path}": leaf for path, leaf in leaves(value) if _is_dense(leaf)}
    return found


def _is_dense(value: Any) -> bool:
    return is_tensor(value) and value.layout is torch.strided


def _modules(module: Any, prefix: str = "", seen: frozenset[int] = frozenset()) -> Iterable[tuple[str, dict[str, Any]]]:
    """The attributes of a module and of all modules in it, with the prefixes of their names."""
    own = attributes(module)
    yield prefix, own
    for name, inner in _entries(own, _MODULES):
        if inner is not None and id(inner) not in seen:
            yield from _modules(inner, f"{prefix}{name}.", seen | {id(module)})


def _entries(own: dict[str, Any], kind: str) -> Iterable[tuple[str, Any]]:
    found = _get(own, kind)
    if isinstance(found, dict):
        return _items(found)
    return next((items(found) for scripted, items in _SCRIPTED if type(found) is scripted), ())
