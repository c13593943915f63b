"""Forward's parameters as Python source: how each tensor of a call is read from them, and their text."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    import torch


def argument_sources(
    module: "torch.nn.Module", inputs: tuple[Any, ...]
) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """The source that reads each leaf of ``inputs`` from forward's parameters, and the length of each container."""
    import torch.utils._pytree as pytree

    tops: list[str] = []
    lengths: list[tuple[str, int]] = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = len(inputs) - len(tops)
            lengths.append((f"len({parameter.name})", rest))
            tops += [f"{parameter.name}[{at}]" for at in range(rest)]
        elif parameter.kind is parameter.VAR_KEYWORD:
            lengths.append((f"len({parameter.name})", 0))
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            tops.append(parameter.name)
    sources: list[str] = []
    for top, value in zip(tops, inputs):
        paths = [path for path, _ in pytree.tree_flatten_with_path(value)[0]]
        sources += [top + _keys(path) for path in paths]
        for path, container in _containers(value, ()):
            lengths.append((f"len({top}{_keys(path)})", len(container)))
    return tuple(sources), tuple(lengths)


def _keys(path: tuple[Any, ...]) -> str:
    """Python source that follows a path of pytree keys: ``[0]['mask'].value``."""
    return "".join(f".{key.name}" if hasattr(key, "name") else str(key) for key in path)


def _containers(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The lists, tuples and dicts in an argument, with their paths."""
    import torch.utils._pytree as pytree

    if type(value) in (list, tuple):
        yield path, value
        inner = [(pytree.SequenceKey(at), x) for at, x in enumerate(value)]
    elif isinstance(value, dict):
        yield path, value
        inner = [(pytree.MappingKey(key), x) for key, x in value.items()]
    else:
        return
    for key, x in inner:
        yield from _containers(x, (*path, key))


def signature(module: "torch.nn.Module") -> str:
    """The text of forward's parameters: ``self, x, *, scale=2.0``. A default that is no literal reads ``...``."""
    found = []
    for parameter in inspect.signature(module.forward).parameters.values():
        default = parameter.default
        if default is not parameter.empty and not _is_literal(default):
            default = ...
        found.append(parameter.replace(annotation=parameter.empty, default=default))
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY if _positional_only(found) else _EITHER)
    return str(inspect.Signature([first, *found]))[1:-1].replace("=Ellipsis", "=...")


_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _positional_only(parameters: list[inspect.Parameter]) -> bool:
    return any(p.kind is p.POSITIONAL_ONLY for p in parameters)


def _is_literal(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))
